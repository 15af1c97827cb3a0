"""The clock that every part is given."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time, as an argument."""

    def now(self) -> datetime:
        """Return the time of day, aware UTC; it runs on evenly while the machine's clock is set."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds for durations; nobody can set them."""
        ...

    def certain(self) -> datetime:
        """Return the time of day that has surely come.

        It is `now` while wall and monotonic time agree, and stands still while they do not: what
        can't be taken back, such as an expiry, compares with it.
        """
        ...

    def disagreement_s(self) -> float:
        """Return how far the machine's clock is ahead of `now`; 0.0 while they agree.

        Meanwhile nothing that can't be taken back is done because of a time.
        """
        ...

    def pending_step_s(self) -> float:
        """Return by how much the machine's clock was set for good, and `now` has yet to follow."""
        ...

    def take_step(self, step_s: float) -> None:
        """Let `now` follow such a step: the times of what is live have been moved by as much."""
        ...
