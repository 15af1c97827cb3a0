"""The repository of the leader's lease."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.leadership import LeaderLease


class Leadership(Protocol):
    """The lease of the one server whose engine may write.

    Whether a lease is over is judged by the observer's own monotonic clock, from a count that the
    leader raises: no two machines' clocks are compared.
    """

    def current(self) -> LeaderLease:
        """Who leads, as the database has it."""
        ...

    def take(self, seen: LeaderLease, server_id: str, url: str, at: datetime) -> LeaderLease | None:
        """Begin the next epoch; None where the lease was renewed or taken since ``seen``.

        Waits for all transactions of the present epoch to end.
        """
        ...

    def renew(self, epoch: int, now: datetime) -> None:
        """Show that the leader of this epoch is alive, and its time. Raises LeadershipLost."""
        ...

    def release(self, epoch: int) -> None:
        """Let another server lead at once; no effect where one does already."""
        ...

    def hold(self, epoch: int) -> None:
        """Keep others from taking the lease until this transaction ends. Raises LeadershipLost."""
        ...
