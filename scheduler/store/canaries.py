"""What the canaries of boards depend on, in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from sqlalchemy import select

from edgeyard.scheduler.model.canaries import CanaryBoard
from edgeyard.scheduler.ports.boards import Canaries
from edgeyard.scheduler.store.rows import Row, flat_row
from edgeyard.scheduler.store.tables import canary_boards
from edgeyard.scheduler.store.transaction import Transaction


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


def _board(row: Row) -> CanaryBoard:
    measured = json.loads(cast(str, row["measured"]))
    columns: dict[str, Any] = {
        **row,
        "facts": json.loads(cast(str, row["facts"])),
        "measured": {name: datetime.fromisoformat(at) for name, at in measured.items()},
    }
    return CanaryBoard(**columns)
