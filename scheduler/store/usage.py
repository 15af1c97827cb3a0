"""What users have stored and started, counted by the database in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Select,
    Text,
    bindparam,
    func,
    or_,
    select,
)

from edgeyard.scheduler.model.benchmark import LIVE, Status
from edgeyard.scheduler.model.quotas import Usage
from edgeyard.scheduler.ports import UsageCounts
from edgeyard.scheduler.store.tables import (
    UtcTime,
    benchmarks,
    result_files,
    schedules,
    tokens,
    user_files,
    user_usage,
    users,
)
from edgeyard.scheduler.store.transaction import Transaction

_USER: BindParameter[str] = bindparam("user_id", type_=Text)
_NOW = bindparam("now", type_=UtcTime)
_LIVE = benchmarks.c.status.in_([status.value for status in LIVE])


def _count(of: Column[str], *where: ColumnElement[bool]) -> Select[Any]:
    return select(func.count()).select_from(of.table).where(of == _USER, *where)


_BYTES = select(user_usage.c.stored_bytes).where(user_usage.c.user_id == _USER)
_LOCK = select(user_usage.c.user_id).where(user_usage.c.user_id == _USER).with_for_update()
_FILES = _count(user_files.c.user_id)
_PENDING = _count(benchmarks.c.user_id, benchmarks.c.status == Status.PENDING.value)
_ALL_LIVE = _count(benchmarks.c.user_id, _LIVE)
_BOOKINGS = _count(
    benchmarks.c.user_id,
    _LIVE,  # a cluster may be given a start ahead of it, and then keeps the board
    benchmarks.c.start_time > _NOW,
)
_SCHEDULES = _count(schedules.c.user_id, schedules.c.active)
_TOKENS = _count(
    tokens.c.user_id,
    tokens.c.session_id.is_(None),  # sessions have a bound of their own
    tokens.c.revoked_at.is_(None),
    or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > _NOW),
)
_RUN = select(
    func.count().label("files"), func.coalesce(func.sum(result_files.c.size_bytes), 0).label("size")
).where(
    result_files.c.benchmark_id == bindparam("id"), result_files.c.attempt == bindparam("number")
)


class SqlUsage(UsageCounts):
    """`UsageCounts` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def lock(self, user_id: str) -> None:
        if self._tx.locks:
            self._tx.insert(user_usage, {"user_id": user_id, "stored_bytes": 0})
            self._tx.rows(_LOCK, {"user_id": user_id})

    def stored_bytes(self, user_id: str) -> int:
        self._tx.count_names()
        return cast("int | None", self._tx.value(_BYTES, {"user_id": user_id})) or 0

    def files(self, user_id: str) -> int:
        return self._counted(_FILES, user_id)

    def pending(self, user_id: str) -> int:
        return self._counted(_PENDING, user_id)

    def live(self, user_id: str) -> int:
        return self._counted(_ALL_LIVE, user_id)

    def bookings(self, user_id: str, now: datetime) -> int:
        return cast(int, self._tx.value(_BOOKINGS, {"user_id": user_id, "now": now}))

    def schedules(self, user_id: str) -> int:
        return self._counted(_SCHEDULES, user_id)

    def tokens(self, user_id: str, now: datetime) -> int:
        return cast(int, self._tx.value(_TOKENS, {"user_id": user_id, "now": now}))

    def run(self, benchmark_id: str, attempt: int) -> tuple[int, int]:
        row = self._tx.row(_RUN, {"id": benchmark_id, "number": attempt})
        assert row is not None
        return cast(int, row["files"]), int(cast(int, row["size"]))

    def of(self, user_id: str, now: datetime) -> Usage:
        return Usage(
            user_id=user_id,
            stored_bytes=self.stored_bytes(user_id),
            files=self.files(user_id),
            pending=self.pending(user_id),
            live=self.live(user_id),
            bookings=self.bookings(user_id, now),
            schedules=self.schedules(user_id),
            tokens=self.tokens(user_id, now),
        )

    def all(self, now: datetime) -> Sequence[Usage]:
        ids = self._tx.rows(select(users.c.user_id).order_by(users.c.user_id))
        return [self.of(cast(str, row["user_id"]), now) for row in ids]

    def _counted(self, query: Select[Any], user_id: str) -> int:
        return cast(int, self._tx.value(query, {"user_id": user_id}))
