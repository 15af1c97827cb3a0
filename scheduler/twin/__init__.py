"""The last known state of all hosts and boards."""
