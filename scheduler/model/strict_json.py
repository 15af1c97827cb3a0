"""Strict JSON, and times as text.

Times are RFC 3339 in UTC with ``Z``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from edgeyard.errors import InvalidInput

JsonObject = dict[str, object]

MAX_DEPTH = 64
"""Nesting that is taken; Python's own encoder and most readers give up not far beyond."""

MAX_INTEGER = 2**63 - 1
"""Both databases' largest; most JSON readers lose digits far earlier."""


def check_json(value: object, pointer: str = "", depth: int = 0) -> None:
    """Refuse what JSON text, a database column or the next reader can't hold.

    Raises:
        InvalidInput: NaN, an infinity, a whole number beyond 64 bits, a lone surrogate, NUL, a
            key that is no text, a value of a foreign type, or nesting beyond `MAX_DEPTH`.
    """
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _check_text(value, pointer)
    elif isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise InvalidInput.at(pointer, "the number is too large", "at most 64 bits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput.at(pointer, "the number is not finite", "a finite number")
    elif depth >= MAX_DEPTH:
        raise InvalidInput.at(pointer, "nested too deeply", f"at most {MAX_DEPTH} levels")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidInput.at(pointer, "a key is not text", "text keys")
            _check_text(key, pointer)
            check_json(item, f"{pointer}/{_escaped(key)}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            check_json(item, f"{pointer}/{index}", depth + 1)
    else:
        raise InvalidInput.at(pointer, f"a {type(value).__name__} is not a JSON value")


def dumps(value: object, pointer: str = "") -> str:
    """Compact JSON text of a checked value.

    Raises:
        InvalidInput: As `check_json`.
    """
    check_json(value, pointer)
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
    )


def loads(text: str) -> Any:
    """Value of JSON text that `dumps` made."""
    return json.loads(text)


def _check_text(text: str, pointer: str) -> None:
    if "\0" in text:
        raise InvalidInput.at(pointer, "the text holds a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidInput.at(pointer, "the text holds a lone surrogate") from None


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def time_to_json(time: datetime | None) -> str | None:
    """RFC 3339 in UTC; None stays None.

    Raises:
        ValueError: The time has no zone.
    """
    if time is None:
        return None
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def time_from_json(text: str) -> datetime:
    """Return the time that RFC 3339 text states, in UTC.

    Raises:
        ValueError: It is none, or has no zone.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    return time.astimezone(UTC)
