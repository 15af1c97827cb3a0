"""What the canaries of boards depend on, in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import and_, exists, func, or_, select

from edgeyard.scheduler.model.canaries import CANARY_USER, BoardDrift, CanaryBoard
from edgeyard.scheduler.model.series_changes import (
    ACTIVE_ALERTS,
    UNDECIDED_CHANGES,
    ChangeStatus,
)
from edgeyard.scheduler.ports.boards import Canaries
from edgeyard.scheduler.store.rows import Row, flat_row
from edgeyard.scheduler.store.tables import (
    UtcTime,
    benchmarks,
    canary_boards,
    series_changes,
)
from edgeyard.scheduler.store.transaction import Transaction

_BEGIN = benchmarks.alias()
_ALERT = series_changes.alias()
_BACK = series_changes.alias()
"""The change by which the level was back; it has the alert that it ended, and the same end."""
_BACK_BEGIN = benchmarks.alias()

_SINCE = func.coalesce(
    _BEGIN.c.started_at, _BEGIN.c.ended_at, series_changes.c.found_at, type_=UtcTime
)
_UNTIL = func.coalesce(
    _BACK_BEGIN.c.started_at, _BACK_BEGIN.c.ended_at, series_changes.c.ended_at, type_=UtcTime
)
_HAS_ENDED = and_(
    series_changes.c.confirmed_size.is_not(None),
    or_(
        series_changes.c.status == ChangeStatus.RESOLVED.value,
        and_(  # what an alert was before it was reopened
            series_changes.c.status == ChangeStatus.MERGED.value,
            _ALERT.c.status.in_([ChangeStatus.CONFIRMED.value, ChangeStatus.RESOLVED.value]),
            _ALERT.c.size * series_changes.c.size > 0,
        ),
    ),
)
_DRIFTS = (
    select(
        series_changes.c.target_uid,
        series_changes.c.change_id,
        series_changes.c.lineage,
        func.coalesce(series_changes.c.confirmed_size, series_changes.c.size).label("size"),
        series_changes.c.metric,
        or_(series_changes.c.status == ChangeStatus.CONFIRMED.value, _HAS_ENDED).label("confirmed"),
        _SINCE.label("since"),
        _UNTIL.label("until"),
    )
    .select_from(
        series_changes.outerjoin(_BEGIN, _BEGIN.c.benchmark_id == series_changes.c.begin_id)
        .outerjoin(_ALERT, _ALERT.c.change_id == series_changes.c.alert_id)
        .outerjoin(
            _BACK,
            and_(
                _BACK.c.series_id == series_changes.c.series_id,
                _BACK.c.alert_id
                == func.coalesce(series_changes.c.alert_id, series_changes.c.change_id),
                _BACK.c.ended_at == series_changes.c.ended_at,
                _BACK.c.size * series_changes.c.size < 0,
            ),
        )
        .outerjoin(_BACK_BEGIN, _BACK_BEGIN.c.benchmark_id == _BACK.c.begin_id)
    )
    .where(
        series_changes.c.user_id == CANARY_USER,
        or_(
            series_changes.c.status.in_(
                sorted(each.value for each in UNDECIDED_CHANGES | ACTIVE_ALERTS)
            ),
            _HAS_ENDED,
        ),
    )
)
_drift = _DRIFTS.subquery()

HAS_DRIFTED = and_(
    benchmarks.c.user_id != CANARY_USER,
    exists().where(
        _drift.c.target_uid == benchmarks.c.target_uid,
        benchmarks.c.ended_at >= _drift.c.since,
        or_(
            _drift.c.until.is_(None),
            func.coalesce(benchmarks.c.started_at, benchmarks.c.ended_at) < _drift.c.until,
        ),
    ),
)
"""Whether a benchmark ran on a board while that drifted: see `BoardDrift.covers`."""


class SqlCanaries(Canaries):
    """`Canaries` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def save(self, board: CanaryBoard) -> None:
        measured = {name: at.isoformat() for name, at in board.measured.items()}
        columns = {"facts": json.dumps(dict(board.facts)), "measured": json.dumps(measured)}
        self._tx.replace(canary_boards, {**flat_row(board), **columns})

    def all(self) -> Mapping[str, CanaryBoard]:
        self._tx.lock_table(canary_boards)
        found = map(_board, self._tx.rows(select(canary_boards)))
        return {each.target_uid: each for each in found}

    def drifts(self) -> Sequence[BoardDrift]:
        rows = self._tx.rows(_DRIFTS.order_by(_SINCE, series_changes.c.change_id))
        return [_drift_of(each) for each in rows]


def _drift_of(row: Row) -> BoardDrift:
    columns: dict[str, Any] = {**row, "confirmed": bool(row["confirmed"])}
    return BoardDrift(**columns)


def _board(row: Row) -> CanaryBoard:
    measured = json.loads(cast(str, row["measured"]))
    columns: dict[str, Any] = {
        **row,
        "facts": json.loads(cast(str, row["facts"])),
        "measured": {name: datetime.fromisoformat(at) for name, at in measured.items()},
    }
    return CanaryBoard(**columns)
