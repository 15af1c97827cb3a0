"""Figures of runs: of simulated ones and of those that really happened."""
