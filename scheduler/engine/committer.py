"""Stores what a cycle decided: placements first, then why the others wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from edgeyard.errors import ConcurrentUpdate, Conflict
from edgeyard.scheduler.decide.pins import PinnedBoard, PinVerdict
from edgeyard.scheduler.decide.record import Recorder
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.cycle_outcome import PolicyCommit
from edgeyard.scheduler.engine.decider import CyclePolicies, Decision
from edgeyard.scheduler.engine.pins import PinTimers
from edgeyard.scheduler.engine.queue_cache import Expiry, QueueCache
from edgeyard.scheduler.engine.rewards import Scorekeeper, policy_key
from edgeyard.scheduler.model.attempt import Attempt, AttemptState, job_id_of
from edgeyard.scheduler.model.benchmark import Benchmark, Status, WaitReason
from edgeyard.scheduler.model.cycle_record import CycleRecord
from edgeyard.scheduler.model.decision import CycleInput, Placement, Preemption
from edgeyard.scheduler.model.tariff import Tariff
from edgeyard.scheduler.ports import Clock, Store, UnitOfWork

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

MAX_PLACEMENTS_PER_COMMIT = 100
"""Others can write between two commits: one with hundreds of placements blocked them."""

MAX_REASONS_PER_COMMIT = 250
"""Benchmarks of one transaction that stores why they wait: submissions wait for its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommittedPlacements:
    """What the last transaction of a policy's placements did."""

    seq: int
    prepared: Sequence[tuple[Benchmark, Attempt]]
    preempted: Sequence[str]
    urgent: Sequence[Benchmark]
    expired: Sequence[str]
    waiting_now: Sequence[Benchmark] | None


