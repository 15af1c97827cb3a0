"""The repository of attempts and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.attempt import Attempt, Outcome
from edgeyard.scheduler.model.history import PastRunColumns, RepeatedNumber


class Attempts(Protocol):
    """Stores attempts and their outcomes.

    A unit of work that writes locks the benchmark of each attempt that it reads or changes.
    """

    def add_all(self, new: Sequence[Attempt]) -> Sequence[Attempt]:
        """Store new attempts; return those that were stored.

        An attempt is left out if its (benchmark, number) or its job id is taken, or if its
        benchmark has another live attempt.
        """
        ...

    def save(self, attempt: Attempt) -> Attempt:
        """Store a changed attempt if its ``version`` is the stored one.

        Returns:
            The attempt with the next version.

        Raises:
            NotFound: It was never stored.
            ConcurrentUpdate: Another transaction has changed it.
            Conflict: `ATTEMPT_MOVES` does not allow its new state.
        """
        ...

    def save_all(self, changed: Sequence[Attempt]) -> Sequence[Attempt]:
        """Store attempts that are all in one state, in one statement.

        Raises:
            ConcurrentUpdate: Another transaction has changed one of them, or one may not change so;
                roll back.
        """
        ...

    def of(self, benchmark_id: str) -> Sequence[Attempt]:
        """Return the attempts of a benchmark, in order of number."""
        ...

    def last_numbers(self, benchmark_ids: Sequence[str]) -> Mapping[str, int]:
        """Return the number of the last attempt of each of these benchmarks that has one."""
        ...

    def live(self, job_ids: Sequence[str] | None = None) -> Sequence[Attempt]:
        """Return attempts that have not ended, oldest first.

        Args:
            job_ids: Only attempts of these jobs, which are locked; None: all of them, without lock.
        """
        ...

    def live_versions(self) -> Mapping[str, int]:
        """Return the version of every live attempt by job id; cheap enough to validate caches."""
        ...

    def holders(self) -> Mapping[str, str]:
        """Return the id of the benchmark that holds each board to which a live attempt is bound."""
        ...

    def progress(self) -> Mapping[str, float]:
        """Return the progress of every running attempt by job id; it does not change versions."""
        ...

    def by_job_id(self, job_id: str) -> Attempt:
        """Return the attempt of a job.

        Raises:
            NotFound: No attempt has this job id.
        """
        ...

    def is_empty(self) -> bool:
        """Return whether this store never had an attempt: it is new, or its data was lost."""
        ...

    def add_outcome(self, outcome: Outcome) -> None:
        """Store the outcome of an attempt unless it has one; the commit numbers it."""
        ...

    def replace_outcome(self, outcome: Outcome) -> None:
        """Store the final outcome of an attempt whose outcome was recorded too early.

        The earlier one no longer counts, but stays stored for cycles that were decided with it.
        """
        ...

    def outcomes(self, *, since: datetime | None = None) -> Sequence[Outcome]:
        """Return outcomes that count, oldest first, of attempts that ended from ``since`` on.

        Outcomes of canaries are left out here and in the methods below: no decision learns from
        them.
        """
        ...

    def repeated_numbers(
        self, *, newest: int, target_uid: str | None = None, family: str | None = None
    ) -> Sequence[RepeatedNumber]:
        """Return the newest comparable numbers of a board or a family's boards, oldest first."""
        ...

    def past_runs_after(self, seq: int, *, newest: int) -> PastRunColumns:
        """Return the newest outcomes above number ``seq``, at most ``newest``, in their order.

        Those whose board is unknown are left out. No outcome with a lower number is committed
        later.
        """
        ...
