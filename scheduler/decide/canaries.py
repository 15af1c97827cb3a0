"""Canaries in decisions: they get boards that no other benchmark needs, and are preempted at once.

A cycle decides on all other benchmarks as if there were no canaries: a board that a canary holds
counts as free, and so do those that share cores with it. If a benchmark is given such a board, the
canary is stopped at any progress, and the benchmark waits only for its end; the board is reserved
for it until then. The boards that are left then go to the canaries that wait (`left_over`), which
are decided by `canary_policy` as a cycle of their own.

So canaries change neither the order of other benchmarks nor which of them get a board, nor how good
that is: if a board with the same score is left, the benchmark gets that one instead of waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.assign import Assignment
from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.decide.gangs import Gang
from edgeyard.scheduler.decide.preempt import PreemptionPlan
from edgeyard.scheduler.decide.priority import LOWEST, Priorities
from edgeyard.scheduler.decide.scores import Scores
from edgeyard.scheduler.framework.batch import NO_ROW, Batch
from edgeyard.scheduler.framework.policy import Policy, PriorityMode
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.decision import (
    BoardHolder,
    CycleInput,
    PendingBenchmark,
    Preemption,
    Snapshot,
)
from edgeyard.scheduler.prediction.timeline import Timeline, conflict_group

ANY_PROGRESS = 100
"""Threshold of the benchmarks that preempt a canary: it is stopped at any progress."""

KEPT_FREE = timedelta(minutes=10)
"""Time before a reservation or a lease in which its board gets no canary."""


def without_canaries(given: CycleInput) -> CycleInput:
    """Return the input of a cycle as it would be if no canary ran."""
    canaries = [each for each in given.holders if each.canary]
    if not canaries:
        return given
    holders = [each for each in given.holders if not each.canary]
    return replace(given, snapshot=_freed(given.snapshot, canaries, holders), holders=holders)


def _freed(
    snapshot: Snapshot, canaries: Sequence[BoardHolder], others: Sequence[BoardHolder]
) -> Snapshot:
    """Return the boards, with those free that are busy because of canaries alone."""
    row_of_uid = {uid: row for row, uid in enumerate(snapshot.uids)}
    held = {row_of_uid[each.target_uid] for each in others if each.target_uid in row_of_uid}
    of_canaries = {
        row_of_uid[each.target_uid] for each in canaries if each.target_uid in row_of_uid
    } - held
    freed = set(of_canaries)
    if snapshot.conflicts is not None:
        near = snapshot.conflicts | snapshot.conflicts.T
        for row in of_canaries:
            freed.update(np.flatnonzero(near[row]).tolist())
        freed = {row for row in freed - held if not near[row, list(held)].any()}
    busy, progress, reasons = snapshot.busy.copy(), snapshot.progress.copy(), [*snapshot.reasons]
    for row in freed:
        if busy[row]:
            busy[row], progress[row], reasons[row] = False, 0.0, ""
    return replace(snapshot, busy=busy, progress=progress, reasons=tuple(reasons))


def boards_of_canaries(batch: Batch, holders: Sequence[BoardHolder]) -> Mapping[int, list[int]]:
    """Return by row of the board the rows of the canaries that keep it from being used now.

    Args:
        batch: Of the cycle.
        holders: Live attempts that have a board, canaries or not.
    """
    found: dict[int, list[int]] = {}
    for each in holders:
        if each.canary and each.target_uid in batch.row_of_uid:
            row = batch.row_of_uid[each.target_uid]
            for board in conflict_group(batch, row):
                found.setdefault(board, []).append(row)
    return found


def preempt_canaries(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    priorities: Priorities,
    gangs: Mapping[int, Gang],
    assignment: Assignment,
    holders: Sequence[BoardHolder],
    instead: Callable[[int, int, NDArray[np.bool_]], int],
) -> tuple[Assignment, PreemptionPlan]:
    """Preempt the canaries on assigned boards; the benchmarks that get these wait until then.

    A benchmark gets another board instead if that is free, unassigned and has the same score.

    Args:
        batch: Of the cycle, without canaries.
        pending: The benchmarks, in the batch's order.
        priorities: Of these.
        gangs: The gang of each benchmark that has one, by row: all of it starts at once.
        assignment: As if no canary ran.
        holders: Live attempts that have a board, canaries or not.
        instead: Returns a board that is just as good for a benchmark as the one that it is given,
            among those that it is handed, shape (boards,); `NO_ROW` for none.

    Returns:
        The assignment, in which these benchmarks have no board and no other benchmark has theirs;
        and the canaries to stop for them. For a gang no board is reserved, as for any preemption.
    """
    canary_on = {
        batch.row_of_uid[each.target_uid]: each
        for each in holders
        if each.canary and each.target_uid in batch.row_of_uid
    }
    if not canary_on:
        return assignment, PreemptionPlan()
    in_the_way = boards_of_canaries(batch, holders)
    board_of_job, job_of_board = assignment.board_of_job.copy(), assignment.job_of_board.copy()
    left = (job_of_board == NO_ROW) & (assignment.blocked_by == NO_ROW)
    left[list(in_the_way)] = False
    clearing: dict[int, int] = {}
    for job in np.flatnonzero(board_of_job != NO_ROW).tolist():
        board = int(board_of_job[job])
        if board not in in_the_way:
            continue
        other = NO_ROW if job in gangs else instead(job, board, left)
        if other != NO_ROW:
            board_of_job[job], job_of_board[other], job_of_board[board] = other, job, NO_ROW
            left[other] = False
            continue
        together = gangs[job].jobs if job in gangs else (job,)
        clearing.update({each: int(assignment.board_of_job[each]) for each in together})
    preemptions: dict[int, Preemption] = {}
    for job, board in clearing.items():
        board_of_job[job] = NO_ROW
        for row in in_the_way.get(board, ()):
            if not canary_on[row].ending and row not in preemptions:
                preemptions[row] = Preemption(
                    benchmark_id=pending[job].benchmark_id,
                    victim_id=canary_on[row].benchmark_id,
                    target_uid=batch.snapshot.uids[board],
                    priority=int(priorities.values[job]),
                    victim_priority=LOWEST,
                    threshold=ANY_PROGRESS,
                    progress=canary_on[row].progress or 0.0,
                    of_canary=True,
                )
    assignment = replace(
        assignment,
        board_of_job=board_of_job,
        job_of_board=job_of_board,
        explored={
            job: each
            for job, each in assignment.explored.items()
            if board_of_job[job] == assignment.board_of_job[job]
        },
        clearing=clearing,
    )
    plan = PreemptionPlan(preemptions=tuple(preemptions.values()), boards_to_clear=clearing)
    return assignment, plan


def equal_board(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    scores: Scores,
    timeline: Timeline,
    job: int,
    board: int,
    left: NDArray[np.bool_],
) -> int:
    """Return a board that a benchmark could have now instead of one, with the same score.

    Args:
        batch: Of the cycle, without canaries.
        pending: The benchmarks, in the batch's order.
        scores: Of the cycle.
        timeline: Boards that are reserved for others are not taken.
        job: Row of the benchmark.
        board: Row of its board.
        left: Shape (boards,): those that nobody got.

    Returns:
        Its row; `NO_ROW` for none. Boards that share cores are left alone.
    """
    row, pairs = int(batch.class_of_job[job]), scores.pairs
    its, own = pairs.of(row), pairs.at(row, board)
    if own is None or len(conflict_group(batch, board)) > 1:
        return NO_ROW
    each = pending[job]
    tried = batch.rows_of_uids(each.tried_uids | each.avoided_uids(batch.now))
    kept = [*timeline.due_boards.values(), *tried]
    boards = pairs.boards[its]
    equal = scores.combined[its] == scores.combined[own]
    open_ = left[boards] & equal & ~timeline.late_of(row)[boards] & ~np.isin(boards, kept)
    found = [other for other in boards[open_].tolist() if len(conflict_group(batch, other)) == 1]
    return min(found, default=NO_ROW)


def left_over(
    given: CycleInput, decided: Decisions, canaries: Sequence[PendingBenchmark]
) -> CycleInput:
    """Return the input of the cycle that decides on canaries, after all others.

    Args:
        given: The input of the cycle that decided on all other benchmarks.
        decided: The decisions of that cycle.
        canaries: Those that wait, each for the board that it names.

    Returns:
        A canary is not ready if its board, or one that shares cores with it, went to another
        benchmark, is held or cleared for one, or is reserved or leased within `KEPT_FREE`. Canaries
        that run hold their boards: none is preempted for another canary.
    """
    assignment, timeline = decided.assignment, decided.timeline
    taken = (assignment.job_of_board != NO_ROW) | (assignment.blocked_by != NO_ROW)
    kept = {*decided.preempted.boards_to_clear.values()}
    kept |= {board for board, at in timeline.next_starts.items() if at <= given.now + KEPT_FREE}
    kept |= set(timeline.due_boards.values())
    kept |= {each.board for each in assignment.planned.values()}
    kept |= {each.board for each in assignment.holds.values()}
    for board in kept:
        taken[conflict_group(decided.batch, board)] = True
    waiting = []
    for each in canaries:
        row = decided.batch.row_of_uid.get(each.target_uid or "")
        if row is not None and taken[row] and each.not_ready is None:
            each = replace(
                each, not_ready=waiting_reasons.kept_for_others(given.snapshot.uids[row])
            )
        waiting.append(each)
    holders = [replace(each, canary=False, preemptible=False) for each in given.holders]
    return replace(given, pending=waiting, holders=holders)


def canary_policy(policy: Policy) -> Policy:
    """Return the policy by which canaries get boards: that policy's filters, and nothing else.

    All have the lowest priority, first come first served. None is held back, and none is given a
    board that another one runs on.
    """
    return replace(
        policy,
        name="canaries",
        scorers=(),
        fallback=None,
        evaluator=None,
        planner=None,
        priority_mode=PriorityMode.FIFO,
        priority=replace(policy.priority, fifo=LOWEST),
        strict_priority=None,
        max_preemptions=0,
        max_joint_jobs=0,
        explore_share=0.0,
    )


def canary_plugins(plugins: Plugins) -> Plugins:
    """Return the plugins of `canary_policy`."""
    return replace(plugins, scorers=(), fallback=None, evaluator=None)
