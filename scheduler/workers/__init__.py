"""Scorers of other distributions, each in its own process that can be killed."""
