"""Words of messages."""

from __future__ import annotations


def count_of(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 job``, ``2 jobs``, ``1,000 jobs``."""
    return f"{count:,} {noun}{'s' * (count != 1)}"
