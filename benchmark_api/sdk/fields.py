"""Reading values out of the server's JSON: what is absent or of another kind is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

Record = Mapping[str, object]


def text(record: Record, key: str) -> str | None:
    """A string."""
    value = record.get(key)
    return value if isinstance(value, str) else None


def number(record: Record, key: str) -> float | None:
    """A finite number."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def whole(record: Record, key: str) -> int | None:
    """An integer."""
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def moment(record: Record, key: str) -> datetime | None:
    """A time with its zone (RFC 3339)."""
    value = record.get(key)
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return at if at.tzinfo else None


def record(of: Record, key: str) -> Record:
    """An object; empty where there is none."""
    value = of.get(key)
    return value if isinstance(value, Mapping) else {}


def records(of: object, key: str) -> tuple[Record, ...]:
    """A list of objects; empty where there is none."""
    value = of.get(key) if isinstance(of, Mapping) else None
    if not isinstance(value, list | tuple):
        return ()
    return tuple(item for item in value if isinstance(item, Mapping))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A stable code (waiting reason or failure category) and a sentence for people."""

    code: str
    sentence: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.code, self.sentence)))


def reason(of: Record, key: str) -> Reason | None:
    """A waiting reason or a failure; None where there is none."""
    return _reason(record(of, key))


def reasons(of: Record, key: str) -> tuple[Reason, ...]:
    """A list of reasons, each with a code or as a sentence alone."""
    values = of.get(key)
    if not isinstance(values, list | tuple):
        return ()
    found = [
        _reason(value) if isinstance(value, Mapping) else Reason(code="", sentence=str(value))
        for value in values
    ]
    return tuple(one for one in found if one is not None)


def _reason(raw: Record) -> Reason | None:
    code = text(raw, "code") or text(raw, "category") or text(raw, "reason")
    return Reason(code=code, sentence=text(raw, "sentence") or "") if code else None
