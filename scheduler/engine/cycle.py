"""One turn of the scheduler: look, decide, commit. The only place that places benchmarks."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from edgeyard.errors import ClusterUnreachable, ConcurrentUpdate, Conflict
from edgeyard.scheduler.clock import Stopwatches
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.decide.record import Recorder
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.charging import PROBER
from edgeyard.scheduler.engine.downloads import Download
from edgeyard.scheduler.engine.knowledge import gather
from edgeyard.scheduler.engine.outages import Outages
from edgeyard.scheduler.engine.pins import Pins, PinView
from edgeyard.scheduler.engine.plugin_lock import with_lock, with_max_wait
from edgeyard.scheduler.engine.policies import LoadedPolicy, Policies
from edgeyard.scheduler.engine.rewards import Scorekeeper, policy_key, recalled
from edgeyard.scheduler.framework.batch_builder import kind_of
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.protocols import ScorerKind
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.framework.runner import FAULT_CAUSES
from edgeyard.scheduler.model.attempt import Attempt, AttemptState, job_id_of
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    Binding,
    FailureCategory,
    FileRole,
    Status,
    WaitingReason,
    WaitReason,
)
from edgeyard.scheduler.model.cycle_record import ExplainingCycle
from edgeyard.scheduler.model.decision import (
    DECIDED_ELSEWHERE,
    BoardHolder,
    CycleInput,
    PendingBenchmark,
    Placement,
    Preemption,
)
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.ports import Clock, NodeSource, Store, UnitOfWork
from edgeyard.scheduler.prediction.history import PastRuns, variant_of
from edgeyard.scheduler.twin.twin import Twin

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

RETRY_BACKOFF_S = 10.0
MAX_RETRY_BACKOFF_S = 300.0
"""Before the first further try on a board that the benchmark names; each failure doubles it. Where
others may run it, another board is tried at once."""

FREE_LOSSES = 3
"""Attempts in a row that were lost with the server or their host and are tried again at once. After
further ones it waits as after failures: whether the server lives meanwhile shows who kills it."""

MAX_PREVIEW_WAIT_S = 10.0
"""Longest wait of a preview for a plugin that another decision uses."""

_RECENT_RUNS = 500
"""Ended runs whose boards may still report them."""

PLACED_TOGETHER = 100
"""Placements of one commit: while hundreds were written nobody else could write."""

EXPLAINED_TOGETHER = 250
"""Benchmarks of one transaction that says why they wait: submissions wait for its end."""

Observe = Callable[[str, float, Mapping[str, str]], None]
"""``observe(metric, value, labels)``: the engine tells figures without knowing who keeps them."""


@dataclass(frozen=True, slots=True)
class _Live:
    """A live benchmark with what the core needs of it.

    Attributes:
        queued_at: When it came into the queue last: submission, or the end of its last attempt.
        retry_at: Before then it is not tried again: on the board that it names, or, after losses,
            anywhere; None: at once.
    """

    benchmark: Benchmark
    pending: PendingBenchmark
    queued_at: datetime
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _ShadowInput:
    """A cycle that a shadow is to decide too."""

    given: CycleInput
    shadow: LoadedPolicy
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finished:
    """What the last transaction of a cycle's decisions did."""

    seq: int
    prepared: Sequence[tuple[Benchmark, Attempt]]
    preempted: Sequence[str]
    waiting_now: Sequence[Benchmark]


@dataclass(frozen=True, slots=True)
class QueueView:
    """The queue as the last cycle saw it, best first.

    Attributes:
        never: Those that no known board could ever run; they hold nobody up.
    """

    decided_at_iso: str
    policy: str
    order: tuple[str, ...]
    never: frozenset[str] = frozenset()


