"""Attempts, and what they led to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import cast

from sqlalchemy import bindparam, exists, func, literal_column, or_, select, text, update

from edgeyard.errors import ConcurrentUpdate, Conflict, NotFound
from edgeyard.scheduler.model.attempt import ATTEMPT_MOVES, Attempt, AttemptState, Outcome
from edgeyard.scheduler.model.history import PastRunColumns, RepeatedNumber
from edgeyard.scheduler.ports import Attempts
from edgeyard.scheduler.store.progress import ProgressBuffer
from edgeyard.scheduler.store.rows import (
    NOT_OF_CANARIES,
    PAST_RUN_COLUMNS,
    Row,
    attempt_of,
    attempt_row,
    flat_row,
    outcome_of,
    past_runs_of,
    repeated_number_of,
)
from edgeyard.scheduler.store.tables import IS_REPEATABLE, LIVE_STATES, attempts, outcomes
from edgeyard.scheduler.store.transaction import Transaction, among

_KEY = ("benchmark_id", "number")
_STATE = (
    select(attempts.c.state, attempts.c.version, attempts.c.job_id)
    .where(attempts.c.benchmark_id == bindparam("id"), attempts.c.number == bindparam("n"))
    .with_for_update()
)
_SAVE = (
    update(attempts)
    .where(
        attempts.c.benchmark_id == bindparam("id"),
        attempts.c.number == bindparam("n"),
        attempts.c.version == bindparam("was"),
    )
    .values({c.name: bindparam(c.name) for c in attempts.c if c.name not in _KEY})
)
# One statement checks and writes: what else was there is only asked for where it did not.
_SAVE_AS = {
    state: _SAVE.where(
        or_(
            *(
                attempts.c.state == was.value
                for was, moves in ATTEMPT_MOVES.items()
                if state in moves or was is state
            )
        )
    )
    for state in AttemptState
}
_OF = select(attempts).where(attempts.c.benchmark_id == bindparam("id")).order_by(attempts.c.number)
_LAST_NUMBERS = (
    select(attempts.c.benchmark_id, func.max(attempts.c.number).label("last"))
    .where(among(attempts.c.benchmark_id))
    .group_by(attempts.c.benchmark_id)
)
_LIVE = (
    select(attempts)
    .where(text(LIVE_STATES))
    .order_by(attempts.c.created_at, attempts.c.benchmark_id, attempts.c.number)
)
_LIVE_OF = _LIVE.where(among(attempts.c.job_id))
_LIVE_VERSIONS = select(attempts.c.job_id, attempts.c.version).where(text(LIVE_STATES))
_RUNNING = select(
    attempts.c.job_id,
    attempts.c.benchmark_id,
    attempts.c.number,
    attempts.c.phase,
    attempts.c.progress,
).where(text(LIVE_STATES), attempts.c.state == AttemptState.RUNNING.value)
_HOLDERS = select(attempts.c.target_uid, attempts.c.benchmark_id).where(
    text(LIVE_STATES), attempts.c.target_uid.is_not(None)
)
_ANY = select(attempts.c.number).limit(1)
_LATER = outcomes.alias()
_COUNTS = ~exists().where(
    _LATER.c.replaces == outcomes.c.seq, _LATER.c.replaces > literal_column("0")
)
"""Whether an outcome was not replaced by a later one of the same attempt."""

_LAST_OUTCOME = (
    select(outcomes.c.seq)
    .where(outcomes.c.benchmark_id == bindparam("id"), outcomes.c.attempt == bindparam("n"))
    .order_by(outcomes.c.seq.desc())
    .limit(1)
)
_RUNS_AFTER = (
    select(*PAST_RUN_COLUMNS)
    .where(outcomes.c.seq > bindparam("after"), outcomes.c.target_uid.is_not(None), NOT_OF_CANARIES)
    .order_by(outcomes.c.seq.desc())
    .limit(bindparam("newest"))
)
_REPEATED = (
    select(
        outcomes.c.benchmark_id,
        outcomes.c.target_uid,
        outcomes.c.workload,
        outcomes.c.primary_value,
        outcomes.c.primary_error,
    )
    .where(text(IS_REPEATABLE), NOT_OF_CANARIES)
    .order_by(outcomes.c.seq.desc())
    .limit(bindparam("newest"))
)
_REPEATED_OF_BOARD = _REPEATED.where(outcomes.c.target_uid == bindparam("uid"))
_REPEATED_OF_FAMILY = _REPEATED.where(outcomes.c.family == bindparam("family"))
_BY_JOB = select(attempts).where(attempts.c.job_id == bindparam("job"))
_OWNERS = select(attempts.c.benchmark_id).where(among(attempts.c.job_id))


class SqlAttempts(Attempts):
    """`Attempts` in SQL.

    In a unit of work that writes, reading or changing an attempt locks its benchmark.
    """

    def __init__(self, tx: Transaction, progress: ProgressBuffer) -> None:
        self._tx = tx
        self._progress = progress

    def add_all(self, new: Sequence[Attempt]) -> Sequence[Attempt]:
        self._tx.lock(attempt.benchmark_id for attempt in new)
        added = self._tx.insert_each(attempts, [attempt_row(attempt) for attempt in new])
        return [attempt for attempt in new if (attempt.benchmark_id, attempt.number) in added]

    def save(self, attempt: Attempt) -> Attempt:
        self._tx.lock([attempt.benchmark_id])
        key = {"id": attempt.benchmark_id, "n": attempt.number}
        saved = replace(attempt, version=attempt.version + 1)
        row = {n: v for n, v in attempt_row(saved).items() if n not in _KEY}
        done = self._tx.run(_SAVE_AS[attempt.state], {**row, **key, "was": attempt.version})
        if not done.rowcount:
            raise self._save_error(attempt)
        return saved

    def save_all(self, changed: Sequence[Attempt]) -> Sequence[Attempt]:
        if not changed:
            return ()
        self._tx.lock(attempt.benchmark_id for attempt in changed)
        saved = [replace(attempt, version=attempt.version + 1) for attempt in changed]
        rows = [
            {
                **{n: v for n, v in attempt_row(attempt).items() if n not in _KEY},
                "id": attempt.benchmark_id,
                "n": attempt.number,
                "was": attempt.version - 1,
            }
            for attempt in saved
        ]
        (state,) = {attempt.state for attempt in changed}
        if self._tx.run(_SAVE_AS[state], rows).rowcount != len(rows):
            raise ConcurrentUpdate(f"one of {len(rows)} attempts can't become {state}")
        return saved

    def _save_error(self, attempt: Attempt) -> Exception:
        name = f"{attempt.benchmark_id}/{attempt.number}"
        stored = self._tx.row(_STATE, {"id": attempt.benchmark_id, "n": attempt.number})
        if stored is None:
            return NotFound("attempt", name)
        if stored["version"] != attempt.version:
            return ConcurrentUpdate(f"attempt {name} was changed by another request")
        return Conflict(f"attempt {name} is {stored['state']} and can't become {attempt.state}")

    def of(self, benchmark_id: str) -> Sequence[Attempt]:
        self._tx.lock([benchmark_id])
        return [self._read(row) for row in self._tx.rows(_OF, {"id": benchmark_id})]

    def last_numbers(self, benchmark_ids: Sequence[str]) -> Mapping[str, int]:
        return {
            cast(str, row["benchmark_id"]): cast(int, row["last"])
            for row in self._tx.rows_of(_LAST_NUMBERS, benchmark_ids)
        }

    def live(self, job_ids: Sequence[str] | None = None) -> Sequence[Attempt]:
        if job_ids is None:
            return [self._read(row) for row in self._tx.rows(_LIVE)]
        self._lock_owners(job_ids)
        found = [self._read(row) for row in self._tx.rows_of(_LIVE_OF, job_ids)]
        return sorted(found, key=lambda each: (each.created_at, each.benchmark_id, each.number))

    def live_versions(self) -> Mapping[str, int]:
        return {
            cast(str, row["job_id"]): cast(int, row["version"])
            for row in self._tx.rows(_LIVE_VERSIONS)
        }

    def holders(self) -> Mapping[str, str]:
        return {
            cast(str, row["target_uid"]): cast(str, row["benchmark_id"])
            for row in self._tx.rows(_HOLDERS)
        }

    def by_job_id(self, job_id: str) -> Attempt:
        self._lock_owners([job_id])
        row = self._tx.row(_BY_JOB, {"job": job_id})
        if row is None:
            raise NotFound("job", job_id)
        return self._read(row)

    def _lock_owners(self, job_ids: Sequence[str]) -> None:
        if not self._tx.locks:
            return
        owners = self._tx.rows_of(_OWNERS, job_ids)
        self._tx.lock(cast(str, row["benchmark_id"]) for row in owners)

    def is_empty(self) -> bool:
        return self._tx.row(_ANY) is None

    def progress(self) -> Mapping[str, float]:
        rows = self._tx.rows(_RUNNING)
        running = (self._newest_progress(row) for row in rows)
        return {job_id: reached for job_id, reached in running if reached is not None}

    def _newest_progress(self, row: Row) -> tuple[str, float | None]:
        newest = self._progress.of(cast(str, row["benchmark_id"]))
        same = newest is not None and (newest.number, newest.phase) == (row["number"], row["phase"])
        reached = newest.progress if newest is not None and same else row["progress"]
        return cast(str, row["job_id"]), cast("float | None", reached)

    def _read(self, row: Row) -> Attempt:
        return self._progress.on_attempt(attempt_of(row))

    def add_outcome(self, outcome: Outcome) -> None:
        self._tx.add_outcome(flat_row(outcome))

    def replace_outcome(self, outcome: Outcome) -> None:
        key = {"id": outcome.benchmark_id, "n": outcome.attempt}
        replaced = self._tx.row(_LAST_OUTCOME, key)
        seq = 0 if replaced is None else cast(int, replaced["seq"])
        self._tx.add_outcome(flat_row(replace(outcome, replaces=seq)))

    def outcomes(self, *, since: datetime | None = None) -> Sequence[Outcome]:
        query = (
            select(outcomes)
            .where(_COUNTS, NOT_OF_CANARIES)
            .order_by(outcomes.c.ended_at, outcomes.c.seq)
        )
        if since is not None:
            query = query.where(outcomes.c.ended_at >= since)
        return [outcome_of(row) for row in self._tx.rows(query)]

    def repeated_numbers(
        self, *, newest: int, target_uid: str | None = None, family: str | None = None
    ) -> Sequence[RepeatedNumber]:
        if target_uid is not None:
            rows = self._tx.rows(_REPEATED_OF_BOARD, {"uid": target_uid, "newest": newest})
        else:
            rows = self._tx.rows(_REPEATED_OF_FAMILY, {"family": family, "newest": newest})
        return [repeated_number_of(row) for row in reversed(rows)]

    def past_runs_after(self, seq: int, *, newest: int) -> PastRunColumns:
        columns = self._tx.columns(_RUNS_AFTER, {"after": seq, "newest": newest})
        for column in columns:
            column.reverse()
        return past_runs_of(columns)
