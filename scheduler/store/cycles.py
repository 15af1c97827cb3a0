"""Recorded cycles. Parts are stored by content, so that cycles share them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import cast

from sqlalchemy import Select, bindparam, func, insert, select

from edgeyard.errors import NotFound
from edgeyard.scheduler.model.cycle_record import CycleHead, CycleRecord
from edgeyard.scheduler.model.history import History, PastRunColumns
from edgeyard.scheduler.ports import Cycles
from edgeyard.scheduler.store.rows import NOT_OF_CANARIES, PAST_RUN_COLUMNS, past_runs_of
from edgeyard.scheduler.store.tables import (
    cycle_parts,
    cycles,
    explanations,
    outcomes,
    part_contents,
)
from edgeyard.scheduler.store.transaction import Transaction, among

_MAX_RUNS_HELD = 400_000  # some 100 bytes each
PARTS_LOCK = 0x70617274  # any number that nothing else locks in our database

_STORED = select(part_contents.c.sha256).where(among(part_contents.c.sha256))
_RUNS = (
    select(*PAST_RUN_COLUMNS)
    .where(
        outcomes.c.seq.between(bindparam("first"), bindparam("last")),
        outcomes.c.target_uid.is_not(None),
        NOT_OF_CANARIES,
    )
    .order_by(outcomes.c.seq)
)
_HEAD = [each for each in cycles.c if not each.name.startswith("runs_")]
_ADD = insert(cycles).returning(cycles.c.seq)


class RunCache:
    """Past runs that recorded cycles refer to, read once for many cycles. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._history = History()

    def between(self, tx: Transaction, first: int, last: int) -> History:
        """Return the runs from number ``first`` to ``last``."""
        with self._lock:
            seqs = self._history.columns.seqs
            if not len(seqs) or not seqs[0] <= first <= seqs[-1]:
                self._history = History(_runs(tx, first, last))
            elif last > seqs[-1]:
                new = _runs(tx, int(seqs[-1]) + 1, last)
                self._history = self._history.extended(new, max_runs=_MAX_RUNS_HELD)
            return self._history.between(first, last)


def _runs(tx: Transaction, first: int, last: int) -> PastRunColumns:
    return past_runs_of(tx.columns(_RUNS, {"first": first, "last": last}))


class SqlCycles(Cycles):
    """`Cycles` in SQL."""

    def __init__(self, tx: Transaction, runs: RunCache) -> None:
        self._tx = tx
        self._runs = runs

    def add(self, record: CycleRecord, *, shadow_of: int | None = None) -> int:
        if self._tx.dialect == "postgresql":
            # Pruning must not remove a part that this cycle is about to use.
            self._tx.run(select(func.pg_advisory_xact_lock(PARTS_LOCK)))
        contents = {hashlib.sha256(data).hexdigest(): data for _, data in record.parts}
        stored = self._tx.rows(_STORED, {"ids": list(contents)})
        missing = sorted(contents.keys() - {cast(str, row["sha256"]) for row in stored})
        if missing:
            self._tx.insert_all(
                part_contents,
                [{"sha256": sha256, "data": contents[sha256]} for sha256 in missing],
            )
        seqs = record.runs.columns.seqs
        head = {
            "decided_at": record.decided_at,
            "policy": record.policy,
            "digest": record.digest,
            "shadow_of": shadow_of,
            "size_bytes": sum(len(data) for _, data in record.parts),
            "runs_first": int(seqs[0]) if len(seqs) else None,
            "runs_last": int(seqs[-1]) if len(seqs) else None,
        }
        seq = cast(int, self._tx.run(_ADD, head).rows[0]["seq"])
        self._tx.insert_all(
            cycle_parts,
            [
                {
                    "seq": seq,
                    "place": place,
                    "name": name,
                    "sha256": hashlib.sha256(data).hexdigest(),
                }
                for place, (name, data) in enumerate(record.parts)
            ],
        )
        return seq

    def get(self, seq: int) -> CycleRecord:
        head = self._tx.row(select(cycles).where(cycles.c.seq == seq))
        if head is None:
            raise NotFound("cycle", str(seq))
        parts = self._tx.rows(
            select(cycle_parts.c.name, part_contents.c.data)
            .join(part_contents, part_contents.c.sha256 == cycle_parts.c.sha256)
            .where(cycle_parts.c.seq == seq)
            .order_by(cycle_parts.c.place)
        )
        first, last = cast("int | None", head["runs_first"]), cast("int | None", head["runs_last"])
        return CycleRecord(
            decided_at=cast(datetime, head["decided_at"]),
            policy=cast(str, head["policy"]),
            parts=tuple((cast(str, row["name"]), cast(bytes, row["data"])) for row in parts),
            runs=History()
            if first is None or last is None
            else self._runs.between(self._tx, first, last),
        )

    def page(
        self,
        *,
        after: int = 0,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int,
        shadows: bool = False,
    ) -> Sequence[CycleHead]:
        wanted = _within(since, until).where(cycles.c.seq > after)
        if not shadows:
            wanted = wanted.where(cycles.c.shadow_of.is_(None))
        rows = self._tx.rows(wanted.order_by(cycles.c.seq).limit(limit))
        return [CycleHead(**row) for row in rows]  # type: ignore[arg-type]

    def shadows(
        self, *, since: datetime | None, until: datetime | None, limit: int
    ) -> Sequence[CycleHead]:
        wanted = _within(since, until).where(cycles.c.shadow_of.is_not(None))
        rows = self._tx.rows(wanted.order_by(cycles.c.seq.desc()).limit(limit))
        return [CycleHead(**row) for row in rows]  # type: ignore[arg-type]

    def newest(self, *, since: int, limit: int) -> Sequence[CycleHead]:
        wanted = select(*_HEAD).where(cycles.c.seq >= since, cycles.c.shadow_of.is_(None))
        rows = self._tx.rows(wanted.order_by(cycles.c.seq.desc()).limit(limit))
        return [CycleHead(**row) for row in rows]  # type: ignore[arg-type]

    def explain(self, benchmark_id: str, seq: int) -> None:
        self._tx.add_explanation({"benchmark_id": benchmark_id, "seq": seq})

    def explaining_cycle(self, benchmark_id: str) -> int:
        row = self._tx.row(select(explanations).where(explanations.c.benchmark_id == benchmark_id))
        if row is None:
            raise NotFound(
                "explanation",
                benchmark_id,
                f"no explanation of {benchmark_id!r}: no cycle has considered it yet, "
                "or the cycle that did is too old and was pruned",
            )
        return cast(int, row["seq"])


def _within(since: datetime | None, until: datetime | None) -> Select[tuple[object, ...]]:
    wanted: Select[tuple[object, ...]] = select(*_HEAD)
    if since is not None:
        wanted = wanted.where(cycles.c.decided_at >= since)
    if until is not None:
        wanted = wanted.where(cycles.c.decided_at < until)
    return wanted
