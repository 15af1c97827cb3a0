"""Pages of the lab for browsers."""
