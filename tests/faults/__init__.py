"""Runs of the whole service under drawn faults, and what must never happen in them."""
