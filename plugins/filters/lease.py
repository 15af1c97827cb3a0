"""Boards that are leased to a user or for maintenance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Filter, Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.model.times import time_text


class LeaseFilter(Filter):
    """Refuses leased boards to everybody except the holder of the lease.

    What might still run when a lease begins is kept off by the policy's ``hold_quantile``
    (`edgeyard.scheduler.prediction.timeline`), as before reserved starts.
    """

    name = "lease"
    refusals = (Refusal(WaitingReason.RESERVED, never=False),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        classes, boards = batch.shape
        leases = [each for each in batch.knowledge.leases if _is_current(batch, each)]
        row_of_uid = batch.row_of_uid if leases else {}
        leases = [each for each in leases if each.target_uid in row_of_uid]
        if not leases:
            return np.zeros((1, boards), dtype=np.uint8)
        codes = np.zeros((classes, boards), dtype=np.uint8)
        for lease in leases:
            codes[_others(batch, lease), row_of_uid[lease.target_uid]] = 1
        return codes

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        lease = next(
            each
            for each in batch.knowledge.leases
            if each.target_uid == batch.snapshot.uids[board]
            and _is_current(batch, each)
            and _others(batch, each)[row]
        )
        why = f" ({lease.reason})" if lease.reason else ""
        return f"is reserved until {time_text(lease.until)}{why}"


def _is_current(batch: Batch, lease: Lease) -> bool:
    return lease.since <= batch.now < lease.until


def _others(batch: Batch, lease: Lease) -> NDArray[np.bool_]:
    """Shape (classes,): classes that the lease excludes."""
    if lease.user_id is None:
        return np.ones(batch.shape[0], dtype=np.bool_)
    return np.array([user != lease.user_id for user in batch.lease_users], dtype=np.bool_)