class Cycle:
    """Owns the queue's cache; runs on one thread, `preview` on any.

    Attributes:
        queue: As the last cycle saw it.
        decided: What the last cycle found out; None before the first.
        preempted: Job ids that the last cycle wants stopped; the reconciler does that.
    """

    def __init__(
        self,
        store: Store,
        twin: Twin,
        nodes: NodeSource,
        policy: Policy,
        plugins: Plugins,
        clock: Clock,
        observe: Observe,
        start_lead_s: float = 0.0,
        pin_grace_s: float = 300.0,
        max_run_s: float = lifecycle.DEFAULT_MAX_RUN_S,
        past: PastRuns | None = None,
        policies: Policies | None = None,
    ) -> None:
        """Nothing is read before `run`.

        Args:
            start_lead_s: How long before its start time a benchmark may be handed to the cluster,
                which then holds the start itself; 0: Edgeyard keeps it until it is due.
            pin_grace_s: See `edgeyard.scheduler.engine.pins`.
            max_run_s: Bound on a run that states no ``user_time``.
            past: Ended attempts; None: within the usual bounds.
            policies: Tells of another policy that is to decide; None: it stays this one.
        """
        self._store = store
        self._twin = twin
        self._nodes = nodes
        self._policy = policy
        self._plugins = with_lock(plugins)
        self._clock = clock
        self._observe = observe
        self._start_lead = timedelta(seconds=start_lead_s)
        self._pins = Pins(pin_grace_s, clock)
        self._max_run_s = max_run_s
        self._past = past or PastRuns()
        self._policies = policies
        self._live: dict[str, _Live] = {}
        self._attempts: Mapping[str, Attempt] = {}
        self._explained: dict[str, tuple[WaitReason, int]] = {}
        self._recorder = Recorder()
        self._scorekeeper = Scorekeeper()
        self._recorded: dict[str, tuple[object, ...]] = {}
        self._own: Mapping[str, LoadedPolicy] = {}
        self._last_seq: int | None = None
        self._beside: _ShadowInput | None = None
        self._seed = 0
        self._waits: Stopwatches[str] = Stopwatches(clock)
        self._looking = threading.Lock()
        self._outages = Outages()
        self.queue = QueueView("", policy.name, ())
        self.decided: Decisions | None = None
        self.preempted: tuple[str, ...] = ()

    def look(self) -> None:
        """Ask the cluster for its boards. Any thread."""
        try:
            with self._looking:  # what was asked first is not taken in last
                self._twin.refresh(self._nodes.hosts(), self._clock.now(), self._nodes.loads())
        except ClusterUnreachable as error:
            self._twin.missed(str(error))
            self._outages.failed("twin.missed", "the cluster did not answer", str(error))
        else:
            self._outages.succeeded("twin.missed")

    def run(
        self,
        hand_over: Callable[[Sequence[str]], object] = lambda job_ids: None,
        *,
        looked: bool = False,
    ) -> None:
        """Decide once and commit. What a shadow would have decided is left to `decide_shadow`.

        Args:
            hand_over: Takes the job ids of attempts that are prepared, to be dispatched, before
                others are told why they wait.
            looked: It has just been done.
        """
        began = self._clock.monotonic_s()
        if not looked:
            self.look()
        now = self._clock.now()
        with self._store.read() as uow:
            shadow = self._choose(uow)
            self._own = {} if self._policies is None else self._policies.own(uow)
            settles = self._scorekeeper.settles(uow, now)
        self.preempted = ()
        self._beside = None
        for chosen in dict.fromkeys(self._own.values()):
            self._turn(chosen, now, hand_over)
        main = LoadedPolicy(policy=self._policy, plugins=self._plugins)
        given, result = self._turn(main, now, hand_over)
        self.queue = QueueView(
            now.isoformat(), self._policy.name, tuple(result.order), result.never
        )
        self.decided = result.decided
        if shadow is not None and self._last_seq is not None:
            self._beside = _ShadowInput(given, shadow, self._last_seq)
        if settles:
            self._store.transact(
                lambda uow: self._scorekeeper.settle(uow, self._policy, self._plugins, now)
            )
        self._observe("cycle_seconds", self._clock.monotonic_s() - began, {})

    def _turn(
        self, chosen: LoadedPolicy, now: datetime, hand_over: Callable[[Sequence[str]], object]
    ) -> tuple[CycleInput, CycleResult]:
        """Decide all that this policy is to decide, and commit.

        Returns:
            What was given, and what came of it.
        """
        given, result, overdue = self._decide(chosen, now)
        self._commit(given, result, overdue, chosen, hand_over)
        self._twin.note_held({each.target_uid: now for each in result.placements})
        self._tell(result, chosen.plugins)
        return given, result

    def follow(self) -> None:
        """Decide as the leader's next cycle would, to answer questions; nothing is written."""
        self.look()
        now = self._clock.now()
        with self._store.read() as uow:
            self._choose(uow)
            self._own = {} if self._policies is None else self._policies.own(uow)
        _, result, _ = self._decide(LoadedPolicy(policy=self._policy, plugins=self._plugins), now)
        self.queue = QueueView(
            now.isoformat(), self._policy.name, tuple(result.order), result.never
        )
        self.decided = result.decided

    def _decide(
        self, chosen: LoadedPolicy, now: datetime
    ) -> tuple[CycleInput, CycleResult, Mapping[str, tuple[str, bool]]]:
        """Decide all that this policy is to decide.

        Returns:
            What was given, what came of it, and whose time is up, with the reason and whether it
            is the deadline.
        """
        with self._store.read() as uow:
            self._reload(uow)
            drained, holders = board_holds(uow)
            knowledge = self._gathered(uow, now)
            knowledge = self._scorekeeper.recall(uow, knowledge, chosen.policy, now)
            waiting_room = self._pending(uow, chosen)
            running = self._running(uow)
        self._note_held(knowledge.runs, holders, now)
        overdue = {
            benchmark_id: why
            for benchmark_id, live in self._live.items()
            if (why := self._overdue(live)) is not None
        }
        pending = [each for each in waiting_room if each.benchmark_id not in overdue]
        self._seed += 1
        given = CycleInput(
            snapshot=self._twin.snapshot(now, drained=drained, holders=holders),
            pending=pending,
            now=now,
            holders=running,
            knowledge=knowledge,
            seed=self._seed,
        )
        result = decide(given, chosen.policy, chosen.plugins, monotonic_s=self._clock.monotonic_s)
        return given, result, overdue

    def _note_held(self, runs: History, holders: Mapping[str, str], now: datetime) -> None:
        """Have the twin know whose the tasks may be that boards report."""
        held = dict.fromkeys(holders, now)
        if self._twin.reporting():  # mostly of what runs: few need a look at the past
            held = {each.target_uid: each.ended_at for each in runs[-_RECENT_RUNS:]} | held
        self._twin.note_held(held)

    def _choose(self, uow: UnitOfWork) -> LoadedPolicy | None:
        """Take up the policy that operators want; returns the one to decide beside it."""
        if self._policies is None:
            return None
        active, shadow = self._policies.current(uow)
        if active.policy is not self._policy:
            logger.info(
                "policy in use",
                extra={"event": "policy.active", "policy": active.policy.name},
            )
            self._policy, self._plugins = active.policy, active.plugins
        return shadow

    def decide_shadow(self) -> None:
        """Record what the shadow would have decided in the last cycle; nothing comes of it.

        Apart from `run`, so that a shadow that takes long holds up no attempt of that cycle. It has
        its own weights and is asked only of scorers that are not benched under it.
        """
        last, self._beside = self._beside, None
        if last is None:
            return
        policy, plugins, now = last.shadow.policy, last.shadow.plugins, last.given.now
        with self._store.read() as uow:
            knowledge = self._scorekeeper.recall(uow, last.given.knowledge, policy, now)
        given = replace(last.given, knowledge=knowledge)
        result = decide(given, policy, plugins, monotonic_s=self._clock.monotonic_s)
        record = self._recorder.record(given, result)

        def keep(uow: UnitOfWork) -> None:
            uow.cycles.add(record, shadow_of=last.seq)
            # Under the name and version of the one that decides, they would be held against it.
            if policy_key(policy) != policy_key(self._policy):
                self._scorekeeper.keep(uow, policy, plugins, result, {}, now)

        self._store.transact(keep)
        self._tell(result, plugins)

    def fetching(self) -> tuple[Download, ...]:
        """Downloads of pending benchmarks that miss a file."""
        return tuple(
            Download(benchmark_id, live.benchmark.user_id)
            for benchmark_id, live in self._live.items()
            if live.pending.not_ready is not None
            and live.pending.not_ready.reason is WaitingReason.FETCHING
            and live.benchmark.status is Status.PENDING
        )

    @property
    def alive(self) -> int:
        """How many benchmarks ran or waited when they were last looked at."""
        return len(self._live)

    def preview(
        self, candidate: PendingBenchmark, max_wait_s: float = MAX_PREVIEW_WAIT_S
    ) -> CycleResult:
        """Decide as if ``candidate`` were in the queue now; change nothing. Any thread.

        Args:
            candidate: The benchmark.
            max_wait_s: Longest wait for a plugin that another thread uses.

        Raises:
            Unavailable: A plugin was in use for longer.
        """
        now = self._clock.now()
        with self._store.read() as uow:
            drained, holders = board_holds(uow)
            knowledge = self._gathered(uow, now)
            active = LoadedPolicy(policy=self._policy, plugins=self._plugins)
            knowledge = recalled(uow, knowledge, active.policy, now)
            waiting_room = [*self._pending(uow, active), candidate]
            running = self._running(uow)
        return decide(
            CycleInput(
                snapshot=self._twin.snapshot(now, drained=drained, holders=holders),
                pending=waiting_room,
                now=now,
                holders=running,
                knowledge=knowledge,
                seed=self._seed,
            ),
            active.policy,
            with_max_wait(active.plugins, max_wait_s),
            monotonic_s=self._clock.monotonic_s,
        )

    def _overdue(self, live: _Live) -> tuple[str, bool] | None:
        """Why the benchmark's time is up, and whether its deadline is why; None while it is not."""
        benchmark, asked = live.benchmark, live.benchmark.description
        if asked.deadline is not None and self._clock.certain() >= asked.deadline:
            when = asked.deadline.isoformat()
            return f"its deadline {when} passed while it was {benchmark.status}", True
        waits = benchmark.status in (Status.PENDING, Status.SCHEDULED)  # until its task starts
        if not waits or asked.queue_timeout_s is None or self._clock.disagreement_s():
            return None
        due = max(live.queued_at, asked.start_time or live.queued_at)
        if self._waits.elapsed_s(benchmark.benchmark_id, due) < asked.queue_timeout_s:
            return None
        return f"it waited longer than its queue time-out of {asked.queue_timeout_s:g} s", False

    def load_past(self) -> None:
        """Read the past, which may take a moment: nobody else waits for it. Any thread."""
        with self._store.read() as uow:
            self._past.load(uow, self._clock.now())

    def _gathered(self, uow: UnitOfWork, now: datetime) -> Knowledge:
        runs = self._past.read(uow, now)
        return gather(uow, now, runs, self._max_run_s, self._twin.loads(now), self._clock.certain())

    def _reload(self, uow: UnitOfWork) -> None:
        """Bring the cache of live benchmarks up to date: only what changed is read."""
        versions = uow.benchmarks.live_versions()
        live = {key: value for key, value in self._live.items() if key in versions}
        changed = [
            benchmark_id
            for benchmark_id, version in versions.items()
            if benchmark_id not in live or live[benchmark_id].benchmark.version != version
        ]
        for benchmark in uow.benchmarks.get_many(changed):
            earlier = _earlier_attempts(uow, benchmark)
            live[benchmark.benchmark_id] = self._known(benchmark, earlier)
        # One assignment: `preview` reads this from other threads.
        self._live = live
        self._explained = {key: value for key, value in self._explained.items() if key in live}
        self._waits.retain(live.__contains__)

    def _remember(self, changed: Sequence[_Live]) -> None:
        """Our own changes, committed: the next cycle need not read them."""
        self._live = self._live | {each.benchmark.benchmark_id: each for each in changed}

    def _known(self, benchmark: Benchmark, earlier: Sequence[Attempt]) -> _Live:
        return _Live(
            benchmark,
            replace(
                pending_of(benchmark, _tried(earlier), self._start_lead),
                resting=_resting(benchmark, earlier),
            ),
            max([benchmark.submit_time, *(each.ended_at for each in earlier if each.ended_at)]),
            _retry_at(benchmark, earlier),
        )

    def _decides(self, chosen: LoadedPolicy, benchmark_id: str) -> bool:
        """Whether this policy decides that benchmark: its own does, the active one the others."""
        own = self._own.get(benchmark_id)
        return chosen.policy is (self._policy if own is None else own.policy)

    def _pending(self, uow: UnitOfWork, chosen: LoadedPolicy) -> list[PendingBenchmark]:
        """All that wait; whom another policy decides keeps its promises, but is not placed."""
        now = self._clock.now()
        found = [
            live.pending
            if live.retry_at is None or now >= live.retry_at
            else _backing_off(live.benchmark, live.pending, live.retry_at)
            for live in self._live.values()
            if live.benchmark.status is Status.PENDING
        ]
        if self._own:
            found = [
                each
                if self._decides(chosen, each.benchmark_id)
                else replace(each, not_ready=each.not_ready or DECIDED_ELSEWHERE)
                for each in found
            ]
        campaigns = sorted({each.campaign_id for each in found if each.campaign_id})
        if not campaigns:
            return found
        started = uow.campaigns.started(campaigns)
        return [
            replace(each, campaign_started=True) if each.campaign_id in started else each
            for each in found
        ]

    def _running(self, uow: UnitOfWork) -> tuple[BoardHolder, ...]:
        """Who holds boards, oldest first; of attempts only what changed is read."""
        versions = uow.attempts.live_versions()
        known = self._attempts
        kept = [
            attempt for job_id, attempt in known.items() if versions.get(job_id) == attempt.version
        ]
        same = {attempt.job_id for attempt in kept}
        changed = [job_id for job_id in versions if job_id not in same]
        attempts = sorted([*kept, *uow.attempts.live(changed)], key=lambda each: each.created_at)
        progress = uow.attempts.progress()  # changes no version
        attempts = [
            replace(each, progress=progress.get(each.job_id, each.progress)) for each in attempts
        ]
        # One assignment: `preview` does the same on other threads.
        self._attempts = {attempt.job_id: attempt for attempt in attempts}
        return tuple(
            self._holder(uow, attempt, attempt.target_uid)
            for attempt in attempts
            if attempt.target_uid is not None
        )

    def _holder(self, uow: UnitOfWork, attempt: Attempt, target_uid: str) -> BoardHolder:
        live = self._live.get(attempt.benchmark_id)  # None: it is at its end
        stopping = attempt.stopping
        return BoardHolder(
            benchmark_id=attempt.benchmark_id,
            target_uid=target_uid,
            priority=attempt.priority,
            progress=attempt.progress,
            preemptible=live is not None
            and live.benchmark.description.preemptible
            and attempt.state is AttemptState.RUNNING
            and attempt.board_is_known
            and attempt.result_at is None
            and not self._spared(uow, attempt),
            ending=live is None
            or stopping is not None
            or attempt.state is AttemptState.UPLOADING
            or attempt.result_at is not None,
            preempted=stopping is not None and stopping.category is FailureCategory.PREEMPTED,
            user_id="" if live is None else live.benchmark.user_id,
            started_at=attempt.started_at,
            kind=None if live is None else kind_of(live.pending),
            phase=attempt.phase,
            preemptible_measuring=live is not None
            and live.benchmark.description.preemptible_measuring,
            time_limit_s=attempt.time_limit_s,
            deadline=None if live is None else live.benchmark.description.deadline,
            strict=attempt.binding is Binding.STRICT,
        )

    def _spared(self, uow: UnitOfWork, attempt: Attempt) -> bool:
        """Whether it was preempted as often as may be."""
        most = self._policy.max_preemptions
        if attempt.number <= most:  # most need no query
            return False
        before = [each.failure for each in uow.attempts.of(attempt.benchmark_id)]
        preempted = [
            each
            for each in before
            if each is not None and each.category is FailureCategory.PREEMPTED
        ]
        return len(preempted) >= most

    def _commit(
        self,
        given: CycleInput,
        result: CycleResult,
        overdue: Mapping[str, tuple[str, bool]],
        chosen: LoadedPolicy,
        hand_over: Callable[[Sequence[str]], object],
    ) -> None:
        now = self._clock.now()
        told: dict[str, tuple[WaitReason, int]] = {}
        missed: dict[str, WaitReason] = {}
        since: dict[str, datetime | None] = {}
        for benchmark_id, found in result.waiting.items():
            if self._own and not self._decides(chosen, benchmark_id):
                continue
            benchmark = self._live[benchmark_id].benchmark
            pin = PinView(waiting=found)
            if benchmark_id not in result.never:
                pin = self._pins.look(benchmark, found)
            if pin.over:
                missed[benchmark_id] = found
            if pin.since != benchmark.unavailable_since:
                since[benchmark_id] = pin.since
            said = (pin.waiting, result.priority(benchmark_id))
            if self._explained.get(benchmark_id) != said or benchmark_id in since:
                told[benchmark_id] = said
        self._pins.forget_all_but(self._live)
        news = bool(result.placements or result.preemptions or told or missed or overdue)
        news = news or self._scorekeeper.has_news(result)
        key = policy_key(chosen.policy)
        shape = _shape(given)
        self._last_seq = None
        if not news and shape == self._recorded.get(key):
            return
        record = self._recorder.record(given, result)
        prepared: list[tuple[Benchmark, Attempt]] = []
        seq: int | None = None

        parts = _parts(told, EXPLAINED_TOGETHER)

        def rest(seq: int, placed: Mapping[str, int], uow: UnitOfWork) -> Sequence[Benchmark]:
            """Store what is learned of the cycle, and the first part of those that wait."""
            self._scorekeeper.keep(uow, chosen.policy, chosen.plugins, result, placed, now)
            return self._explain(uow, result, parts[0], missed, since, seq)

        def place(
            placements: Sequence[Placement], uow: UnitOfWork
        ) -> tuple[int, Sequence[tuple[Benchmark, Attempt]]]:
            kept = uow.cycles.add(record) if seq is None else seq
            return kept, self._prepare(uow, placements, kept)

        def finish(uow: UnitOfWork) -> _Finished:
            """The last placements, and what becomes of those that are not placed."""
            # Balances are locked after benchmarks, by all.
            placements = result.placements[last:]
            uow.benchmarks.lock(
                {
                    *overdue,
                    *(placement.benchmark_id for placement in placements),
                    *(each.victim_id for each in result.preemptions),
                    *(each.benchmark_id for each in result.preemptions),
                }
            )
            kept, more = place(placements, uow)
            for benchmark_id, (why, deadline) in overdue.items():
                _unless_changed(
                    partial(lifecycle.expire, uow, benchmark_id, now, why, deadline=deadline)
                )
            stopped = [
                _unless_changed(partial(self._preempt, uow, preemption))
                for preemption in result.preemptions
            ]
            return _Finished(
                seq=kept,
                prepared=more,
                preempted=[job_id for job_id in stopped if job_id is not None],
                waiting_now=() if prepared or more else rest(kept, {}, uow),
            )

        # All but the last of many: those of the last are committed with all else.
        last = max(0, len(result.placements) - 1) // PLACED_TOGETHER * PLACED_TOGETHER
        for start in range(0, last, PLACED_TOGETHER):
            few = result.placements[start : start + PLACED_TOGETHER]
            seq, more = self._store.transact(partial(place, few))
            prepared += more
        done = self._store.transact(finish)
        seq = self._last_seq = done.seq
        prepared += done.prepared
        placed = {each.benchmark_id: each.number for _, each in prepared}
        waiting_now = done.waiting_now
        self._recorded[key] = shape
        self.preempted += tuple(done.preempted)
        if placed:
            self._remember(
                [
                    replace(self._live[benchmark.benchmark_id], benchmark=benchmark)
                    for benchmark, _ in prepared
                ]
            )
            for benchmark_id in placed:  # one that comes back to the queue is told anew
                self._explained.pop(benchmark_id, None)
            hand_over([attempt.job_id for _, attempt in prepared])
            waiting_now = self._store.transact(partial(rest, seq, placed))
        for part in parts[1:]:
            explain = partial(
                self._explain, result=result, told=part, missed={}, since=since, seq=seq
            )
            waiting_now = [*waiting_now, *self._store.transact(explain)]
        self._remember([replace(self._live[w.benchmark_id], benchmark=w) for w in waiting_now])
        self._explained |= told
        self._pins.acted_on(missed)
        counts = {"placed": len(prepared), "preempted": len(done.preempted), "waiting": len(told)}
        for name, count in counts.items():
            self._observe("decisions_total", count, {"policy": chosen.policy.name, "result": name})

    def _explain(
        self,
        uow: UnitOfWork,
        result: CycleResult,
        told: Mapping[str, tuple[WaitReason, int]],
        missed: Mapping[str, WaitReason],
        since: Mapping[str, datetime | None],
        seq: int,
    ) -> Sequence[Benchmark]:
        """Say of those that wait why they do; as they are now."""
        now = self._clock.now()
        waits = [
            (
                replace(known, unavailable_since=since.get(each, known.unavailable_since)),
                *said,
            )
            for each, said in told.items()
            for known in [self._live[each].benchmark]
        ]
        waiting_now = lifecycle.wait(uow, waits, now)
        for benchmark in waiting_now:
            waiting, _ = told[benchmark.benchmark_id]
            own = waiting == result.waiting[benchmark.benchmark_id]
            explained = ExplainingCycle(seq=seq, waiting=None if own else waiting)
            uow.cycles.explain(benchmark.benchmark_id, explained)
        for benchmark_id, waiting in missed.items():
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
            benchmark = self._live[placement.benchmark_id].benchmark
            number = last_numbers.get(benchmark.benchmark_id, 0) + 1
            wanted.append((benchmark, _attempt(benchmark, placement, number, now)))
        prepared = lifecycle.prepare(uow, wanted, now, max_run_s=self._max_run_s)
        for _, attempt in prepared:
            uow.cycles.explain(attempt.benchmark_id, ExplainingCycle(seq=seq))
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

    def _tell(self, result: CycleResult, plugins: Plugins) -> None:
        """Logs and figures of the plugins."""
        for fault in (*result.faults, *result.overruns):
            logger.error("plugin failed", extra={"event": "plugin.fault", "fault": str(fault)})
        for seat in plugins.scorers:
            name = seat.scorer.name
            if name in result.seconds:
                self._observe("scorer_seconds", result.seconds[name], {"scorer": name})
            for cause in FAULT_CAUSES:
                count = sum(
                    each.plugin == name and each.cause == cause
                    for each in (*result.faults, *result.overruns)
                )
                labels = {"scorer": name, "cause": cause}
                self._observe("scorer_failures_total", count, labels)
        for proposal in result.decided.scores.proposals:
            if proposal.kind is ScorerKind.ILP:
                for fact, metric in (("seconds", "ilp_seconds"), ("gap", "ilp_gap_ratio")):
                    if fact in proposal.facts:
                        labels = {"scorer": proposal.scorer}
                        self._observe(metric, proposal.facts[fact], labels)

    def _preempt(self, uow: UnitOfWork, preemption: Preemption) -> str:
        attempt = lifecycle.preempt(uow, preemption, self._clock.now())
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
        return attempt.job_id


