"""Quarantine of boards whose drift is confirmed, where the lab wants that.

A quarantine lasts as long as the alert of the canary's series: it is lifted when the alert is
resolved, because the board's level is back or by an operator, or dismissed. Canaries and the checks
of their changes still run on such a board, because they show when the level is back. A quarantine
that an operator lifted is not imposed again for the same drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from edgeyard.scheduler.engine.quarantine import lift_quarantine, quarantine_board
from edgeyard.scheduler.model.accounts import Quarantine
from edgeyard.scheduler.model.canaries import BoardDrift
from edgeyard.scheduler.ports import Store, UnitOfWork


def quarantine_drifted(store: Store, now: datetime, *, wanted: bool) -> bool:
    """Impose and lift the quarantines of boards that drift; return whether something changed.

    Args:
        store: Has the changes of canaries' series, and the quarantines.
        now: The time.
        wanted: Whether quarantines are imposed; those that exist are lifted in any case.

    Raises:
        Unavailable: The store can't take it now.
    """
    with store.read() as uow:
        if not any(_due(uow, now, wanted)):
            return False
    return store.transact(partial(_step, now, wanted))


def _due(
    uow: UnitOfWork, now: datetime, wanted: bool
) -> tuple[Sequence[Quarantine], Sequence[Quarantine]]:
    """Return the quarantines that are to be imposed, and those that are to be lifted."""
    known = uow.reservations.quarantines()
    active = [each for each in known.values() if each.of_drift and each.active]
    known_drifts = uow.canaries.drifts() if wanted or active else ()
    drifts = {each.target_uid: each for each in reversed(known_drifts) if each.until is None}
    imposed = [
        Quarantine(target_uid=uid, since=now, reason=drift.sentence)
        for uid, drift in drifts.items()
        if wanted and drift.confirmed and _is_news(drift, known.get(uid))
    ]
    return imposed, [each for each in active if each.target_uid not in drifts]


def _is_news(drift: BoardDrift, earlier: Quarantine | None) -> bool:
    return earlier is None or (not earlier.active and earlier.reason != drift.sentence)


def _step(now: datetime, wanted: bool, uow: UnitOfWork) -> bool:
    imposed, lifted = _due(uow, now, wanted)
    for each in imposed:
        quarantine_board(uow, each, now)
    for each in lifted:
        lift_quarantine(uow, each, now, by=None)
    return bool(imposed or lifted)
