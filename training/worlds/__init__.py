"""Readers of logs of other clusters."""
