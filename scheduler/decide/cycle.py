"""One decision: pending benchmarks and a snapshot in, placements and reasons out.

Pure: no clock, no I/O, no randomness but the seed's. The same arguments give the same result, in
whatever order benchmarks and boards are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.assign import BoardState, assign
from edgeyard.scheduler.decide.binding import STRICT, AllowLists, bindings_of
from edgeyard.scheduler.decide.canaries import (
    boards_of_canaries,
    equal_board,
    preempt_canaries,
    without_canaries,
)
from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.decide.explain import Explainer
from edgeyard.scheduler.decide.explore import Explorer
from edgeyard.scheduler.decide.feasibility import feasibility
from edgeyard.scheduler.decide.gangs import Gang, GangPlacer, find_gangs, together
from edgeyard.scheduler.decide.idle import boards_kept_idle
from edgeyard.scheduler.decide.ledgers import Ledgers, open_ledgers
from edgeyard.scheduler.decide.mapping import Mapper
from edgeyard.scheduler.decide.pins import PinVerdict
from edgeyard.scheduler.decide.planning import make_planner
from edgeyard.scheduler.decide.preempt import preempt
from edgeyard.scheduler.decide.priority import ages_s, priorities, slacks_s
from edgeyard.scheduler.decide.queue import build_queue, order_queue
from edgeyard.scheduler.decide.reservations import reserve
from edgeyard.scheduler.decide.scores import score
from edgeyard.scheduler.decide.waiting import WaitingReasons
from edgeyard.scheduler.framework.batch import NO_ROW, Batch, pairs_of
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.policy import MAPPINGS, Policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.framework.runner import Fault, PluginCall, PluginRunner
from edgeyard.scheduler.model.benchmark import Binding, WaitingReason, WaitReason
from edgeyard.scheduler.model.decision import (
    CycleInput,
    Explanation,
    KeptIdle,
    PendingBenchmark,
    Placement,
    Preemption,
)
from edgeyard.scheduler.prediction.cool_down import mark_cooling
from edgeyard.scheduler.prediction.timeline import Timeline


class CycleResult:
    """What was decided. Words are made when they are asked for; belongs to one thread.

    Attributes:
        order: Ids of all pending benchmarks, first in the queue to last.
        placements: In the order of the queue.
        preemptions: Whom to stop for whom, in the order of the queue.
        waiting: Why each of the others waits, by id.
        never: Ids of those that no known board could ever run; they are among the waiting.
        faults: Plugins that failed.
        overruns: Scorers that answered too late; empty without a clock.
        seconds: Time by plugin; empty without a clock.
        calls: Calls of plugins in the order of their ends; empty without a clock.
        rewards: By scorer.
        fallback: No scorer of the policy answered.
        decided: The arrays that all this comes from.
    """

    def __init__(self, decided: Decisions) -> None:
        self.decided = decided
        self._explainer = Explainer(decided)
        self._reasons = WaitingReasons(decided)
        self.waiting: Mapping[str, WaitReason] = self._reasons
        self.placements: tuple[Placement, ...] = _placements(decided)
        self.preemptions: tuple[Preemption, ...] = decided.preempted.preemptions
        self.faults: tuple[Fault, ...] = tuple(decided.runner.faults)
        self.overruns: tuple[Fault, ...] = tuple(decided.runner.overruns)
        self.seconds: Mapping[str, float] = dict(decided.runner.seconds)
        self.calls: tuple[PluginCall, ...] = tuple(decided.runner.calls)
        self.rewards: Mapping[str, float] = decided.scores.rewards
        self.fallback: bool = decided.scores.fallback

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Ids of the waiting benchmarks in queue order."""
        decided = self.decided
        return tuple(decided.pending[job].benchmark_id for job in decided.order.tolist())

    @cached_property
    def kept_idle(self) -> tuple[KeptIdle, ...]:
        """Boards that stand idle for a booking or a lease although a benchmark waits that fits."""
        return boards_kept_idle(self.decided)

    @cached_property
    def never(self) -> frozenset[str]:
        """Ids of the benchmarks that no known board can ever run."""
        decided = self.decided
        jobs = np.flatnonzero(decided.never[decided.batch.class_of_job])
        return frozenset(decided.pending[job].benchmark_id for job in jobs.tolist())

    @cached_property
    def _placement_of(self) -> Mapping[str, Placement]:
        return {each.benchmark_id: each for each in self.placements}

    def priority(self, benchmark_id: str) -> int:
        """Return the priority of a pending benchmark, 1-100.

        Raises:
            KeyError: It is none of this cycle's.
        """
        return int(self.decided.priorities.values[self.decided.row_of_id[benchmark_id]])

    def pin_verdict(self, benchmark_id: str) -> PinVerdict | None:
        """Judge a benchmark that waits; None: it is not pinned, or no board could ever run it.

        Raises:
            KeyError: It does not wait in this cycle.
        """
        return self._reasons.pin_verdict(benchmark_id)

    def explanation(self, benchmark_id: str) -> Explanation:
        """Return everything that was found out about one benchmark.

        Raises:
            KeyError: It is none of this cycle's.
        """
        placement = self._placement_of.get(benchmark_id)
        return self._explainer.explain(
            self.decided.row_of_id[benchmark_id],
            placement,
            None if placement is not None else self.waiting[benchmark_id],
        )


