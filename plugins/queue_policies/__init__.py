"""Orders of the queue."""
