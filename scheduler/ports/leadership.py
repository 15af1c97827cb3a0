"""The repository of the leader's lease."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.leadership import LeaderLease


class Leadership(Protocol):
    """Stores the lease of the one server whose engine may write.

    Each server judges by its own monotonic clock whether the lease has expired, from a count that
    the leader increases: clocks of different machines are never compared.
    """

    def current(self) -> LeaderLease:
        """Return the stored lease."""
        ...

    def take(
        self, seen: LeaderLease, server_id: str, url: str, at: datetime, silent_s: float = math.inf
    ) -> LeaderLease | None:
        """Begin the next epoch; return None if the lease was renewed or taken since ``seen``.

        Waits until all transactions of the present epoch have ended. A leader that was cut off in
        the middle of sending a statement would never end its own: those older than ``silent_s``
        seconds are ended by the database, where it can (PostgreSQL).
        """
        ...

    def renew(self, epoch: int, now: datetime) -> None:
        """Record that the leader of this epoch is alive, and its time.

        Raises:
            LeadershipLost: Another epoch has begun.
        """
        ...

    def move_time(self, by_s: float, clock: str) -> None:
        """Shift the leader's time: its clock was set by ``by_s`` seconds, which it has accepted.

        Args:
            by_s: Seconds.
            clock: The record of that clock, from which a process that starts on the same machine
                continues.
        """
        ...

    def clock(self) -> str:
        """Return the record of the clock that was set last; "" if none ever was."""
        ...

    def release(self, epoch: int) -> None:
        """Let another server lead at once; no effect if the epoch is over."""
        ...

    def hold(self, epoch: int) -> None:
        """Let no server take the lease until this transaction ends.

        Raises:
            LeadershipLost: Another epoch has begun.
        """
        ...
