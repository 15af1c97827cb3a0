"""What a cycle knows beside the boards' state, gathered from the store."""

from __future__ import annotations

from datetime import datetime

from edgeyard.scheduler.engine.entitlements import entitlements
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.ports import UnitOfWork


def gather(uow: UnitOfWork, now: datetime, runs: History, most_run_s: float) -> Knowledge:
    """As of now, with the past and the bound on runs that state none."""
    return Knowledge(
        runs=runs,
        most_run_s=most_run_s,
        entitlements=entitlements(uow, now),
        rates=uow.credits.rates(),
        leases=tuple(uow.keeping.leases(now)),
        quarantined={
            uid: each.reason for uid, each in uow.keeping.quarantines().items() if each.active
        },
    )
