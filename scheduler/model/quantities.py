"""Durations and shares as people write them: ``15 min``, ``2 %``; sizes: `devices.sizes`."""

from __future__ import annotations

import math
import re

_NUMBER_UNIT = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z%]*)\s*", re.ASCII)

_DURATION_UNITS = {
    "": 1.0,
    "us": 1e-6,
    "ms": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
}


def duration_s(value: object) -> float:
    """Return the seconds of ``900``, ``"15 min"`` or ``"1.5 h"``.

    Raises:
        ValueError: It is no duration or negative; the message says so.
    """
    if isinstance(value, str):
        number, unit = _split(value, "a duration")
        factor = _DURATION_UNITS.get(unit.lower())
        if factor is None:
            raise ValueError(f"unknown unit of time {unit!r}")
        value = number * factor
    seconds = _finite(value, "a duration")
    if seconds < 0:
        raise ValueError("is negative")
    return float(seconds)


def ratio(value: object) -> float:
    """Return the share that ``"2 %"``, ``"2%"`` or ``0.02`` states.

    Raises:
        ValueError: It is no share; the message says so.
    """
    if isinstance(value, str):
        number, unit = _split(value, "a share")
        if unit not in ("", "%"):
            raise ValueError(f"unknown unit {unit!r}")
        value = number / 100 if unit == "%" else number
    return float(_finite(value, "a share"))


def _split(text: str, what: str) -> tuple[float, str]:
    match = _NUMBER_UNIT.fullmatch(text)
    if match is None:
        raise ValueError(f"is not {what}")
    digits = match[1]
    return (float(digits) if "." in digits else int(digits)), match[2]


def _finite(value: object, what: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"is not {what}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("is not a finite number")
    return value
