"""Names in filters that match nothing: an unknown name is an error, not an empty list.

Each function asks the server, so call it only where a list is empty, or before following one.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

from edgeyard.benchmark_api.cli.api import items, record
from edgeyard.benchmark_api.cli.output import Row
from edgeyard.benchmark_api.cli.program import Session
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.errors import InvalidInput

_MAX_LISTED = 12
"""Maximum number of known names in a message."""


def refuse_unknown_family(session: Session, family: str | None, flag: str = "--target") -> None:
    """Check that there is a family, where a filter names one.

    Raises:
        InvalidInput: No board that the server knows is of it.
    """
    if family is not None:
        known = {row.get("family") for row in _boards(session)}
        _check(family, known, flag, "family", "edgeyard boards list")


def refuse_unknown_board(session: Session, target_uid: str | None, flag: str) -> None:
    """Check that there is or was a board, where a filter names one.

    Raises:
        InvalidInput: It is neither in the inventory nor announced, and the log of acts that the
            caller may read does not name it.
    """
    if target_uid is None or next(session.client.acts(board=target_uid), None) is not None:
        return
    known = {row.get("target_uid") for row in _boards(session)}
    _check(target_uid, known, flag, "board", "edgeyard boards list")


def refuse_unknown_user(session: Session, user_id: str | None, flag: str = "--user") -> None:
    """Check that there is or was a user, where an operator's filter names one.

    Others than operators may not learn which users there are, and get the empty list.

    Raises:
        InvalidInput: There is no such account, and the log of acts does not name it.
    """
    if user_id is None:
        return
    if record(session.client.api.get("/v1/me")).get("role") != "operator":
        return
    if next(session.client.acts(actor=user_id), None) is not None:
        return
    known = {row.get("user_id") for row in session.client.api.pages("/v1/users")}
    _check(user_id, known, flag, "user", "edgeyard users list")


def _boards(session: Session) -> list[Row]:
    """Return the boards of the inventory, and those that the cluster announces."""
    expected = items(record(session.client.api.get("/v1/inventory")), "boards")
    return [*expected, *map(as_json, session.client.boards())]


def _check(name: str, known: Collection[object], flag: str, what: str, command: str) -> None:
    if name in known:
        return
    names = sorted(str(each) for each in known if each)
    close = difflib.get_close_matches(name, names, n=1)
    accepted = ", ".join(names) if 0 < len(names) <= _MAX_LISTED else f"see {command}"
    if close:
        accepted = f"{accepted}; did you mean {close[0]}?"
    raise InvalidInput.at(flag, f"no {what} {name!r} is known", accepted)
