"""Traces of other clusters, as scenarios."""