def decide(
    given: CycleInput,
    policy: Policy,
    plugins: Plugins,
    *,
    monotonic_s: Callable[[], float] | None = None,
    rewarded: Callable[[Mapping[str, float]], None] | None = None,
) -> CycleResult:
    """Decide who runs where, now.

    Args:
        given: None of its holders is stopped for one that waits unless
            `edgeyard.scheduler.decide.preempt` allows it, or it is a canary.
        policy: Constants of the decision.
        plugins: What the policy names, from `Registry.resolve`.
        monotonic_s: Clock to time plugins by; None: nothing is timed. No result depends on it.
        rewarded: Called with the evaluator's rewards, before the aggregator decides by them.
    """
    everybody, given = given.holders, without_canaries(given)
    pending, now = given.pending, given.now
    snapshot = mark_cooling(given.snapshot, given.knowledge.runs, now, policy.cool_down_s)
    runner = PluginRunner(monotonic_s, plugins.lock)
    batch = build_batch(
        snapshot,
        pending,
        now,
        given.seed,
        given.knowledge,
        policy.twin_max_age_s,
        policy.prediction_wait_s,
    )
    bindings = bindings_of(pending, policy, snapshot.age_s)
    ages, slacks = ages_s(pending, now), slacks_s(pending, now)
    bound = Binding.STRICT  # looked up once: an enum's members take their time
    strict = np.array([each is bound for each in bindings], dtype=bool)
    points = priorities(pending, ages, slacks, strict, policy)
    queue = build_queue(
        pending,
        now,
        points.values,
        ages,
        slacks,
        batch=batch,
        base_priorities=points.base,
        holders=given.holders,
        guard_s=policy.guard_s,
        mode=policy.priority_mode,
    )
    order = together(pending, order_queue(queue, plugins.queue_policy, runner))
    ready = np.array(
        [
            each.not_ready is None and (each.start_time is None or each.start_time <= now)
            for each in pending
        ],
        dtype=bool,
    )
    batch = batch.with_queue(order[ready[order]])
    found = feasibility(batch, plugins.filters, runner)
    scores = score(batch, pairs_of(found.fits), plugins, runner, rewarded)
    ledgers = open_ledgers(batch, plugins.filters, runner)

    def fits(cleared: Batch) -> NDArray[np.bool_]:
        return feasibility(cleared, plugins.filters, runner).fits

    def guarded() -> list[int]:
        """Return who could start now and is past the guard; also who another policy decides."""
        rows = np.flatnonzero(queue.guarded).tolist()
        could = [job for job in rows if ready[job] or pending[job].has_own_policy]
        could = [job for job in could if job not in gangs or may_hold(gangs[job])]
        return [job for job in could if ledgers.refusal(job) is None]

    gangs = find_gangs(pending, order, ready)
    gang_placer = GangPlacer(batch, given.holders, policy, fits)

    @cache
    def may_hold(gang: Gang) -> bool:
        if gang.waiting is not None or ledgers.refusal_together(gang.jobs) is not None:
            return False
        return gang_placer.may_hold(gang)

    def stopped(job: int) -> bool:
        state = pending[job].not_ready
        held = state is not None and state.reason is WaitingReason.HELD
        return held or ledgers.refusal(job) is not None

    timeline = Timeline(
        batch, policy, reserve(batch, pending, policy, given.holders, guarded, fits, stopped)
    )

    planner = make_planner(batch, pending, given.holders, policy, queue, timeline, scores, plugins)
    assignment = assign(
        BoardState(
            batch,
            pending,
            scores.pairs,
            scores.combined,
            ledgers,
            timeline,
            planner,
            queue.guarded,
            boards_of_canaries(batch, everybody),
        ),
        order[ready[order]],
        gangs=gangs,
        gang_placer=gang_placer,
        mapper=Mapper(batch, pending, given.holders, policy, fits, timeline)
        if policy.planner in MAPPINGS
        else None,
        explorer=Explorer(batch, pending, scores.pairs, scores.costs, policy.explore_share),
        max_joint_jobs=policy.max_joint_jobs,
    )
    assignment, for_canaries = preempt_canaries(
        batch,
        pending,
        points,
        gangs,
        assignment,
        everybody,
        partial(equal_board, batch, pending, scores, timeline),
    )
    unplaced = ready & (assignment.board_of_job == NO_ROW)
    unplaced[list(assignment.clearing)] = False
    unplaced[assignment.held] = False  # a board is free, and it waits for a better one
    unplaced[list(gangs)] = False  # one board is of no use to a gang
    preempted = preempt(
        batch,
        pending,
        _may_preempt_others(pending, order, unplaced, ledgers),
        points.values,
        given.holders if policy.max_preemptions else (),
        policy,
        fits,
        timeline.late_of,
        queue.guarded,
    )
    return CycleResult(
        Decisions(
            now=now,
            policy=policy,
            plugins=plugins,
            runner=runner,
            snapshot=snapshot,
            pending=pending,
            batch=batch,
            queue=queue,
            priorities=points,
            bindings=bindings,
            order=order,
            ready=ready,
            feasibility=found,
            scores=scores,
            timeline=timeline,
            assignment=assignment,
            planner=planner,
            preempted=for_canaries.joined(preempted),
            holders=given.holders,
        )
    )


