"""One score out of many."""
