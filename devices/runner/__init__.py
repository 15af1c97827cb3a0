"""Run one benchmark on one board and upload its result."""
