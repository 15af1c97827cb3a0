"""Hardware, and what hosts run; knows nothing of the scheduler."""
