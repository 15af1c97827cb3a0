"""What was used in a month, added up by the database; the times and states of boards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import (
    Column,
    and_,
    case,
    exists,
    func,
    literal,
    select,
    text,
    true,
)

from edgeyard.scheduler.model.accounting import BoardMonth, UsageBy, UsageRow, month_bounds
from edgeyard.scheduler.model.accounts import ChargeKind
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.model.boards import BoardStateChange
from edgeyard.scheduler.ports import Accounting
from edgeyard.scheduler.store.rows import Row, flat_row
from edgeyard.scheduler.store.tables import (
    IS_OF_EDGEYARD,
    board_months,
    board_states,
    charges,
    idle_times,
)
from edgeyard.scheduler.store.transaction import Transaction

_KEYS: dict[UsageBy, tuple[Column[str], Column[str] | None]] = {
    UsageBy.USER: (charges.c.user_id, idle_times.c.user_id),
    UsageBy.GROUP: (charges.c.group_id, idle_times.c.group_id),
    UsageBy.BOARD: (charges.c.target_uid, None),
    UsageBy.FAMILY: (charges.c.family, idle_times.c.family),
    UsageBy.ENGINE: (charges.c.engine, None),
    UsageBy.KIND: (charges.c.kind, None),
}
"""Column of attempts, and that of idle times; None: a booking or lease has no such thing."""

_EARLIER = charges.alias("earlier")
_STARTED = charges.c.wait_s.is_not(None)
_FIRST_START = and_(
    _STARTED,
    ~exists().where(
        _EARLIER.c.benchmark_id == charges.c.benchmark_id,
        _EARLIER.c.attempt < charges.c.attempt,
        _EARLIER.c.wait_s.is_not(None),
    ),
)
"""A benchmark waits once: a retry's time since submission holds the run before it."""

_PREEMPTED = charges.c.failure.in_(
    [FailureCategory.PREEMPTED.value, FailureCategory.PREEMPTED_TOO_OFTEN.value]
)
_INTERRUPTED = charges.c.failure == FailureCategory.CLUSTER.value
_FAILED = and_(charges.c.failure.is_not(None), ~_PREEMPTED, ~_INTERRUPTED)


def _count_where(condition: Any) -> Any:
    return func.sum(case((condition, 1), else_=0))


_SUMS = (
    _count_where(_STARTED).label("runs"),
    _count_where(and_(_STARTED, _FAILED)).label("failures"),
    _count_where(and_(_STARTED, _PREEMPTED)).label("preempted"),
    _count_where(and_(_STARTED, _INTERRUPTED)).label("interrupted"),
    _count_where(~_STARTED).label("not_started"),
    func.sum(charges.c.board_s).label("board_s"),
    _count_where(_FIRST_START).label("starts"),
    func.sum(case((_FIRST_START, charges.c.wait_s), else_=0.0)).label("wait_s"),
    func.max(case((_FIRST_START, charges.c.wait_s))).label("max_wait_s"),
    func.sum(charges.c.charged).label("credits"),
    func.sum(charges.c.joules).label("joules"),
    func.count(charges.c.joules).label("joules_runs"),
)


