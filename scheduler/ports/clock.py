"""The clock that every part is given."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Reads the time."""

    def now(self) -> datetime:
        """Return the time of day, aware UTC; it runs on evenly while the machine's clock is set."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds for measuring durations; this clock can't be set."""
        ...

    def certain(self) -> datetime:
        """Return the latest time of day that has certainly been reached.

        This is `now` while wall clock and monotonic clock agree. While they disagree it stands
        still. Irreversible actions, such as an expiry, compare with it.
        """
        ...

    def disagreement_s(self) -> float:
        """Return how far the machine's clock is ahead of `now`; 0.0 while they agree.

        No irreversible action depends on the time while this is not 0.
        """
        ...

    def pending_step_s(self) -> float:
        """Return the size of a permanent step of the machine's clock that `now` has yet to take."""
        ...

    def record(self, step_s: float = 0.0) -> str:
        """Return what the next process on this machine continues from, as JSON.

        Args:
            step_s: A step that `take_step` is about to take.
        """
        ...

    def take_step(self, step_s: float) -> None:
        """Move `now` by such a step; the stored times of live work have been moved already."""
        ...
