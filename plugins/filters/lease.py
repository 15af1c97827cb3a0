"""Boards that are leased to a user or for maintenance."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Filter, Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.prediction.estimates import run_times

QUANTILE = 0.9
"""Quantile of the predicted run time: 1 of 10 runs may still run when the lease begins."""

_NOW, _SOON = 1, 2


class LeaseFilter(Filter):
    """Refuses leased boards to everybody except the holder of the lease.

    This includes boards whose lease begins before the benchmark is expected to end: at the 0.9
    quantile of its predicted run time, and at its time limit at the latest.
    """

    name = "lease"
    refusals = (
        Refusal(WaitingReason.RESERVED, never=False),
        Refusal(WaitingReason.RESERVED, never=False),
    )

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        classes, boards = batch.shape
        leases = batch.knowledge.leases
        row_of_uid = batch.row_of_uid if leases else {}
        if not any(lease.target_uid in row_of_uid for lease in leases):
            return np.zeros((1, boards), dtype=np.uint8)
        codes = np.zeros((classes, boards), dtype=np.uint8)
        coming: list[tuple[NDArray[np.intp], int, float]] = []
        for lease in leases:
            board = row_of_uid.get(lease.target_uid)
            if board is None or lease.until <= batch.now:
                continue
            others = np.flatnonzero(_others(batch, lease))
            if lease.since <= batch.now:
                codes[others, board] = _NOW
            else:
                coming.append((others, board, (lease.since - batch.now).total_seconds()))
        if coming:
            counts = [len(others) for others, _, _ in coming]
            rows = np.concatenate([others for others, _, _ in coming])
            columns = np.repeat(np.array([board for _, board, _ in coming], np.intp), counts)
            late = _max_s(batch, rows, columns) > np.repeat(
                [left_s for _, _, left_s in coming], counts
            )
            late &= codes[rows, columns] == 0
            codes[rows[late], columns[late]] = _SOON
        return codes

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        lease = next(
            each
            for each in sorted(batch.knowledge.leases, key=lambda each: each.since)
            if each.target_uid == batch.snapshot.uids[board]
            and each.until > batch.now
            and (code == _NOW or each.since > batch.now)
            and _others(batch, each)[row]
        )
        why = f" ({lease.reason})" if lease.reason else ""
        if code == _NOW:
            return f"is reserved until {_moment(lease.until)}{why}"
        return f"is reserved from {_moment(lease.since)}{why}, before this would be through"


def _others(batch: Batch, lease: Lease) -> NDArray[np.bool_]:
    """Shape (classes,): classes that the lease excludes."""
    if lease.user_id is None:
        return np.ones(batch.shape[0], dtype=np.bool_)
    return np.array([user != lease.user_id for user in batch.lease_users], dtype=np.bool_)


def _max_s(batch: Batch, rows: NDArray[np.intp], boards: NDArray[np.intp]) -> NDArray[np.float64]:
    """Shape (pairs,): how long each class is expected to hold each board."""
    predicted = run_times(batch, rows, boards, QUANTILE)
    return np.fmin(predicted, batch.time_limits_s[rows])


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
