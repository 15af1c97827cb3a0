"""Cursors of pages, which are ordered by a time and an id, or by texts."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Column, Select, literal, tuple_

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model import strict_json
from edgeyard.scheduler.store.tables import UtcTime
from edgeyard.scheduler.store.transaction import Row, Transaction


def newest_page(
    tx: Transaction,
    query: Select[Any],
    key: Column[str],
    limit: int,
    cursor: str | None,
    *,
    time_name: str = "created_at",
) -> tuple[Sequence[Row], str | None]:
    """Return the rows of a page, newest first, and the next one's cursor; None: it is the last.

    Args:
        tx: Reads the rows.
        query: Selects all rows of the list, in any order.
        key: The id in their table.
        limit: Maximum length of the page.
        cursor: As an earlier page returned it; None: begin with the newest.
        time_name: Name of the column of times in that table.

    Raises:
        InvalidInput: The cursor is malformed.
    """
    time = key.table.c[time_name]
    if cursor is not None:
        at, after = read_cursor(cursor)
        query = query.where(tuple_(time, key) < tuple_(literal(at, UtcTime), literal(after)))
    rows = tx.rows(query.order_by(time.desc(), key.desc()).limit(limit + 1))
    if len(rows) <= limit:
        return rows, None
    last = rows[limit - 1]
    return rows[:limit], cursor_of(cast(datetime, last[time_name]), cast(str, last[key.name]))


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
