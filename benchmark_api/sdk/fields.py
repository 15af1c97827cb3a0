"""Reading values out of the server's JSON: what is absent or of another kind is None."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

Record = Mapping[str, object]


def text(record: Record, key: str) -> str | None:
    """Return a string."""
    value = record.get(key)
    return value if isinstance(value, str) else None


def number(record: Record, key: str) -> float | None:
    """Return a finite number."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def whole(record: Record, key: str) -> int | None:
    """Return an integer."""
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def moment(record: Record, key: str) -> datetime | None:
    """Return a time with its zone (RFC 3339)."""
    value = record.get(key)
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return at if at.tzinfo else None


def record(of: Record, key: str) -> Record:
    """Return an object; empty where there is none."""
    value = of.get(key)
    return value if isinstance(value, Mapping) else {}


def records(of: object, key: str) -> tuple[Record, ...]:
    """Return a list of objects; empty where there is none."""
    value = of.get(key) if isinstance(of, Mapping) else None
    if not isinstance(value, list | tuple):
        return ()
    return tuple(item for item in value if isinstance(item, Mapping))
