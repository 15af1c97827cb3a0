"""Quarantine of boards whose drift is confirmed, where the lab wants that.

It lasts as long as the alert of the canary's series: it is lifted when that is resolved, because
the board's level is back or an operator says so, or dismissed. Canaries, and the checks of their
changes, run on such a board all the same, as they show when the level is back. What an operator
lifts is not imposed again for the same drift.
"""

from __future__ import annotations

from datetime import datetime

from edgeyard.scheduler.engine.quarantine import lift_quarantine, quarantine_board
from edgeyard.scheduler.model.accounts import Quarantine
from edgeyard.scheduler.ports import Store, UnitOfWork


def quarantine_drifted(store: Store, now: datetime, *, wanted: bool) -> bool:
    """Impose and lift the quarantines of boards that drift; return whether something changed.

    Args:
        store: Has the changes of canaries' series, and the quarantines.
        now: The time.
        wanted: Whether boards are put into quarantine; what is there is lifted in any case.

    Raises:
        Unavailable: The store can't take it now.
    """
    with store.read() as uow:
        if not _is_due(uow, wanted):
            return False
    return store.transact(lambda uow: _step(uow, now, wanted))


def _is_due(uow: UnitOfWork, wanted: bool) -> bool:
    known = uow.reservations.quarantines()
    return any(each.of_drift and each.active for each in known.values()) or (
        wanted and any(each.confirmed for each in uow.canaries.drifts().values())
    )


def _step(uow: UnitOfWork, now: datetime, wanted: bool) -> bool:
    known, drifts = uow.reservations.quarantines(), uow.canaries.drifts()
    changed = False
    for uid, drift in drifts.items() if wanted else ():
        earlier = known.get(uid)
        is_news = earlier is None or (not earlier.active and earlier.reason != drift.sentence)
        if drift.confirmed and is_news:
            made = Quarantine(target_uid=uid, since=now, reason=drift.sentence)
            quarantine_board(uow, made, now)
            changed = True
    for uid, each in known.items():
        if each.of_drift and each.active and uid not in drifts:
            lift_quarantine(uow, each, now, by=None)
            changed = True
    return changed
