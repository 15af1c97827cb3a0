"""The lease of the server that leads."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLease:
    """The leader's lease, as the database has it.

    Attributes:
        epoch: Grows by one with each change of the leader: its fencing token. 0: nobody ever led.
        renewals: Grows while the leader is alive.
        server_id: Who leads; "" where the last leader released the lease.
        url: Where the leader is reached.
        since: When the epoch began.
        at: The leader's time at its last renewal; None: nobody ever led.
        age_s: How long ago that was by the database's own clock; None where it has none.
    """

    epoch: int
    renewals: int
    server_id: str
    url: str
    since: datetime | None = None
    at: datetime | None = None
    age_s: float | None = field(default=None, compare=False)
