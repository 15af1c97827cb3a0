"""What a cycle knows beside the boards' state, gathered from the store and the twin."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from edgeyard.scheduler.engine.entitlements import entitlements
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import HostLoad, Knowledge
from edgeyard.scheduler.ports import UnitOfWork


def gather(
    uow: UnitOfWork,
    now: datetime,
    runs: History,
    most_run_s: float,
    host_loads: Mapping[str, HostLoad],
) -> Knowledge:
    """As of now, with the past, the bound on runs that state none, and hosts' loads by name."""
    return Knowledge(
        runs=runs,
        host_loads=host_loads,
        most_run_s=most_run_s,
        entitlements=entitlements(uow, now),
        rates=uow.credits.rates(),
        leases=tuple(uow.keeping.leases(now)),
        quarantined={
            uid: each.reason for uid, each in uow.keeping.quarantines().items() if each.active
        },
    )
