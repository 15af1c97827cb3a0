"""Filters of lists, as the address of a page states them."""

from __future__ import annotations

from datetime import datetime


def time_of(text: str, wrong: dict[str, str], name: str) -> datetime | None:
    """Return the time of a filter; a day alone is its beginning in UTC.

    Args:
        text: As typed; "": no filter.
        wrong: Takes what is wrong with the field, by its name.
        name: Of the field.
    """
    if not text:
        return None
    try:
        time = datetime.fromisoformat(f"{text}T00:00:00Z" if len(text) == 10 else text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        wrong[name] = "is no day such as 2026-11-29, and no time with its zone"
        return None
    return time