def board_holds(uow: UnitOfWork) -> tuple[dict[str, str], dict[str, str]]:
    """Why each drained board is drained, and which benchmark holds each held one."""
    drained = {
        uid: override.reason
        for uid, override in uow.board_overrides.all().items()
        if override.drained
    }
    return drained, dict(uow.attempts.holders())


def pending_of(
    benchmark: Benchmark,
    tried_uids: frozenset[str] = frozenset(),
    start_lead: timedelta = timedelta(0),
) -> PendingBenchmark:
    """What the core needs of a benchmark."""
    asked = benchmark.description
    not_ready = None
    if benchmark.held:
        not_ready = WaitReason(
            reason=WaitingReason.HELD,
            sentence="its owner or an operator has to release it: edgeyard release ID",
        )
    elif missing := [file for file in benchmark.files if file.sha256 is None]:
        names = ", ".join(file.name for file in missing)
        not_ready = WaitReason(
            reason=WaitingReason.FETCHING, sentence=f"{names} is being downloaded"
        )
    start_time = asked.start_time
    if start_time is not None:
        # Who had a board has had its start: what is tried again waits like all others.
        start_time = None if benchmark.target_uid is not None else start_time - start_lead
    return PendingBenchmark(
        benchmark_id=benchmark.benchmark_id,
        user_id=benchmark.user_id,
        submit_time=benchmark.submit_time,
        family=asked.family,
        engine=asked.runtime,
        benchmark_type=asked.benchmark_type,
        ram_bytes=asked.ram,
        storage_bytes=asked.storage,
        target_uid=None if benchmark.unpinned else asked.target_uid,
        constraints=asked.constraints,
        user_priority=benchmark.user_priority or asked.user_priority,
        deadline=asked.deadline,
        start_time=start_time,
        user_time_s=asked.user_time_s,
        binding=asked.binding,
        not_ready=not_ready,
        campaign_id=benchmark.campaign_id,
        tried_uids=tried_uids,
        model_sha256=next(
            (file.sha256 for file in benchmark.files if file.role is FileRole.MODEL), None
        ),
        job_completion_threshold=asked.job_completion_threshold,
        nb_inference=asked.nb_inference,
        variant=variant_of(benchmark),
        budget=asked.user_budget,
        probe=benchmark.user_id == PROBER,
        model_bytes=next(
            (file.size_bytes for file in benchmark.files if file.role is FileRole.MODEL), None
        ),
    )


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


