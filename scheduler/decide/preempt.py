"""Who is stopped for whom: the scheduler's own preemption, whatever the cluster's is set to.

A benchmark that is ready, got no board and states a ``job_completion_threshold`` may have a running
one stopped, if that one

- runs on a board that this one could use, were it free,
- may be preempted, and has not been too often,
- was dispatched with a priority lower by the policy's margin at least,
- is known to be less far than the threshold,
- has run for the policy's least time: work that is thrown away at once helps nobody,
- does not measure (or train), unless its description allows that too: what a board does while it
  measures is what users came for, and the policy spares it.

Nobody is stopped in vain: a board that comes free anyway is waited for, one that somebody earlier
in the queue waits for is left alone, since that one would get it, and so is one that is kept for
somebody else's start or lease.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, without_runs
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model.decision import (
    MEASURING,
    BoardHolder,
    PendingBenchmark,
    Preemption,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionPlan:
    """The rule's answer.

    Attributes:
        preemptions: In the order of the queue; no board and no benchmark twice.
        makes_way: Row of the board by row of the benchmark for which it is being cleared, by one
            of these or an earlier preemption.
    """

    preemptions: tuple[Preemption, ...] = ()
    makes_way: Mapping[int, int] = field(default_factory=dict)


def preempt(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    waiting: NDArray[np.intp],
    priorities: NDArray[np.int64],
    holders: Sequence[BoardHolder],
    rules: Policy,
    fits: Callable[[Batch], NDArray[np.bool_]],
    late: Callable[[int], NDArray[np.bool_]],
) -> PreemptionPlan:
    """Choose whom to stop.

    Args:
        batch: The batch.
        pending: The benchmarks, in the batch's order.
        waiting: Rows of benchmarks that are ready and got no board, first in the queue to last.
        priorities: Shape (jobs,).
        holders: Live attempts that have a board.
        rules: Margin of priority, least run, whether measuring is spared.
        fits: Shape (classes, boards), from the filters; asked with the holders' boards cleared.
        late: Shape (boards,), of a class: where it would come in the way of a promise or lease.
    """
    if not any(pending[job].job_completion_threshold for job in waiting.tolist()):
        return PreemptionPlan()
    row_of_uid = batch.row_of_uid
    held = {
        row_of_uid[each.target_uid]: _known_progress(batch, row_of_uid[each.target_uid], each)
        for each in holders
        if each.target_uid in row_of_uid and (each.ending or each.preemptible)
    }
    if not held:
        return PreemptionPlan()
    open_boards = fits(without_runs(batch, list(held)))
    candidate = np.zeros(batch.shape[1], dtype=np.bool_)
    candidate[list(held)] = True
    open_boards = open_boards & candidate
    preemptions = []
    makes_way = {}
    for job in waiting.tolist():
        each = pending[job]
        row = int(batch.class_of_job[job])
        boards = np.flatnonzero(open_boards[row] & ~late(row)).tolist()
        if each.resting:
            rests = each.resting_uids(batch.now)
            boards = [board for board in boards if batch.snapshot.uids[board] not in rests]
        if not boards:
            continue
        coming = [board for board in boards if held[board].ending]
        victims = [
            board
            for board in boards
            if not held[board].ending
            and _may_stop(each, int(priorities[job]), held[board], batch.now, rules)
        ]
        if not coming and not victims:
            # Whichever of them comes free goes to this one: nobody behind it gains by a stop.
            open_boards[:, boards] = False
            continue
        board = min(coming or victims, key=lambda board: _cost(batch, each, board, held[board]))
        open_boards[:, board] = False
        if not coming:
            preemptions.append(_preemption(each, int(priorities[job]), held[board], rules))
        if not coming or held[board].preempted:
            makes_way[job] = board
    return PreemptionPlan(preemptions=tuple(preemptions), makes_way=makes_way)


def _known_progress(batch: Batch, board: int, holder: BoardHolder) -> BoardHolder:
    """The furthest that is told: the task and its board may differ for a moment."""
    seen = float(batch.snapshot.progress[board])
    if holder.progress is None or not seen > holder.progress:  # also when it is NaN
        return holder
    return replace(holder, progress=seen)


def _may_stop(
    each: PendingBenchmark, priority: int, holder: BoardHolder, now: datetime, rules: Policy
) -> bool:
    measures = holder.phase in MEASURING and not holder.preemptible_measuring
    return (
        holder.preemptible
        and each.job_completion_threshold is not None
        and holder.progress is not None  # of one that does not tell, nothing is certain
        and holder.progress < each.job_completion_threshold
        and priority - holder.priority >= rules.preemption_margin
        and not (rules.spare_measuring and measures)
        and _ran_s(holder, now) >= rules.min_run_s
    )


def _ran_s(holder: BoardHolder, now: datetime) -> float:
    """Since its task started; 0 where that is not known."""
    return 0.0 if holder.started_at is None else (now - holder.started_at).total_seconds()


def _cost(
    batch: Batch, each: PendingBenchmark, board: int, holder: BoardHolder
) -> tuple[bool, int, float, str]:
    """The least is chosen: untried boards, then the least urgent, then the least far."""
    uid = batch.snapshot.uids[board]
    return uid in each.tried_uids, holder.priority, holder.progress or 0.0, uid


def _preemption(
    each: PendingBenchmark, priority: int, holder: BoardHolder, rules: Policy
) -> Preemption:
    return Preemption(
        benchmark_id=each.benchmark_id,
        victim_id=holder.benchmark_id,
        target_uid=holder.target_uid,
        priority=priority,
        victim_priority=holder.priority,
        threshold=each.job_completion_threshold or 0,
        progress=holder.progress or 0.0,
        while_measuring=holder.preemptible_measuring or not rules.spare_measuring,
    )
