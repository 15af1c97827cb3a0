"""The repository of benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.benchmark import Benchmark, Status, WaitingReason


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFilter:
    """Which benchmarks to list; None: any.

    Attributes:
        include_deleted: Also those that their users deleted.
    """

    user_id: str | None = None
    status: frozenset[Status] | None = None
    family: str | None = None
    engine: str | None = None
    benchmark_type: str | None = None
    campaign_id: str | None = None
    target_uid: str | None = None
    model: str | None = None
    tag: str | None = None
    include_deleted: bool = True


class Benchmarks(Protocol):
    """Benchmarks and their descriptions."""

    def add(self, benchmark: Benchmark) -> None:
        """Store a new one.

        Raises:
            Conflict: The id is taken.
        """
        ...

    def move_times(self, by_s: float) -> None:
        """Move the times of all that are not at their end, and of their attempts.

        The server's clock was set by that many seconds: their ages and durations stay right.
        """
        ...

    def bound_pending(self, max_pending: int) -> None:
        """Refuse the commit where it would leave more pending benchmarks than this.

        The commit raises QuotaExceeded.
        """
        ...

    def lock(self, benchmark_ids: Iterable[str]) -> None:
        """Let nobody else change these, or what belongs to them, until the end of the unit of work.

        `get` and `save` do so too: this is for those who are about to change several.
        """
        ...

    def get(self, benchmark_id: str) -> Benchmark:
        """Raises NotFound. In a unit of work that writes, nobody else changes it until the end."""
        ...

    def save(self, benchmark: Benchmark) -> Benchmark:
        """Replace it if its ``version`` is the stored one; returns it with the next version.

        What was submitted never changes: description, owner, campaign and time are not written;
        nor are files.

        Raises:
            Conflict: Somebody changed it meanwhile, or the move of its status is not allowed.
        """
        ...

    def save_all(self, changed: Sequence[Benchmark], before: Status) -> Sequence[Benchmark]:
        """As `save`, for benchmarks that all leave ``before`` for one other status.

        Raises:
            Conflict: As `save`, for one of them; keep none of it.
        """
        ...

    def save_waiting(self, changed: Sequence[Benchmark]) -> Sequence[Benchmark]:
        """As `save`, for what changed nothing but ``waiting``, ``priority`` and
        ``unavailable_since``.

        Raises:
            Conflict: As `save`, for one of them; keep none of it.
        """
        ...

    def save_files(self, benchmark: Benchmark) -> Benchmark:
        """As `save`, with its files."""
        ...

    def unchanged(self, seen: Sequence[Benchmark]) -> frozenset[str]:
        """Ids of those whose ``version`` is the stored one.

        For units of work that write: nobody else changes them until the end of it.
        """
        ...

    def live_versions(self) -> Mapping[str, int]:
        """Id to version of every benchmark that is not at its end; cheap, for caches."""
        ...

    def pending_after_losses(self) -> Sequence[str]:
        """Ids of pending ones whose last attempts were lost: ``lost_in_a_row`` is not 0."""
        ...

    def get_many(self, benchmark_ids: Sequence[str]) -> Sequence[Benchmark]:
        """Those that exist, in no order."""
        ...

    def delete(self, benchmark_id: str, at: datetime) -> None:
        """Leave it out of lists ``include_deleted=False``; retention removes it, as any other.

        Raises:
            NotFound: It was deleted before.
        """
        ...

    def deleted(self, benchmark_id: str) -> bool:
        """Return whether its user deleted it."""
        ...

    def page(
        self, which: BenchmarkFilter, *, limit: int, cursor: str | None, skip: int = 0
    ) -> tuple[Sequence[Benchmark], str | None]:
        """Newest first, and the cursor of the next page.

        Args:
            skip: Benchmarks that are left out first.

        Raises:
            InvalidInput: The cursor is none of ours.
        """
        ...

    def count(self, which: BenchmarkFilter) -> int:
        """How many match."""
        ...

    def counts_by_status(self) -> Mapping[Status, int]:
        """For metrics; kept cheap with many stored."""
        ...

    def counts_by_waiting_reason(self) -> Mapping[WaitingReason, int]:
        """Pending benchmarks by the reason that they wait for; for metrics."""
        ...
