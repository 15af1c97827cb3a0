"""Optimal plans: a stable document, integer programmes over it, and who solves them."""
