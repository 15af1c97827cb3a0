"""What a cycle knows beside the boards' state, gathered from the store."""

from __future__ import annotations

from datetime import datetime

from edgeyard.scheduler.engine.entitlements import entitlements
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.ports import UnitOfWork


def gather(uow: UnitOfWork, now: datetime) -> Knowledge:
    """As of now."""
    return Knowledge(
        entitlements=entitlements(uow, now),
        rates=uow.credits.rates(),
        leases=tuple(uow.keeping.leases(now)),
        quarantined={
            uid: each.reason for uid, each in uow.keeping.quarantines().items() if each.active
        },
    )
