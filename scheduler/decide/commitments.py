"""Boards that are promised: when, to whom, and who would still run there then.

A *commitment* is a start that was told to a user (`Promise`), a start time that a benchmark states
together with its board, or a lease that begins later. Nobody else gets the board unless surely
through before: by the bound that is held on its run, or, where the policy says so, by a quantile
of its predicted time. From the promised start on the board is kept until its benchmark comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.estimates import run_times
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model.benchmark import Waiting, WaitingReason
from edgeyard.scheduler.model.decision import PendingBenchmark


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Commitments:
    """Which pairs would come too late.

    Attributes:
        late: Shape (pairs,): whoever is placed so may still run at the board's next commitment.
        starts: By row of the board, when that is.
        owners: By row of the benchmark, the boards that are promised to it.
    """

    late: NDArray[np.bool_]
    starts: dict[int, datetime]
    owners: dict[int, frozenset[int]]

    def in_time(
        self, pairs: Pairs, scores: NDArray[np.float32]
    ) -> tuple[Pairs, NDArray[np.float32]]:
        """The pairs that are not late, with their scores."""
        if not self.late.any():
            return pairs, scores
        kept = ~self.late
        before = np.zeros(len(kept) + 1, dtype=np.intp)
        np.cumsum(kept, out=before[1:])
        left = replace(
            pairs, rows=pairs.rows[kept], boards=pairs.boards[kept], starts=before[pairs.starts]
        )
        return left, scores[kept]

    def waiting(self, uid: str, board: int) -> Waiting:
        """Why a benchmark waits although the board is free."""
        start = self.starts[board].astimezone(UTC)
        return Waiting(
            reason=WaitingReason.RESERVED,
            sentence=f"{uid} is promised from {start:%Y-%m-%dT%H:%M:%SZ} on, "
            "before this would surely be through",
        )


def commitments(
    batch: Batch, pending: Sequence[PendingBenchmark], pairs: Pairs, policy: Policy
) -> Commitments:
    """Of this cycle.

    Args:
        batch: The batch; promises to benchmarks that no longer wait count for nothing.
        pending: The benchmarks, in the batch's order.
        pairs: Which class may use which board.
        policy: How surely a run must be over, and how long boards rest between two.
    """
    row_of_uid = {uid: row for row, uid in enumerate(batch.snapshot.uids)}
    leases = [
        lease
        for lease in batch.knowledge.leases
        if lease.since > batch.now and lease.target_uid in row_of_uid
    ]
    told = [each for each in promised_starts(batch, pending) if each[0] in row_of_uid]
    starts: dict[int, datetime] = {}
    owners: dict[int, frozenset[int]] = {}
    late = np.zeros(len(pairs), dtype=np.bool_)
    if not told and not leases:
        return Commitments(late=late, starts=starts, owners=owners)
    for uid, start, owner in told:
        board = row_of_uid[uid]
        starts[board] = min(start, starts.get(board, start))
        owners[owner] = owners.get(owner, frozenset()) | {board}
    left_s = np.full(batch.shape[1], np.inf)
    for board, start in starts.items():
        left_s[board] = _left_s(batch, start, policy)
    for board in {row_of_uid[lease.target_uid] for lease in leases}:
        left_s[board] = min(left_s[board], np.finfo(np.float64).max)
    near = np.flatnonzero(np.isfinite(left_s[pairs.boards]))
    rows, boards = pairs.rows[near], pairs.boards[near]
    hold_s = holds_s(batch, rows, boards, policy)
    late[near] = hold_s > left_s[boards]
    for lease in leases:
        board = row_of_uid[lease.target_uid]
        kept_out = np.array(
            [lease.user_id is None or user != lease.user_id for user in batch.lease_users],
            dtype=np.bool_,
        )
        its = (boards == board) & kept_out[rows] & (hold_s > _left_s(batch, lease.since, policy))
        late[near[its]] = True
        starts[board] = min(lease.since, starts.get(board, lease.since))
    return Commitments(late=late, starts=starts, owners=owners)


def holds_s(
    batch: Batch, rows: NDArray[np.intp], boards: NDArray[np.intp], policy: Policy
) -> NDArray[np.float64]:
    """Shape (pairs,): within which a run of the class counts as over on the board, seconds."""
    bound_s: NDArray[np.float64] = batch.time_limits_s[rows]
    if policy.hold_quantile < 1.0:
        return np.fmin(run_times(batch, rows, boards, policy.hold_quantile), bound_s)
    return bound_s


def _left_s(batch: Batch, start: datetime, policy: Policy) -> float:
    return (start - batch.now).total_seconds() - policy.cool_down_s


def promised_starts(
    batch: Batch, pending: Sequence[PendingBenchmark]
) -> list[tuple[str, datetime, int]]:
    """Board, start, and row of the benchmark that it is promised to; leases are not among them."""
    found = [
        (each.target_uid, each.start_time, job)
        for job, each in enumerate(pending)
        if each.start_time is not None
        and each.target_uid is not None
        and each.start_time > batch.now
    ]
    if batch.knowledge.promises:
        job_of_id = {each.benchmark_id: job for job, each in enumerate(pending)}
        found += [
            (promise.target_uid, promise.start, job_of_id[promise.benchmark_id])
            for promise in batch.knowledge.promises
            if promise.benchmark_id in job_of_id
        ]
    return found
