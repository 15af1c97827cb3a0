"""What the canaries of boards depend on, in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from sqlalchemy import and_, exists, func, select

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
_SINCE = func.coalesce(
    _BEGIN.c.started_at, _BEGIN.c.ended_at, series_changes.c.found_at, type_=UtcTime
)
_DRIFTS = (
    select(
        series_changes.c.target_uid,
        series_changes.c.change_id,
        series_changes.c.lineage,
        func.coalesce(series_changes.c.confirmed_size, series_changes.c.size).label("size"),
        series_changes.c.metric,
        (series_changes.c.status == ChangeStatus.CONFIRMED.value).label("confirmed"),
        _SINCE.label("since"),
    )
    .select_from(
        series_changes.outerjoin(_BEGIN, _BEGIN.c.benchmark_id == series_changes.c.begin_id)
    )
    .where(
        series_changes.c.user_id == CANARY_USER,
        series_changes.c.status.in_(
            sorted(each.value for each in UNDECIDED_CHANGES | ACTIVE_ALERTS)
        ),
    )
)
_drift = _DRIFTS.subquery()

HAS_DRIFTED = and_(
    benchmarks.c.user_id != CANARY_USER,
    exists().where(
        _drift.c.target_uid == benchmarks.c.target_uid,
        benchmarks.c.ended_at >= _drift.c.since,
    ),
)
"""Whether a benchmark ran on a board that drifts, and ended after the begin of that."""


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

    def drifts(self) -> Mapping[str, BoardDrift]:
        rows = self._tx.rows(_DRIFTS.order_by(_SINCE.desc(), series_changes.c.change_id.desc()))
        return {each.target_uid: each for each in map(_drift_of, rows)}


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
