"""What a cycle knows apart from the boards' state, gathered from the store and the twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from edgeyard.scheduler.engine.entitlements import entitlements, group_entitlements
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import ActiveModel, HostLoad, Knowledge
from edgeyard.scheduler.model.tariff import Tariff
from edgeyard.scheduler.ports import UnitOfWork

_A_MOMENT = timedelta(seconds=1)


def gather(
    uow: UnitOfWork,
    now: datetime,
    runs: History,
    max_run_s: float,
    tariff: Tariff,
    host_loads: Mapping[str, HostLoad],
    certain: datetime,
    models: tuple[ActiveModel, ...],
) -> Knowledge:
    """Gather what a cycle knows now.

    Args:
        now: The time that the cycle decides at.
        runs: The past.
        max_run_s: Bound on runs that state none.
        tariff: Factors on the rates by hour of the day.
        host_loads: By name of the host.
        certain: The time that has certainly come: a lease that ends between it and ``now`` still
            holds, because the clocks disagree.
        models: The active registered models.
    """
    open_charges = uow.credits.open_charges()
    return Knowledge(
        runs=runs,
        host_loads=host_loads,
        max_run_s=max_run_s,
        entitlements=entitlements(uow, open_charges, now),
        groups=group_entitlements(uow, open_charges, now),
        rates=uow.credits.rates(),
        tariff=tariff,
        models=models,
        leases=tuple(
            each if each.until > now else replace(each, until=now + _A_MOMENT)
            for each in uow.reservations.leases(min(certain, now))
        ),
        quarantined={
            uid: each.reason for uid, each in uow.reservations.quarantines().items() if each.active
        },
    )