def _earlier_attempts(uow: UnitOfWork, benchmark: Benchmark) -> Sequence[Attempt]:
    # A benchmark that never had an attempt has no board: most need no query.
    if benchmark.status is Status.RUNNING or benchmark.target_uid is None:
        return ()
    return uow.attempts.of(benchmark.benchmark_id)


def _retry_at(benchmark: Benchmark, attempts: Sequence[Attempt]) -> datetime | None:
    """From when on it is tried again: after failures on the board that it names, or losses."""
    times: list[datetime] = []
    ends = [each.ended_at for each in attempts if each.ended_at is not None]
    if ends and benchmark.lost_in_a_row > FREE_LOSSES:
        times.append(max(ends) + _backoff(benchmark.lost_in_a_row - FREE_LOSSES))
    failures = [end for ends_there in _failures_by_board(attempts).values() for end in ends_there]
    if failures and _is_pinned(benchmark):
        times.append(max(failures) + _backoff(len(failures)))
    return max(times, default=None)


def _is_pinned(benchmark: Benchmark) -> bool:
    return benchmark.description.target_uid is not None and not benchmark.unpinned


def _failures_by_board(attempts: Sequence[Attempt]) -> Mapping[str | None, Sequence[datetime]]:
    """When attempts failed that count, by board; None where it is not known."""
    found: defaultdict[str | None, list[datetime]] = defaultdict(list)
    for each in attempts:
        if each.counts and each.failure is not None and each.ended_at is not None:
            found[each.target_uid].append(each.ended_at)
    return found