def _may_preempt_others(
    pending: Sequence[PendingBenchmark],
    order: NDArray[np.intp],
    waiting: NDArray[np.bool_],
    ledgers: Ledgers,
) -> NDArray[np.intp]:
    """Return those that wait, first to last, without those whose users may have no more."""
    rows = order[waiting[order]]
    if not any(pending[job].job_completion_threshold for job in rows.tolist()):
        return rows
    return rows[[ledgers.refusal(job) is None for job in rows.tolist()]]


def _placements(decided: Decisions) -> tuple[Placement, ...]:
    pending, bindings, allowed = decided.pending, decided.bindings, AllowLists(decided)
    uids, families = decided.snapshot.uids, decided.snapshot.families
    order = decided.order
    placed = order[decided.assignment.board_of_job[order] != NO_ROW]
    strict = Binding.STRICT
    found = []
    for job, board, row, priority in zip(
        placed.tolist(),
        decided.assignment.board_of_job[placed].tolist(),
        decided.batch.class_of_job[placed].tolist(),
        decided.priorities.values[placed].tolist(),
        strict=True,
    ):
        each, bound = pending[job], bindings[job]
        confined = (
            STRICT
            if bound is strict and each.target_uid is None
            else allowed.of(job, row, board, bound)
        )
        found.append(
            Placement(
                benchmark_id=each.benchmark_id,
                target_uid=uids[board],
                family=families[board],
                binding=confined.binding,
                priority=priority,
                allowed_uids=confined.allowed_uids,
                binding_reason=confined.reason,
            )
        )
    return tuple(found)