class Committer:
    """Commits the decisions of cycles. One thread."""

    def __init__(
        self,
        store: Store,
        cache: QueueCache,
        scorekeeper: Scorekeeper,
        pins: PinTimers,
        clock: Clock,
        max_run_s: float,
        tariff: Tariff,
    ) -> None:
        """Commit nothing yet.

        Args:
            max_run_s: Bound on a run that states no ``user_time``, seconds.
            tariff: Factors on the rates by hour of the day.
        """
        self._store = store
        self._cache = cache
        self._scorekeeper = scorekeeper
        self._pins = pins
        self._clock = clock
        self._max_run_s, self._tariff = max_run_s, tariff
        self._recorder = Recorder()
        self._recorded: dict[str, tuple[object, ...]] = {}
        self._explained: dict[str, tuple[WaitReason, int]] = {}

    def place(self, decision: Decision, policies: CyclePolicies) -> PolicyCommit:
        """Commit placements, preemptions and expiries, and the record of the cycle.

        Why the others wait is stored here where nothing was placed, and by `explain` otherwise, so
        that what was placed can be dispatched first.
        """
        commit = self._judged(decision, policies)
        key, shape = policy_key(decision.policy.policy), _shape(decision.given)
        if not self._has_news(commit, decision) and shape == self._recorded.get(key):
            return commit
        record = self._recorder.record(decision.given, decision.result)
        commit, waiting_now = self._stored(commit, decision, record)
        self._recorded[key] = shape
        for attempt in commit.placed:  # one that comes back to the queue is explained anew
            self._explained.pop(attempt.benchmark_id, None)
        self._cache.update(waiting_now or ())
        return replace(commit, explained_parts=0 if waiting_now is None else 1)

    def explain(self, commits: Sequence[PolicyCommit]) -> None:
        """Store what `place` left: why benchmarks wait, and what was learned of scorers."""
        for commit in commits:
            if commit.seq is None:
                continue
            parts = _parts(commit.new_reasons, MAX_REASONS_PER_COMMIT)
            for number in range(commit.explained_parts, len(parts)):
                work = partial(self._explain, commit=commit, part=parts[number], first=number == 0)
                self._cache.update(self._store.transact(work))
            self._explained |= commit.new_reasons
            self._pins.acted_on(commit.pin_timeouts)

    def add_shadow(self, decision: Decision, shadow_of: int, *, learn: bool) -> None:
        """Record what a shadow policy decided.

        Args:
            decision: Of the shadow.
            shadow_of: Number of the cycle that was committed.
            learn: Faults of its scorers count.
        """
        record = self._recorder.record(decision.given, decision.result)
        policy, now = decision.policy, decision.given.now

        def store(uow: UnitOfWork) -> None:
            uow.cycles.add(record, shadow_of=shadow_of)
            if learn:
                self._scorekeeper.keep(uow, policy.policy, policy.plugins, decision.result, {}, now)

        self._store.transact(store)

    def _judged(self, decision: Decision, policies: CyclePolicies) -> PolicyCommit:
        """Find out what is new of those that wait."""
        result = decision.result
        waiting: dict[str, WaitReason] = {}
        new_reasons: dict[str, tuple[WaitReason, int]] = {}
        timeouts: dict[str, WaitReason] = {}
        since: dict[str, datetime | None] = {}
        live = self._cache.live
        self._explained = {key: each for key, each in self._explained.items() if key in live}
        for benchmark_id, found in result.waiting.items():
            if policies.own and not policies.decides(decision.policy, benchmark_id):
                continue
            benchmark = live[benchmark_id].benchmark
            verdict = result.pin_verdict(benchmark_id)
            unavailable_since = self._unavailable_since(benchmark, verdict)
            if verdict is not None and verdict.timed_out:
                timeouts[benchmark_id] = verdict.reason
            if unavailable_since != benchmark.unavailable_since:
                since[benchmark_id] = unavailable_since
            waiting[benchmark_id] = found
            reason = (found, result.priority(benchmark_id))
            if self._explained.get(benchmark_id) != reason or benchmark_id in since:
                new_reasons[benchmark_id] = reason
        return PolicyCommit(
            policy=decision.policy,
            given=decision.given,
            result=result,
            waiting=waiting,
            new_reasons=new_reasons,
            pin_timeouts=timeouts,
            unavailable_since=since,
        )

    def _unavailable_since(
        self, benchmark: Benchmark, verdict: PinVerdict | None
    ) -> datetime | None:
        """Return since when the board that a benchmark names is unavailable; None: it is not."""
        if verdict is None:
            return None
        if verdict.board is PinnedBoard.AVAILABLE:
            self._pins.available(benchmark.benchmark_id)
            return None
        if verdict.board is PinnedBoard.UNKNOWN:
            return benchmark.unavailable_since
        return benchmark.unavailable_since or self._clock.now()

    def _has_news(self, commit: PolicyCommit, decision: Decision) -> bool:
        result = decision.result
        return (
            bool(result.placements or result.preemptions or decision.expired)
            or bool(commit.new_reasons or commit.pin_timeouts)
            or self._scorekeeper.has_news(result)
        )

    def _stored(
        self, commit: PolicyCommit, decision: Decision, record: CycleRecord
    ) -> tuple[PolicyCommit, Sequence[Benchmark] | None]:
        """Commit all but reasons, unless nothing was placed.

        Returns:
            The commit with what was committed, and the benchmarks whose reasons were stored as they
            are now; None where `explain` has still to store the first part of them.
        """
        placements = decision.result.placements
        prepared: list[tuple[Benchmark, Attempt]] = []
        seq: int | None = None

        def place(
            some: Sequence[Placement], uow: UnitOfWork
        ) -> tuple[int, Sequence[tuple[Benchmark, Attempt]]]:
            recorded = uow.cycles.add(record) if seq is None else seq
            return recorded, self._prepare(uow, some, recorded)

        def finish(uow: UnitOfWork) -> _CommittedPlacements:
            """Commit the last placements, and what happens to those that are not placed."""
            preemptions = decision.result.preemptions
            uow.benchmarks.lock(  # balances are locked after benchmarks, by all
                {
                    *decision.expired,
                    *(placement.benchmark_id for placement in rest),
                    *(each.victim_id for each in preemptions),
                    *(each.benchmark_id for each in preemptions),
                }
            )
            recorded, more = place(rest, uow)
            expired = self._expire(uow, decision)
            done = [_unless_changed(partial(self._preempt, uow, each)) for each in preemptions]
            stopped = [each for each in done if each is not None]
            urgent = [each for _, each in stopped]
            waiting_now = None
            if not prepared and not more:
                part = _parts(commit.new_reasons, MAX_REASONS_PER_COMMIT)[0]
                current = replace(commit, seq=recorded)
                waiting_now = self._explain(
                    uow, commit=current, part=part, first=True, changed=urgent
                )
            return _CommittedPlacements(
                seq=recorded,
                prepared=more,
                preempted=[attempt.job_id for attempt, _ in stopped],
                urgent=urgent,
                expired=expired,
                waiting_now=waiting_now,
            )

        # All but the last of many: those of the last are committed with all else.
        *parts, rest = _placement_parts(placements, self._gang_of)
        for some in parts:
            seq, more = self._store.transact(partial(place, some))
            prepared += more
        done = self._store.transact(finish)
        prepared += done.prepared
        self._cache.update([*done.urgent, *(benchmark for benchmark, _ in prepared)])
        placed = {attempt.benchmark_id for _, attempt in prepared}
        commit = replace(
            commit,
            seq=done.seq,
            placed=tuple(attempt for _, attempt in prepared),
            refused=tuple(
                each.benchmark_id for each in placements if each.benchmark_id not in placed
            ),
            preempted=tuple(done.preempted),
            expired=tuple(done.expired),
        )
        return commit, done.waiting_now

    def _gang_of(self, benchmark_id: str) -> str | None:
        """Return the gang with which a benchmark starts; None: it starts by itself."""
        benchmark = self._cache.live[benchmark_id].benchmark
        return benchmark.gang_id if benchmark.waits_for_gang else None

    def _explain(
        self,
        uow: UnitOfWork,
        commit: PolicyCommit,
        part: Mapping[str, tuple[WaitReason, int]],
        first: bool,
        changed: Sequence[Benchmark] = (),
    ) -> Sequence[Benchmark]:
        """Store why benchmarks wait; with the first part also what is learned of the cycle.

        Args:
            uow: In which it is stored.
            commit: Of the policy that decided.
            part: Reasons and priorities by benchmark.
            first: Whether it is the first part.
            changed: Benchmarks that this unit of work has changed.

        Returns:
            The benchmarks as they are now.
        """
        assert commit.seq is not None
        now = self._clock.now()
        if first:
            policy = commit.policy
            placed = {attempt.benchmark_id: attempt.number for attempt in commit.placed}
            self._scorekeeper.keep(
                uow, policy.policy, policy.plugins, commit.result, placed, commit.given.now
            )
        waits = []
        live = self._cache.live
        current_by_id = {each.benchmark_id: each for each in changed}
        for benchmark_id, (waiting, priority) in part.items():
            if benchmark_id not in live:  # it ended while another policy decided
                continue
            known = current_by_id.get(benchmark_id, live[benchmark_id].benchmark)
            since = commit.unavailable_since.get(benchmark_id, known.unavailable_since)
            waits.append((replace(known, unavailable_since=since), waiting, priority))
        waiting_now = lifecycle.wait(uow, waits, now)
        for benchmark in waiting_now:
            uow.cycles.explain(benchmark.benchmark_id, commit.seq)
        for benchmark_id, waiting in commit.pin_timeouts.items() if first else ():
            current = uow.benchmarks.get(benchmark_id)
            if current.status is Status.PENDING and not current.unpinned:
                lifecycle.unavailable(uow, current, waiting, now)
        return waiting_now

    def _prepare(
        self, uow: UnitOfWork, placements: Sequence[Placement], seq: int
    ) -> Sequence[tuple[Benchmark, Attempt]]:
        now = self._clock.now()
        last_numbers = uow.attempts.last_numbers([each.benchmark_id for each in placements])
        wanted: list[tuple[Benchmark, Attempt]] = []
        for placement in placements:
            benchmark = self._cache.live[placement.benchmark_id].benchmark
            number = last_numbers.get(benchmark.benchmark_id, 0) + 1
            wanted.append((benchmark, _attempt(benchmark, placement, number, now)))
        prepared = lifecycle.prepare(
            uow, wanted, now, max_run_s=self._max_run_s, tariff=self._tariff
        )
        for _, attempt in prepared:
            uow.cycles.explain(attempt.benchmark_id, seq)
            logger.info(
                "benchmark placed",
                extra={
                    "event": "placed",
                    "benchmark_id": attempt.benchmark_id,
                    "job_id": attempt.job_id,
                    "target_uid": attempt.target_uid,
                },
            )
        return prepared

    def _expire(self, uow: UnitOfWork, decision: Decision) -> Sequence[str]:
        """End the benchmarks whose time is up; return those that had not ended by themselves."""
        now = self._clock.now()

        def end(benchmark_id: str, expiry: Expiry) -> Benchmark:
            if expiry.with_gang:
                return lifecycle.cancel_with_gang(uow, benchmark_id, now, expiry.sentence)
            return lifecycle.expire(
                uow, benchmark_id, now, expiry.sentence, deadline=expiry.deadline
            )

        ended = [
            _unless_changed(partial(end, each, expiry)) for each, expiry in decision.expired.items()
        ]
        return [benchmark.benchmark_id for benchmark in ended if benchmark is not None]

    def _preempt(self, uow: UnitOfWork, preemption: Preemption) -> tuple[Attempt, Benchmark]:
        stop = lifecycle.preempt_canary if preemption.of_canary else lifecycle.preempt
        attempt, urgent = stop(uow, preemption, self._clock.now())
        logger.info(
            "benchmark preempted",
            extra={
                "event": "preempted",
                "benchmark_id": preemption.victim_id,
                "by": preemption.benchmark_id,
                "job_id": attempt.job_id,
                "target_uid": preemption.target_uid,
            },
        )
        return attempt, urgent


