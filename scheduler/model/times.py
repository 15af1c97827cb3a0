"""Times in sentences for people, always with their zone."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(at: datetime) -> str:
    """Return a time to the second: ``2026-11-21 12:05:00 UTC``."""
    return f"{at.astimezone(UTC).isoformat(' ', 'seconds')[:19]} UTC"


def minute_text(at: datetime) -> str:
    """Return a time to the minute: ``2026-11-21 12:05 UTC``."""
    return f"{at.astimezone(UTC).isoformat(' ', 'minutes')[:16]} UTC"