def _resting(benchmark: Benchmark, attempts: Sequence[Attempt]) -> tuple[tuple[str, datetime], ...]:
    """Boards that failed it, and until when it goes to others or waits; see `_retry_at`."""
    if _is_pinned(benchmark):
        return ()
    return tuple(
        (uid, max(ends) + _backoff(len(ends)))
        for uid, ends in _failures_by_board(attempts).items()
        if uid is not None
    )


def _backoff(count: int) -> timedelta:
    return timedelta(seconds=min(RETRY_BACKOFF_S * 2.0 ** (count - 1), MAX_RETRY_BACKOFF_S))


def _backing_off(benchmark: Benchmark, pending: PendingBenchmark, at: datetime) -> PendingBenchmark:
    if benchmark.lost_in_a_row > FREE_LOSSES:
        why = (
            f"the server or its host died {benchmark.lost_in_a_row} times in a row while it ran; "
            "it is tried again at"
        )
    else:
        why = f"its last attempt on {pending.target_uid} failed; it is tried there again at"
    waiting = WaitReason(reason=WaitingReason.START_TIME, sentence=f"{why} {at:%Y-%m-%dT%H:%M:%SZ}")
    return replace(pending, not_ready=pending.not_ready or waiting)


def _tried(attempts: Sequence[Attempt]) -> frozenset[str]:
    return frozenset(
        attempt.target_uid
        for attempt in attempts
        if attempt.target_uid is not None
        and attempt.failure is not None
        # also a board that never took the job: the cluster may know more than the twin
        and (attempt.counts or (attempt.queued_at is not None and attempt.started_at is None))
    )


def _parts(told: Mapping[str, _T], size: int) -> Sequence[Mapping[str, _T]]:
    """Split a mapping into parts of at most ``size``; there is always a first one."""
    items = list(told.items())
    return [dict(items[start : start + size]) for start in range(0, max(len(items), 1), size)]


def _shape(given: CycleInput) -> tuple[object, ...]:
    """What tells cycles apart though they say nothing new: who waits, who runs, and on what."""
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
    """Do it unless somebody else moved the benchmark since the cycle looked at it."""
    try:
        return change()
    except ConcurrentUpdate:
        raise  # the whole unit of work is tried again
    except Conflict:
        return None