def _attempt(benchmark: Benchmark, placement: Placement, number: int, now: datetime) -> Attempt:
    return Attempt(
        benchmark_id=benchmark.benchmark_id,
        number=number,
        job_id=job_id_of(
            benchmark.benchmark_id,
            number,
            placement.family,
            benchmark.description.runtime,
            benchmark.submit_time,
        ),
        state=AttemptState.PREPARED,
        binding=placement.binding,
        priority=placement.priority,
        created_at=now,
        family=placement.family,
        target_uid=placement.target_uid,
        allowed_uids=placement.allowed_uids,
    )


def _parts(reasons: Mapping[str, _T], size: int) -> Sequence[Mapping[str, _T]]:
    """Split a mapping into parts of at most ``size``; there is always a first one."""
    items = list(reasons.items())
    return [dict(items[start : start + size]) for start in range(0, max(len(items), 1), size)]


def _placement_parts(
    placements: Sequence[Placement], gang_of: Callable[[str], str | None]
) -> Sequence[Sequence[Placement]]:
    """Split placements into parts of `MAX_PLACEMENTS_PER_COMMIT`; there is always a first one.

    The placements of a gang stay together, so that a part may be larger by those of one gang.
    """
    by_gang: dict[str, list[Placement]] = {}
    for each in placements:  # a benchmark without a gang is one by itself
        by_gang.setdefault(gang_of(each.benchmark_id) or each.benchmark_id, []).append(each)
    parts: list[list[Placement]] = [[]]
    for together in by_gang.values():
        if len(parts[-1]) >= MAX_PLACEMENTS_PER_COMMIT:
            parts.append([])
        parts[-1] += together
    return parts


def _shape(given: CycleInput) -> tuple[object, ...]:
    """Return what makes a cycle worth a record though it decided nothing new."""
    snapshot = given.snapshot
    return (
        frozenset(each.benchmark_id for each in given.pending),
        frozenset(each.benchmark_id for each in given.holders),
        snapshot.uids,
        *(
            column.tobytes()
            for column in (snapshot.online, snapshot.healthy, snapshot.drained, snapshot.busy)
        ),
    )


def _unless_changed(change: Callable[[], _T]) -> _T | None:
    """Make a change unless another transaction moved the benchmark since the decision."""
    try:
        return change()
    except ConcurrentUpdate:
        raise  # the whole unit of work is tried again
    except Conflict:
        return None
