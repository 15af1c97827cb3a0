"""Cursors of pages that are ordered by a time and an id."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model import strict_json


def cursor_of(time: datetime, key: str) -> str:
    """Return the cursor of the page after the row with this time and id."""
    text = json.dumps([strict_json.time_to_json(time), key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[datetime, str]:
    """Return the time and the id in a cursor.

    Raises:
        InvalidInput: It is not a cursor of `cursor_of`.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        time, key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        strict_json.check_json(key)
        if not isinstance(key, str):
            raise ValueError("no id")
        return strict_json.time_from_json(time), key
    except (ValueError, TypeError, RecursionError, binascii.Error, InvalidInput):
        raise InvalidInput.at(
            "/cursor",
            "is not a cursor that this server returned",
            "the next_cursor of an earlier page",
        ) from None
