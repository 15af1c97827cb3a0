"""The log of acts: who changed what, by which door, from where, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.event_types import EVENT_TYPES

FAILED_SIGN_IN = "sign_in.failed"
"""Type of the records that count failed sign-ins, one for each address and minute."""

_SECRETS = frozenset({"sha256", "password_hash", "salt", "url", "text"})


class Door(StrEnum):
    """How an act came in. What a client states of itself proves nothing: it is a hint."""

    CLI = "cli"  # User-Agent edgeyard-cli/…
    SDK = "sdk"  # User-Agent edgeyard/…
    PAGE = "page"  # a browser
    PLATFORM = "platform"  # the routes of the platform's client, /api/…
    HTTP = "http"  # anything else that speaks HTTP
    SERVER = "server"  # Edgeyard's own commands on the server's machine


@dataclass(slots=True, kw_only=True, eq=False)
class Acting:
    """Who is acting in this context; the request fills it in as it learns more.

    Attributes:
        kind: Type of the act where no event of its transaction states one; None: it is none.
        user_id: "" before the caller is known.
        address: The client's address, as trusted proxies name it.
        agent: What the client calls itself; any text.
        reason: Stated with the request; an event's own reason precedes it.
        at: When the request came.
    """

    door: Door
    address: str
    at: datetime
    agent: str = ""
    kind: str | None = None
    user_id: str = ""
    token_id: str | None = None
    reason: str = ""
    board: str | None = None


_acting: ContextVar[Acting | None] = ContextVar("acting", default=None)


def acting() -> Acting | None:
    """Return who acts in this context; None: the server itself."""
    return _acting.get()


@contextmanager
def acting_as(who: Acting | None) -> Iterator[None]:
    """Let all transactions within be acts of somebody, or of the server itself (None)."""
    token = _acting.set(who)
    try:
        yield
    finally:
        _acting.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One record of the log of acts.

    Attributes:
        seq: Its number, rising in the order of commits; 0 before it is stored.
        kind: A type of `EVENT_TYPES`.
        user_id: Who acted; None: nobody is known, as of failed sign-ins.
        email: Of the account's log-in, at the time; None: it has none.
        token_id: With which token.
        owner_id: Whose benchmark or lease it was done to.
        count: How many times; above 1 for failed sign-ins only.
        before: What the act changed, as it was; without secrets.
        after: The same, as it is now.
        data: Further facts; without secrets.
    """

    at: datetime
    kind: str
    door: str
    user_id: str | None = None
    email: str | None = None
    token_id: str | None = None
    address: str = ""
    agent: str = ""
    board: str | None = None
    benchmark_id: str | None = None
    owner_id: str | None = None
    reason: str = ""
    count: int = 1
    before: Mapping[str, object] = field(default_factory=dict)
    after: Mapping[str, object] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ActFilter:
    """Which acts; None: all.

    Attributes:
        seen_by: Only acts of this user, and on this user's benchmarks.
        since: At or after this time.
        until: Before this time.
    """

    seen_by: str | None = None
    user_id: str | None = None
    kind: str | None = None
    board: str | None = None
    benchmark_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def stated_reason() -> str:
    """Return why somebody acts in this context, in their words; "" where they did not state it."""
    who = acting()
    return "" if who is None else who.reason


def act_of(who: Acting, events: Sequence[Event]) -> Act | None:
    """Return the record of what somebody did in one transaction; None: it is no act.

    Args:
        who: Who did it.
        events: What the transaction logged: the first one of an act's type names it.
    """
    mine = [each for each in events if each.kind in EVENT_TYPES and EVENT_TYPES[each.kind].act]
    named = mine[0] if mine else None
    kind = who.kind if named is None else named.kind
    user_id = who.user_id or (named.user_id if named is not None else None)
    if kind is None or not user_id:
        return None
    # Where no event names the act, the last one that states a change is what it was about.
    changes = [each for each in events if isinstance(each.data.get("after"), Mapping)]
    about = named or (changes[-1] if changes else None)
    data = dict(about.data) if about is not None else {}
    benchmark_ids = {each.benchmark_id for each in events if each.benchmark_id is not None}
    if len(benchmark_ids) > 1:
        data["benchmarks"] = len(benchmark_ids)
    before, after = data.pop("before", None), data.pop("after", None)
    moves = [each.data for each in events if each.kind == "benchmark.status"]
    if named is None and len(moves) == 1:
        before, after = {"status": moves[0]["before"]}, {"status": moves[0]["status"]}
    stated = data.pop("reason", None)
    owner_id = data.pop("owner_id", None)
    own = stated if isinstance(stated, str) else ""
    board = data.pop("target_uid", None) or who.board
    data.pop("by", None)
    return Act(
        at=named.at if named is not None else who.at,
        kind=kind,
        door=who.door.value,
        user_id=user_id,
        token_id=who.token_id,
        address=who.address,
        agent=who.agent,
        board=None if board is None else str(board),
        benchmark_id=next(iter(benchmark_ids)) if len(benchmark_ids) == 1 else None,
        owner_id=next(
            (each.user_id for each in events if each.kind == "benchmark.submitted"),
            owner_id if isinstance(owner_id, str) else None,
        ),
        reason=own if named is not None and own else who.reason or own,
        before=before if isinstance(before, Mapping) else {},
        after=after if isinstance(after, Mapping) else {},
        data=data,
    )


def difference(before: object, after: object) -> dict[str, dict[str, object]]:
    """Return ``before`` and ``after`` for an event: the fields of two values that differ.

    Args:
        before: A dataclass; None: there was nothing.
        after: Likewise; None: nothing is left.

    Fields that hold a secret, or text that may hold one, are left out.
    """
    old, new = _fields(before), _fields(after)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return {
        "before": {name: old[name] for name in names if name in old},
        "after": {name: new[name] for name in names if name in new},
    }


def _fields(value: object) -> dict[str, object]:
    if value is None or isinstance(value, type) or not dataclasses.is_dataclass(value):
        return {}
    return {
        each.name: _plain(getattr(value, each.name))
        for each in dataclasses.fields(value)
        if each.name not in _SECRETS
    }


def _plain(value: object) -> object:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
