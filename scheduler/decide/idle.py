"""Which boards stand idle although a benchmark waits that fits, and for whose booking or lease."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.framework.batch import NO_ROW
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.decision import KeptIdle
from edgeyard.scheduler.prediction.timeline import conflict_group, leases_of


def boards_kept_idle(decided: Decisions) -> tuple[KeptIdle, ...]:
    """Return the free boards that a waiting benchmark could use but for a booking or a lease.

    Boards that are kept for maintenance, or for a benchmark that has waited for ``guard_s``, are
    left out: nobody is charged for them.
    """
    batch, timeline, found = decided.batch, decided.timeline, decided.feasibility
    if not (timeline.next_starts or leases_of(batch)):
        return ()
    rows = _waiting_classes(decided)
    if not rows:
        return ()
    keepers = _keepers(decided)
    free = ~decided.snapshot.busy & (decided.assignment.job_of_board == NO_ROW)
    free &= decided.assignment.blocked_by == NO_ROW
    by_lease = [
        code
        for code, reason in enumerate(found.reasons, start=1)
        if reason.plugin is not None and reason.plugin.name == "lease"
    ]
    wanted = np.zeros(batch.shape[1], dtype=np.bool_)
    for row in rows:
        wanted |= found.fits[row] & timeline.late_of(row)
        wanted |= np.isin(found.codes[row], by_lease)
    boards = np.flatnonzero(free & wanted).tolist()
    kept = (keepers[board][1] for board in boards if board in keepers)
    return tuple(each for each in kept if each is not None)


def _waiting_classes(decided: Decisions) -> list[int]:
    """Return the classes of benchmarks that wait for a board and for nothing else."""
    assignment, found = decided.assignment, set()
    held = set(assignment.held)
    for job in np.flatnonzero(decided.ready & (assignment.board_of_job == NO_ROW)).tolist():
        withheld = None if job in held else assignment.withheld.get(job)
        waits = withheld is None or withheld.reason is WaitingReason.RESERVED
        waits = waits and job not in assignment.clearing
        if waits and job not in held and decided.pending[job].gang_id is None:
            found.add(int(decided.batch.class_of_job[job]))
    return sorted(found)


def _keepers(decided: Decisions) -> dict[int, tuple[datetime, KeptIdle | None]]:
    """Return by row of the board the begin of what is next there, and whom it is charged to."""
    batch = decided.batch
    uids, families = decided.snapshot.uids, decided.snapshot.families
    found: dict[int, tuple[datetime, KeptIdle | None]] = {}

    def add(board: int, start: datetime, keeper_id: str, user_id: str | None) -> None:
        if board not in found or start < found[board][0]:
            kept = None
            if user_id is not None:
                kept = KeptIdle(
                    keeper_id=keeper_id,
                    user_id=user_id,
                    family=families[board],
                    target_uid=uids[board],
                )
            found[board] = start, kept

    for job, own in decided.timeline.reservations.items():
        each = decided.pending[job]
        is_booking = own.stated and each.start_time is not None
        for board in conflict_group(batch, own.board):
            add(board, own.start, each.benchmark_id, each.user_id if is_booking else None)
    for board, lease in leases_of(batch):
        add(board, lease.since, lease.lease_id, lease.user_id)
    return found