class SqlAccounting(Accounting):
    """`Accounting` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def usage(self, by: UsageBy, month: str, *, user_id: str | None = None) -> Sequence[UsageRow]:
        since, until = month_bounds(month)
        attempt_key, idle_key = _KEYS[by]
        of_attempts = (
            select(attempt_key.label("key"), *_SUMS)
            .where(charges.c.settled_at >= since, charges.c.settled_at < until)
            .where(true() if user_id is None else charges.c.user_id == user_id)
            .group_by(attempt_key)
        )
        kept_idle = (
            select(
                (literal(None) if idle_key is None else idle_key).label("key"),
                func.sum(idle_times.c.board_s).label("idle_board_s"),
                func.sum(idle_times.c.charged).label("credits"),
                func.count().label("rows"),
            )
            .where(idle_times.c.month == month)
            .where(true() if user_id is None else idle_times.c.user_id == user_id)
        )
        if idle_key is not None:
            kept_idle = kept_idle.group_by(idle_key)
        found = {row["key"]: _attempts_row(row) for row in self._tx.rows(of_attempts)}
        for row in self._tx.rows(kept_idle):
            if row["rows"]:
                key = cast("str | None", row["key"])
                idle = UsageRow(
                    key=key,
                    idle_board_s=float(cast(float, row["idle_board_s"])),
                    credits=float(cast(float, row["credits"])),
                )
                found[key] = found.get(key, UsageRow(key=key)).plus(idle, key)
        return sorted(found.values(), key=lambda each: (each.key is None, each.key or ""))

    def board_s_by_user(
        self, kind: ChargeKind, target_uid: str, since: datetime
    ) -> Mapping[str, float]:
        query = (
            select(charges.c.user_id, func.sum(charges.c.board_s).label("board_s"))
            .where(
                text(IS_OF_EDGEYARD),
                charges.c.kind == kind.value,
                charges.c.target_uid == target_uid,
                charges.c.settled_at >= since,
            )
            .group_by(charges.c.user_id)
        )
        return {
            cast(str, row["user_id"]): float(cast("float | None", row["board_s"]) or 0.0)
            for row in self._tx.rows(query)
        }

    def add_board_months(self, times: Sequence[BoardMonth]) -> None:
        for each in times:
            row = self._tx.row(
                select(board_months)
                .where(
                    board_months.c.target_uid == each.target_uid,
                    board_months.c.month == each.month,
                )
                .with_for_update()
            )
            summed = flat_row(each)
            if row is not None:
                for name in ("busy_s", "idle_s", "down_s"):
                    summed[name] = cast(float, row[name]) + getattr(each, name)
            self._tx.replace(board_months, summed)

    def board_months(self, month: str) -> Sequence[BoardMonth]:
        rows = self._tx.rows(
            select(board_months).where(board_months.c.month == month).order_by("target_uid")
        )
        return [_board_month(row) for row in rows]

    def months_of_board(self, target_uid: str, *, limit: int) -> Sequence[BoardMonth]:
        rows = self._tx.rows(
            select(board_months)
            .where(board_months.c.target_uid == target_uid)
            .order_by(board_months.c.month.desc())
            .limit(limit)
        )
        return [_board_month(row) for row in rows]

    def add_board_states(self, changes: Sequence[BoardStateChange]) -> None:
        for each in changes:
            newest = self.board_states(each.target_uid, limit=1)
            if not newest or (newest[0].state, newest[0].benchmark_id) != (
                each.state,
                each.benchmark_id,
            ):
                self._tx.replace(board_states, flat_row(each))

    def board_states(
        self, target_uid: str, *, limit: int, before: datetime | None = None
    ) -> Sequence[BoardStateChange]:
        rows = self._tx.rows(
            select(board_states)
            .where(board_states.c.target_uid == target_uid)
            .where(true() if before is None else board_states.c.at < before)
            .order_by(board_states.c.at.desc())
            .limit(limit)
        )
        return [BoardStateChange(**cast("dict[str, Any]", dict(row))) for row in rows]


def _board_month(row: Row) -> BoardMonth:
    return BoardMonth(**cast("dict[str, Any]", dict(row)))


def _attempts_row(row: Row) -> UsageRow:
    """Return a row of sums: those of PostgreSQL are of several types of numbers."""
    values = cast("dict[str, Any]", dict(row))
    whole = (
        "runs", "failures", "preempted", "interrupted", "not_started", "starts", "joules_runs"
    )  # fmt: skip
    return UsageRow(
        key=values["key"],
        **{name: int(values[name]) for name in whole},
        board_s=float(values["board_s"] or 0.0),
        wait_s=float(values["wait_s"] or 0.0),
        max_wait_s=None if values["max_wait_s"] is None else float(values["max_wait_s"]),
        credits=float(values["credits"] or 0.0),
        joules=None if values["joules"] is None else float(values["joules"]),
    )
