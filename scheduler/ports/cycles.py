"""The repository of recorded cycles."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.cycle_record import CycleHead, CycleRecord


class Cycles(Protocol):
    """Stores decision cycles, and which of them explains a benchmark."""

    def add(self, record: CycleRecord, *, shadow_of: int | None = None) -> int:
        """Store a cycle and return its number; what cycles have in common is stored once."""
        ...

    def get(self, seq: int) -> CycleRecord:
        """Return a cycle.

        Raises:
            NotFound: There is no such cycle, or retention removed it.
        """
        ...

    def page(
        self,
        *,
        after: int = 0,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int,
        shadows: bool = False,
    ) -> Sequence[CycleHead]:
        """Return cycles with numbers above ``after`` that were decided in [since, until), in order.

        Args:
            shadows: Include those of shadow policies.
        """
        ...

    def shadows(
        self, *, since: datetime | None, until: datetime | None, limit: int
    ) -> Sequence[CycleHead]:
        """Return cycles of shadow policies that were decided in [since, until), newest first."""
        ...

    def newest(self, *, since: int, limit: int) -> Sequence[CycleHead]:
        """Return cycles that took effect, with numbers from ``since`` on, newest first."""
        ...

    def explain(self, benchmark_id: str, seq: int) -> None:
        """Record that a cycle explains a benchmark from now on."""
        ...

    def explaining_cycle(self, benchmark_id: str) -> int:
        """Return the number of the cycle that explains a benchmark.

        Raises:
            NotFound: No cycle has considered it yet.
        """
        ...
