"""The repository of benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.benchmark import Benchmark, Status, WaitingReason
from edgeyard.scheduler.model.series import SeriesKey


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFilter:
    """Selects benchmarks; None selects any value.

    Attributes:
        verdict: Of a result of an attempt.
        series: Lineage, see `Benchmark.series`.
        submitted_from: Earliest time of submission.
        submitted_before: Times of submission from this one on are left out.
        include_deleted: Whether benchmarks that their users deleted are selected too.
    """

    user_id: str | None = None
    status: frozenset[Status] | None = None
    family: str | None = None
    engine: str | None = None
    benchmark_type: str | None = None
    campaign_id: str | None = None
    target_uid: str | None = None
    model: str | None = None
    verdict: str | None = None
    tag: str | None = None
    name: str | None = None
    schedule_id: str | None = None
    series: str | None = None
    submitted_from: datetime | None = None
    submitted_before: datetime | None = None
    include_deleted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSeries:
    """Completed benchmarks of one series.

    Attributes:
        points: How many there are.
        first_at: End of the oldest.
        last_at: End of the newest.
        member_id: One of them; all measured the same.
    """

    key: SeriesKey
    points: int
    first_at: datetime
    last_at: datetime
    member_id: str


class Benchmarks(Protocol):
    """Stores benchmarks and their descriptions.

    What a user submitted never changes: description, owner, campaign and time of submission are
    written by `add` alone, and files by `add` and `save_files`.
    """

    def add(self, benchmark: Benchmark) -> None:
        """Store a new benchmark.

        Raises:
            Conflict: The id is taken.
        """
        ...

    def move_times(self, by_s: float) -> None:
        """Shift the times of all benchmarks that are live or have a live attempt, and of attempts.

        The server's clock was set by ``by_s`` seconds; ages and durations stay right.
        """
        ...

    def bound_pending(self, max_pending: int) -> None:
        """Let the commit raise QuotaExceeded if more benchmarks than this would be pending."""
        ...

    def lock(self, benchmark_ids: Iterable[str]) -> None:
        """Lock benchmarks and what belongs to them until the end of the unit of work.

        `get` and `save` lock too; call this before changing several.
        """
        ...

    def get(self, benchmark_id: str) -> Benchmark:
        """Return a benchmark; a unit of work that writes locks it until its end.

        Raises:
            NotFound: There is no such benchmark.
        """
        ...

    def save(self, benchmark: Benchmark) -> Benchmark:
        """Store a changed benchmark if its ``version`` is the stored one.

        Returns:
            The benchmark with the next version.

        Raises:
            NotFound: It was never stored.
            ConcurrentUpdate: Another transaction has changed it.
            Conflict: `ALLOWED_MOVES` does not allow its new status.
        """
        ...

    def save_all(self, changed: Sequence[Benchmark], before: Status) -> Sequence[Benchmark]:
        """Store benchmarks that all change from ``before`` to one other status, in one statement.

        Raises:
            ConcurrentUpdate: Another transaction has changed one of them, or one may not change so;
                roll back.
        """
        ...

    def save_waiting(self, changed: Sequence[Benchmark]) -> Sequence[Benchmark]:
        """Store benchmarks whose waiting reason, priority or ``unavailable_since`` alone changed.

        Raises:
            ConcurrentUpdate: Another transaction has changed one of them; roll back.
        """
        ...

    def save_files(self, benchmark: Benchmark) -> Benchmark:
        """Store a changed benchmark as `save` does, and its files."""
        ...

    def unchanged(self, seen: Sequence[Benchmark]) -> frozenset[str]:
        """Return ids of those whose ``version`` is the stored one, and lock all of them."""
        ...

    def live_versions(self) -> Mapping[str, int]:
        """Return the version of every live benchmark by id; cheap enough to validate caches."""
        ...

    def pending_after_losses(self) -> Sequence[str]:
        """Return ids of pending benchmarks whose ``lost_in_a_row`` is not 0."""
        ...

    def get_many(self, benchmark_ids: Sequence[str]) -> Sequence[Benchmark]:
        """Return those that exist, in no particular order, locked as by `get`."""
        ...

    def delete(self, benchmark_id: str, at: datetime) -> None:
        """Hide a benchmark from lists with ``include_deleted=False``.

        Garbage collection removes its data when no run of it is live, retention its record.

        Raises:
            NotFound: It is deleted already.
        """
        ...

    def deleted(self, benchmark_ids: Sequence[str]) -> frozenset[str]:
        """Return those that their users deleted."""
        ...

    def page(
        self, which: BenchmarkFilter, *, limit: int, cursor: str | None, skip: int = 0
    ) -> tuple[Sequence[Benchmark], str | None]:
        """Return benchmarks, newest first, and the cursor of the next page if there is one.

        Args:
            which: Selects what is listed.
            limit: Maximum length of the page.
            cursor: As an earlier page returned it; None: begin with the newest.
            skip: Number of benchmarks to leave out first.

        Raises:
            InvalidInput: The cursor is malformed.
        """
        ...

    def series(
        self, which: BenchmarkFilter, *, limit: int, cursor: str | None
    ) -> tuple[Sequence[StoredSeries], str | None]:
        """Return series of completed benchmarks by name, and the cursor of the next page.

        Args:
            which: Selects the benchmarks; its status has no effect.
            limit: Maximum length of the page.
            cursor: As an earlier page returned it; None: begin with the first.

        Raises:
            InvalidInput: The cursor is malformed.
        """
        ...

    def count(self, which: BenchmarkFilter) -> int:
        """Return how many benchmarks match."""
        ...

    def counts_by_status(self) -> Mapping[Status, int]:
        """Return the number of benchmarks in each status, without counting them."""
        ...

    def counts_by_waiting_reason(self) -> Mapping[WaitingReason, int]:
        """Return the number of pending benchmarks by waiting reason."""
        ...
