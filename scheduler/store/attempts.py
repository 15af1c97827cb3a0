"""Attempts, and what they led to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import bindparam, select, text, update

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model.attempt import ATTEMPT_MOVES, Attempt, AttemptState, Outcome
from edgeyard.scheduler.store.rows import attempt_of, attempt_row, flat_row
from edgeyard.scheduler.store.tables import LIVE_STATES, attempts, outcomes
from edgeyard.scheduler.store.transaction import Transaction

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
_OF = select(attempts).where(attempts.c.benchmark_id == bindparam("id")).order_by(attempts.c.number)
_LIVE = select(attempts).where(text(LIVE_STATES)).order_by(attempts.c.created_at)
_BY_JOB = select(attempts).where(attempts.c.job_id == bindparam("job"))


class SqlAttempts:
    """`edgeyard.scheduler.ports.Attempts` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add(self, attempt: Attempt) -> None:
        """Store a new one.

        Raises:
            Conflict: (benchmark, number) or the job's id is taken, or another one is live.
        """
        if not self._tx.insert(attempts, attempt_row(attempt)):
            raise Conflict(
                f"attempt {attempt.number} of benchmark {attempt.benchmark_id} is already there, "
                "or another one is live"
            )

    def save(self, attempt: Attempt) -> Attempt:
        """Replace it if its ``version`` is the stored one; returns it with the next version.

        Raises:
            NotFound: It was never stored.
            Conflict: Somebody changed it meanwhile, or the move of its state is not allowed.
        """
        name = f"{attempt.benchmark_id}/{attempt.number}"
        key = {"id": attempt.benchmark_id, "n": attempt.number}
        stored = self._tx.row(_STATE, key)
        if stored is None:
            raise NotFound("attempt", name)
        was = AttemptState(cast(str, stored["state"]))
        if stored["version"] != attempt.version:
            raise Conflict(f"attempt {name} was changed meanwhile")
        if attempt.state is not was and attempt.state not in ATTEMPT_MOVES[was]:
            raise Conflict(f"attempt {name} is {was} and can't become {attempt.state}")
        saved = replace(attempt, version=attempt.version + 1)
        row = {n: v for n, v in attempt_row(saved).items() if n not in _KEY}
        self._tx.run(_SAVE, {**row, **key, "was": attempt.version})
        return saved

    def of(self, benchmark_id: str) -> Sequence[Attempt]:
        """In order of number."""
        return [attempt_of(row) for row in self._tx.rows(_OF, {"id": benchmark_id})]

    def live(self) -> Sequence[Attempt]:
        """All that have not ended, oldest first; reads their index only."""
        return [attempt_of(row) for row in self._tx.rows(_LIVE)]

    def by_job_id(self, job_id: str) -> Attempt:
        """The attempt that a job was made for.

        Raises:
            NotFound: No job of ours has this id.
        """
        row = self._tx.row(_BY_JOB, {"job": job_id})
        if row is None:
            raise NotFound("job", job_id)
        return attempt_of(row)

    def add_outcome(self, outcome: Outcome) -> None:
        """Keep what an attempt led to; the first one stays."""
        self._tx.insert(outcomes, flat_row(outcome))

    def outcomes(
        self, *, since: datetime | None = None, newest: int | None = None
    ) -> Sequence[Outcome]:
        """Oldest first; those that ended at ``since`` are among them."""
        query = select(outcomes).order_by(
            outcomes.c.ended_at.desc(), outcomes.c.benchmark_id.desc()
        )
        if since is not None:
            query = query.where(outcomes.c.ended_at >= since)
        if newest is not None:
            query = query.limit(newest)
        rows = list(self._tx.rows(query))[::-1]
        return [Outcome(**cast("dict[str, Any]", dict(row))) for row in rows]


if TYPE_CHECKING:
    from edgeyard.scheduler.ports import Attempts

    _: Attempts = SqlAttempts(cast(Transaction, None))
