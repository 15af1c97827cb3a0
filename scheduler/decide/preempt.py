"""Choose the victims of the scheduler's own preemption, which is independent of the cluster's.

A benchmark that is ready, got no board and states a ``job_completion_threshold`` may preempt a
running one, if that one

- runs on a board that this one could use if it were free,
- may be preempted (`edgeyard.scheduler.model.preemption`), and has not been preempted too often,
- was dispatched with a priority that is lower by at least the policy's margin,
- reports less progress than the threshold,
- has run for at least the policy's ``min_run_s``,
- does not measure (or train), unless its description or the policy allows that too.

A preemption has to give its board to the benchmark for which it is made. So none is preempted

- if a board that this one could use comes free anyway,
- on a board for which a more urgent benchmark waits, or one that has waited for ``guard_s``: that
  one comes first,
- on a board that is reserved or leased before the new run would count as over.

A benchmark earlier in the queue that is no more urgent and can preempt nobody itself is not in the
way: the board that was cleared is reserved for the one that it was cleared for
(``PendingBenchmark.cleared_uid``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, without_runs
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark, Preemption
from edgeyard.scheduler.model.preemption import is_below_threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionPlan:
    """Whom a cycle preempts.

    Attributes:
        preemptions: In the order of the queue; no board and no benchmark twice.
        boards_to_clear: By row of the benchmark, the row of the board that is being cleared for it,
            by one of these or by an earlier preemption.
    """

    preemptions: tuple[Preemption, ...] = ()
    boards_to_clear: Mapping[int, int] = field(default_factory=dict)

    def joined(self, more: PreemptionPlan) -> PreemptionPlan:
        """Return both plans, which share neither board nor benchmark."""
        return PreemptionPlan(
            preemptions=(*self.preemptions, *more.preemptions),
            boards_to_clear={**self.boards_to_clear, **more.boards_to_clear},
        )


def preempt(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    waiting: NDArray[np.intp],
    priorities: NDArray[np.int64],
    holders: Sequence[BoardHolder],
    policy: Policy,
    fits: Callable[[Batch], NDArray[np.bool_]],
    late: Callable[[int], NDArray[np.bool_]],
    guarded: NDArray[np.bool_],
) -> PreemptionPlan:
    """Choose whom to preempt.

    Args:
        pending: The benchmarks, in the batch's order.
        waiting: Rows of benchmarks that are ready and got no board, first in the queue to last.
        priorities: Shape (jobs,).
        holders: Live attempts that have a board.
        policy: Its ``preemption_margin``, ``min_run_s`` and ``spare_measuring`` are applied.
        fits: Returns what the filters let pass, shape (classes, boards); called with a batch whose
            boards are free of the holders.
        late: Returns the boards on which a class might run into a reservation, shape (boards,).
        guarded: Shape (jobs,): have waited for ``guard_s``.
    """
    if not any(pending[job].job_completion_threshold for job in waiting.tolist()):
        return PreemptionPlan()
    row_of_uid = batch.row_of_uid
    held = {
        row_of_uid[each.target_uid]: with_latest_progress(batch, row_of_uid[each.target_uid], each)
        for each in holders
        if each.target_uid in row_of_uid and (each.ending or each.preemptible)
    }
    if not held:
        return PreemptionPlan()
    candidates = np.zeros(batch.shape[1], dtype=np.bool_)
    candidates[list(held)] = True
    open_boards = fits(without_runs(batch, list(held))) & candidates
    awaited = np.full(batch.shape[1], -np.inf)  # by whom: the highest priority before in the queue
    preemptions = []
    boards_to_clear = {}
    for job in waiting.tolist():
        each = pending[job]
        row = int(batch.class_of_job[job])
        cleared = row_of_uid.get(each.cleared_uid or "")
        if cleared is not None and open_boards[row, cleared] and held[cleared].ending:
            open_boards[:, cleared] = False
            boards_to_clear[job] = cleared
            continue
        others_first = awaited > priorities[job]
        boards = np.flatnonzero(open_boards[row] & ~late(row) & ~others_first).tolist()
        if each.avoids_boards:
            avoided = each.avoided_uids(batch.now)
            boards = [board for board in boards if batch.snapshot.uids[board] not in avoided]
        if not boards:
            continue
        ending = [board for board in boards if held[board].ending]
        victims = [
            board
            for board in boards
            if not held[board].ending
            and _may_preempt(each, int(priorities[job]), held[board], batch.now, policy)
        ]
        if not ending and not victims:
            # Whichever of them comes free goes to this one before any that is less urgent.
            priority = np.inf if guarded[job] else priorities[job]
            awaited[boards] = np.maximum(awaited[boards], priority)
            continue
        board = min(ending or victims, key=lambda board: _cost(batch, each, board, held[board]))
        open_boards[:, board] = False
        if not ending:
            preemptions.append(_preemption(each, int(priorities[job]), held[board], policy))
        if not ending or held[board].preempted:
            boards_to_clear[job] = board
    return PreemptionPlan(preemptions=tuple(preemptions), boards_to_clear=boards_to_clear)


def with_latest_progress(batch: Batch, board: int, holder: BoardHolder) -> BoardHolder:
    """Return the holder with the greater progress of what its task and its board report."""
    of_board = float(batch.snapshot.progress[board])
    if holder.progress is None or not of_board > holder.progress:  # also when it is NaN
        return holder
    return replace(holder, progress=of_board)


def _may_preempt(
    each: PendingBenchmark, priority: int, holder: BoardHolder, now: datetime, policy: Policy
) -> bool:
    return (
        holder.preemptible
        and each.job_completion_threshold is not None
        and is_below_threshold(
            holder.progress,
            holder.phase,
            each.job_completion_threshold,
            while_measuring=_while_measuring(holder, policy),
        )
        and priority - holder.priority >= policy.preemption_margin
        and _ran_s(holder, now) >= policy.min_run_s
    )


def _while_measuring(holder: BoardHolder, policy: Policy) -> bool:
    return holder.preemptible_measuring or not policy.spare_measuring


def _ran_s(holder: BoardHolder, now: datetime) -> float:
    """Return the time since its task started, seconds; 0 where that is not known."""
    return 0.0 if holder.started_at is None else (now - holder.started_at).total_seconds()


def _cost(
    batch: Batch, each: PendingBenchmark, board: int, holder: BoardHolder
) -> tuple[bool, int, float, str]:
    """Return a key; the smallest is chosen: untried boards, least urgent, least progress."""
    uid = batch.snapshot.uids[board]
    return uid in each.tried_uids, holder.priority, holder.progress or 0.0, uid


def _preemption(
    each: PendingBenchmark, priority: int, holder: BoardHolder, policy: Policy
) -> Preemption:
    return Preemption(
        benchmark_id=each.benchmark_id,
        victim_id=holder.benchmark_id,
        target_uid=holder.target_uid,
        priority=priority,
        victim_priority=holder.priority,
        threshold=each.job_completion_threshold or 0,
        progress=holder.progress or 0.0,
        while_measuring=_while_measuring(holder, policy),
    )
