"""Which board suits best."""
