"""Nomad for development and tests: the pinned build, rights, and a test bed."""
