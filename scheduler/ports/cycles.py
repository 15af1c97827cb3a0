"""The repository of recorded cycles."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.cycle_record import CycleHead, CycleRecord, ExplainingCycle


class Cycles(Protocol):
    """Recorded decision cycles, and which of them explains a benchmark."""

    def add(self, record: CycleRecord, *, shadow_of: int | None = None) -> int:
        """Store a cycle; returns its number. What cycles share is stored once."""
        ...

    def get(self, seq: int) -> CycleRecord:
        """Raises NotFound: there is none of that number (any more)."""
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
        """Cycles of numbers above ``after``, decided within [since, until), lowest first."""
        ...

    def shadows(
        self, *, since: datetime | None, until: datetime | None, limit: int
    ) -> Sequence[CycleHead]:
        """Cycles of shadow policies, decided within [since, until), newest first."""
        ...

    def newest(self, *, since: int, limit: int) -> Sequence[CycleHead]:
        """Cycles that were acted upon, of number ``since`` or higher, highest first."""
        ...

    def explain(self, benchmark_id: str, explained: ExplainingCycle) -> None:
        """Say which cycle explains a benchmark from now on."""
        ...

    def explanation(self, benchmark_id: str) -> ExplainingCycle:
        """Raises NotFound: no cycle has looked at it yet."""
        ...
