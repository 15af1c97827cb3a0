"""Scorers that are not ours, each in a process of its own that can be killed."""
