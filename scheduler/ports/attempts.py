"""The repository of attempts and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.attempt import Attempt, Outcome
from edgeyard.scheduler.model.history import PastRunColumns


class Attempts(Protocol):
    """Dispatches."""

    def add_all(self, new: Sequence[Attempt]) -> Sequence[Attempt]:
        """Store new ones; returns those that could be.

        Left out is whose (benchmark, number) or job's id is taken, or whose benchmark has another
        one that is live.
        """
        ...

    def save(self, attempt: Attempt) -> Attempt:
        """As `Benchmarks.save`, with `ATTEMPT_MOVES`."""
        ...

    def save_all(self, changed: Sequence[Attempt]) -> Sequence[Attempt]:
        """As `save`, for attempts that are to be in one state; after a Conflict keep none of it."""
        ...

    def of(self, benchmark_id: str) -> Sequence[Attempt]:
        """In order of number."""
        ...

    def last_numbers(self, benchmark_ids: Sequence[str]) -> Mapping[str, int]:
        """Number of the last attempt of each of these benchmarks that had one."""
        ...

    def live(self, job_ids: Sequence[str] | None = None) -> Sequence[Attempt]:
        """All that have not ended, oldest first; those of these jobs only, where some are named."""
        ...

    def live_versions(self) -> Mapping[str, int]:
        """Job id to version of every attempt that has not ended; cheap, for caches."""
        ...

    def holders(self) -> Mapping[str, str]:
        """Which benchmark holds each board that a live attempt is bound to."""
        ...

    def progress(self) -> Mapping[str, float]:
        """Job id to progress of every attempt that runs; no version changes with it."""
        ...

    def by_job_id(self, job_id: str) -> Attempt:
        """Raises NotFound."""
        ...

    def is_empty(self) -> bool:
        """Whether this store has never seen an attempt: it is new, or its data was lost."""
        ...

    def add_outcome(self, outcome: Outcome) -> None:
        """Keep it; idempotent by (benchmark, attempt). Numbered when the unit of work commits."""
        ...

    def replace_outcome(self, outcome: Outcome) -> None:
        """Keep what an attempt led to after all, in place of what was learned too early.

        The earlier one stays stored for cycles that were decided with it, and counts no longer.
        """
        ...

    def outcomes(self, *, since: datetime | None = None) -> Sequence[Outcome]:
        """Oldest first; those that ended at ``since`` are among them."""
        ...

    def outcomes_after(self, seq: int, *, newest: int) -> Sequence[Outcome]:
        """Those of higher numbers, in their order: the newest up to that many.

        None of a lower number is committed later.
        """
        ...

    def past_runs_after(self, seq: int, *, newest: int) -> PastRunColumns:
        """As `outcomes_after`, in columns, and only those whose board is known."""
        ...
