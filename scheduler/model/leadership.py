"""The lease of the server that leads."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLease:
    """The leader's lease, as stored.

    Attributes:
        epoch: The fencing token, increased by each new leader; 0: there never was a leader.
        renewals: Increased while the leader is alive.
        server_id: The leader; "" if the last leader released the lease.
        url: Address of the leader.
        since: When the epoch began.
        at: The leader's time at its last renewal; None: there never was a leader.
        age_s: Age of that renewal by the database's clock; None where it has no clock.
    """

    epoch: int
    renewals: int
    server_id: str
    url: str
    since: datetime | None = None
    at: datetime | None = None
    age_s: float | None = field(default=None, compare=False)
