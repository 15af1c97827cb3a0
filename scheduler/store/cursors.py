"""Cursors of pages, which are ordered by a time and an id, or by texts."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import datetime

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model import strict_json


def cursor_of(time: datetime, key: str) -> str:
    """Return the cursor of the page after the row with this time and id."""
    return key_cursor_of([strict_json.time_to_json(time) or "", key])


def read_cursor(cursor: str) -> tuple[datetime, str]:
    """Return the time and the id in a cursor.

    Raises:
        InvalidInput: It is not a cursor of `cursor_of`.
    """
    time, key = read_key_cursor(cursor, 2)
    try:
        return strict_json.time_from_json(time), key
    except (ValueError, TypeError, InvalidInput):
        raise _not_returned() from None


def key_cursor_of(key: Sequence[str]) -> str:
    """Return the cursor of the page after the row with this key."""
    text = json.dumps(list(key), separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_key_cursor(cursor: str, length: int) -> list[str]:
    """Return the key in a cursor.

    Raises:
        InvalidInput: It is not a cursor of `key_cursor_of` with a key of this length.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        strict_json.check_json(key)
        if not isinstance(key, list) or len(key) != length:
            raise ValueError("another key")
        if not all(isinstance(each, str) for each in key):
            raise ValueError("no texts")
    except (ValueError, TypeError, RecursionError, binascii.Error, InvalidInput):
        raise _not_returned() from None
    return key


def _not_returned() -> InvalidInput:
    return InvalidInput.at(
        "/cursor",
        "is not a cursor that this server returned",
        "the next_cursor of an earlier page",
    )
