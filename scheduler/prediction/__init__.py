"""Predictions from past runs: run times, failures, and when benchmarks start and end."""
