"""What a cycle knows beside the boards' state, gathered from the store."""

from __future__ import annotations

from datetime import datetime

from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.ports import UnitOfWork


def gather(uow: UnitOfWork, now: datetime) -> Knowledge:
    """As of now."""
    return Knowledge()
