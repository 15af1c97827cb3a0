"""Canaries in decisions: below all ageing, on boards that nobody else wants, gone at once.

A cycle decides on all other benchmarks as if there were no canaries: a board that one holds counts
as free, and those that share cores with it do. A benchmark that is given such a board has the
canary stopped, whatever that one has done so far, and waits for no more than its end; the board is
reserved for it until then. What is left when all others are served is handed to the canaries that
wait (`left_over`), which are decided by `canary_policy` as a cycle of their own.

So a canary changes neither the order of the others nor the board that any of them gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np

from edgeyard.scheduler.decide.assign import Assignment
from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.decide.gangs import Gang
from edgeyard.scheduler.decide.preempt import PreemptionPlan
from edgeyard.scheduler.decide.priority import LOWEST, Priorities
from edgeyard.scheduler.framework.batch import NO_ROW, Batch
from edgeyard.scheduler.framework.policy import Policy, PriorityMode
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.model.decision import (
    BoardHolder,
    CycleInput,
    PendingBenchmark,
    Preemption,
    Snapshot,
)
from edgeyard.scheduler.prediction.timeline import conflict_group

ANY_PROGRESS = 100
"""Threshold of those for which a canary makes way: it is stopped whatever it has done."""

KEPT_FREE = timedelta(minutes=10)
"""Before a reservation or a lease begins a board gets no canary for so long."""


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


def make_way(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    priorities: Priorities,
    gangs: Mapping[int, Gang],
    assignment: Assignment,
    holders: Sequence[BoardHolder],
) -> tuple[Assignment, PreemptionPlan]:
    """Let those wait whose boards canaries hold, and have these canaries stopped.

    Args:
        batch: Of the cycle, without canaries.
        pending: The benchmarks, in the batch's order.
        priorities: Of these.
        gangs: The gang of each benchmark that has one, by row: all of it starts at once.
        assignment: As if no canary ran.
        holders: Live attempts that have a board, canaries or not.

    Returns:
        The assignment, in which these benchmarks have no board and no other has theirs; and whom
        to stop for them. Of a gang no board is reserved, as for any preemption.
    """
    row_of_uid = batch.row_of_uid
    canary_on = {
        row_of_uid[each.target_uid]: each
        for each in holders
        if each.canary and each.target_uid in row_of_uid
    }
    if not canary_on:
        return assignment, PreemptionPlan()
    board_of_job = assignment.board_of_job.copy()
    clearing: dict[int, int] = {}
    for job in np.flatnonzero(board_of_job != NO_ROW).tolist():
        board = int(board_of_job[job])
        if any(row in canary_on for row in conflict_group(batch, board)):
            together = gangs[job].jobs if job in gangs else (job,)
            clearing.update({each: int(board_of_job[each]) for each in together})
    preemptions: dict[int, Preemption] = {}
    for job, board in clearing.items():
        board_of_job[job] = NO_ROW
        for row in conflict_group(batch, board):
            if row in canary_on and not canary_on[row].ending and row not in preemptions:
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
    explored = {job: each for job, each in assignment.explored.items() if job not in clearing}
    assignment = replace(
        assignment, board_of_job=board_of_job, explored=explored, clearing=clearing
    )
    plan = PreemptionPlan(preemptions=tuple(preemptions.values()), boards_to_clear=clearing)
    return assignment, plan


def left_over(
    given: CycleInput, decided: Decisions, canaries: Sequence[PendingBenchmark]
) -> CycleInput:
    """Return the input of the cycle that decides on canaries, after all others.

    Args:
        given: Of the cycle of the others.
        decided: What that one found.
        canaries: Those that wait.

    Returns:
        Boards count as busy that the others got, that are kept or cleared for one of them, or on
        which a reservation or a lease begins within `KEPT_FREE`. Canaries that run hold theirs:
        none makes way for another one.
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
    snapshot = given.snapshot
    reasons = tuple(
        "kept for another benchmark" if row_taken and not busy else reason
        for row_taken, busy, reason in zip(
            taken.tolist(), snapshot.busy.tolist(), snapshot.reasons, strict=True
        )
    )
    snapshot = replace(snapshot, busy=snapshot.busy | taken, reasons=reasons)
    holders = [replace(each, canary=False, preemptible=False) for each in given.holders]
    return replace(given, snapshot=snapshot, pending=list(canaries), holders=holders)


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
