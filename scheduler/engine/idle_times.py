"""Adds up for how long bookings and leases keep boards idle, from one cycle to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from edgeyard.scheduler.model.decision import KeptIdle

MAX_GAP_S = 10.0
"""Longest time between two cycles that counts: what happened in a longer one is not known."""

STORE_AFTER_S = 10.0
"""Board-seconds of one booking or lease that are charged at once, while it goes on."""


@dataclass(slots=True)
class _Sum:
    kept: KeptIdle
    since: datetime
    board_s: float = 0.0


class IdleTimes:
    """Board-seconds that are not charged yet. One thread."""

    def __init__(self, max_gap_s: float = MAX_GAP_S, store_after_s: float = STORE_AFTER_S) -> None:
        """Know nothing.

        Args:
            max_gap_s: Longest time between two cycles that counts.
            store_after_s: Board-seconds of one keeper that are due while it goes on.
        """
        self._max_gap_s, self._store_after_s = max_gap_s, store_after_s
        self._kept: Sequence[KeptIdle] = ()
        self._at: datetime | None = None
        self._sums: dict[str, _Sum] = {}

    def update(self, kept: Sequence[KeptIdle], now: datetime) -> None:
        """Add the time since the last cycle to those that it found, and take this one's.

        Args:
            kept: What the cycle found.
            now: Time of the cycle.
        """
        if self._at is not None:
            gap_s = min(max((now - self._at).total_seconds(), 0.0), self._max_gap_s)
            for each in self._kept:
                of_keeper = self._sums.setdefault(each.keeper_id, _Sum(each, self._at))
                of_keeper.board_s += gap_s
        self._kept, self._at = kept, now

    def due(self) -> Mapping[KeptIdle, tuple[datetime, float]]:
        """Return begin and board-seconds of what is to be charged now, one entry per keeper."""
        going_on = {each.keeper_id for each in self._kept}
        return {
            each.kept: (each.since, each.board_s)
            for keeper_id, each in self._sums.items()
            if each.board_s > 0.0
            and (keeper_id not in going_on or each.board_s >= self._store_after_s)
        }

    def charged(self, done: Mapping[KeptIdle, tuple[datetime, float]]) -> None:
        """Forget what was charged."""
        for kept in done:
            self._sums.pop(kept.keeper_id, None)
