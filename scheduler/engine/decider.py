"""Gathers the input of a decision and decides; writes nothing to the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from edgeyard.devices.operators import is_of_node
from edgeyard.scheduler.decide.canaries import canary_plugins, canary_policy, left_over
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.engine.active_models import ActiveModels
from edgeyard.scheduler.engine.knowledge import gather
from edgeyard.scheduler.engine.plugin_lock import with_max_wait
from edgeyard.scheduler.engine.policies import LoadedPolicy
from edgeyard.scheduler.engine.queue_cache import Expiry, QueueCache, board_holds
from edgeyard.scheduler.engine.rewards import Scorekeeper, recalled
from edgeyard.scheduler.model.benchmark import Affinity, Constraint, Spread
from edgeyard.scheduler.model.decision import (
    BoardHolder,
    CycleInput,
    PendingBenchmark,
    Snapshot,
)
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.model.tariff import Tariff
from edgeyard.scheduler.ports import Clock, Store, UnitOfWork
from edgeyard.scheduler.prediction.history import PastRuns
from edgeyard.scheduler.twin.twin import Twin

_RECENT_RUNS = 500
"""Ended runs whose boards may still report them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePolicies:
    """Which policies decide in one cycle.

    Attributes:
        active: Decides all benchmarks that have no policy of their own.
        shadow: Decides the same as the active one, without effect; None: there is none.
        own: Policies of single benchmarks, by id.
    """

    active: LoadedPolicy
    shadow: LoadedPolicy | None = None
    own: Mapping[str, LoadedPolicy] = field(default_factory=dict)

    def decides(self, policy: LoadedPolicy, benchmark_id: str) -> bool:
        """Return whether a policy decides a benchmark."""
        return self.own.get(benchmark_id, self.active).policy is policy.policy


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredInput:
    """What a decision needs of the store, read in one transaction.

    Attributes:
        policy: Is to decide.
        now: Time of the decision.
        drained: Reason of each drained board.
        holders: Benchmark of each held board.
        knowledge: See `CycleInput`.
        pending: The benchmarks that wait.
        running: The live attempts that have boards.
    """

    policy: LoadedPolicy
    now: datetime
    drained: Mapping[str, str]
    holders: Mapping[str, str]
    knowledge: Knowledge
    pending: Sequence[PendingBenchmark]
    running: tuple[BoardHolder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a policy decided, and what that depended on.

    Attributes:
        expired: Benchmarks whose time is up, by id; they were left out.
    """

    policy: LoadedPolicy
    given: CycleInput
    result: CycleResult
    expired: Mapping[str, Expiry]


class Decider:
    """Decides on the present state.

    `reload`, `is_idle`, `gather` and `decide` on one thread at a time, `preview` on any.
    """

    def __init__(
        self,
        store: Store,
        twin: Twin,
        cache: QueueCache,
        scorekeeper: Scorekeeper,
        past: PastRuns,
        clock: Clock,
        max_run_s: float,
        tariff: Tariff,
        models: ActiveModels,
    ) -> None:
        """Read nothing before the first decision.

        Args:
            max_run_s: Bound on a run that states no ``user_time``, seconds.
            tariff: Factors on the rates by hour of the day.
            models: The active registered models.
        """
        self._store = store
        self._twin = twin
        self._cache = cache
        self._scorekeeper = scorekeeper
        self._past = past
        self._clock = clock
        self._max_run_s, self._tariff = max_run_s, tariff
        self._models = models
        self._seed = 0
        self._decided_lab: tuple[object, ...] = ()
        self._drained: Mapping[str, str] = {}
        self._holders: Mapping[str, str] = {}

    def load_past(self) -> None:
        """Read past runs for the first time, so that no decision has to. Any thread."""
        with self._store.read() as uow:
            self._past.load(uow, self._clock.now())

    def reload(self, uow: UnitOfWork) -> None:
        """Read which benchmarks wait or run, and which boards are drained or held."""
        self._cache.reload(uow)
        self._drained, self._holders = board_holds(uow)

    def gather(
        self, uow: UnitOfWork, policy: LoadedPolicy, policies: CyclePolicies, now: datetime
    ) -> StoredInput:
        """Read all else that a decision needs, after `reload` in the same transaction.

        Args:
            uow: Open for reading.
            policy: One of ``policies``, which is to decide.
            policies: Says which policy decides which benchmark.
            now: Time of the decision.
        """
        knowledge = self._knowledge(uow, now)
        return StoredInput(
            policy=policy,
            now=now,
            drained=self._drained,
            holders=self._holders,
            knowledge=self._scorekeeper.recall(uow, knowledge, policy.policy, now),
            pending=self._pending(uow, policy, policies),
            running=self._cache.holders(uow, policies.active.policy.max_preemptions),
        )

    def decide(self, stored: StoredInput) -> Decision:
        """Decide all that the policy of an input is to decide."""
        policy, now, pending = stored.policy, stored.now, stored.pending
        self._note_held(stored.knowledge.runs, stored.holders, now)
        self._decided_lab = self._lab_of(stored.drained)
        expired = self._cache.expired()
        self._seed += 1
        given = CycleInput(
            snapshot=self._snapshot(now, stored.drained, stored.holders, pending),
            pending=[each for each in pending if each.benchmark_id not in expired],
            now=now,
            holders=stored.running,
            knowledge=stored.knowledge,
            seed=self._seed,
        )
        return Decision(
            policy=policy, given=given, result=self._result(given, policy), expired=expired
        )

    def decide_canaries(self, others: Decision) -> Decision | None:
        """Decide on the canaries that wait, after all others; None: none waits.

        Args:
            others: The decision of the active policy in this cycle.
        """
        waiting = [
            each for each in self._cache.canaries() if each.benchmark_id not in others.expired
        ]
        if not waiting:
            return None
        policy = LoadedPolicy(
            policy=canary_policy(others.policy.policy),
            plugins=canary_plugins(others.policy.plugins),
        )
        given = left_over(others.given, others.result.decided, waiting)
        return Decision(policy=policy, given=given, result=self._result(given, policy), expired={})

    def is_idle(self, now: datetime) -> bool:
        """Return whether nothing waits, and no board came, went or failed since the last decision.

        By what `reload` has read. A decision would then place nothing. What a decision keeps up to
        date is kept here too.
        """
        if self._twin.boards_with_unknown_tasks() or self._twin.problem:
            return False
        if self._cache.has_pending() or self._cache.expired():
            return False
        if self._lab_of(self._drained) != self._decided_lab:
            return False
        self._twin.note_held(dict.fromkeys(self._holders, now))
        self._seed += 1  # so that the next decision does not depend on how many were left out
        return True

    def _lab_of(self, drained: Mapping[str, str]) -> tuple[object, ...]:
        """Return what a record of a cycle shows of the boards, apart from who holds them."""
        twin = self._twin
        return twin.joined().keys(), twin.unusable_parts(), frozenset(drained)

    def decide_again(self, given: CycleInput, policy: LoadedPolicy) -> Decision:
        """Decide what another policy decided, with the weights and suspensions of this one."""
        with self._store.read() as uow:
            knowledge = self._scorekeeper.recall(uow, given.knowledge, policy.policy, given.now)
        given = replace(given, knowledge=knowledge)
        return Decision(policy=policy, given=given, result=self._result(given, policy), expired={})

    def state(self, policies: CyclePolicies) -> CycleInput:
        """Return what a decision would know now. Any thread."""
        now, active = self._clock.now(), policies.active
        with self._store.read() as uow:
            drained, holders = board_holds(uow)
            pending = self._pending(uow, active, policies)
            return CycleInput(
                snapshot=self._snapshot(now, drained, holders, pending),
                pending=pending,
                now=now,
                holders=self._cache.holders(uow, active.policy.max_preemptions),
                knowledge=self._knowledge(uow, now),
                seed=self._seed,
            )

    def preview(
        self, candidate: PendingBenchmark, policies: CyclePolicies, max_wait_s: float
    ) -> CycleResult:
        """Decide as if ``candidate`` were in the queue now. Any thread.

        Args:
            candidate: The benchmark; one of a gang counts for all of it.
            policies: The active one decides it.
            max_wait_s: Maximum wait for a plugin that another thread uses.

        Raises:
            Unavailable: A plugin was in use for longer.
        """
        now, policy = self._clock.now(), policies.active
        with self._store.read() as uow:
            drained, holders = board_holds(uow)
            knowledge = recalled(uow, self._knowledge(uow, now), policy.policy, now)
            pending = [*self._pending(uow, policy, policies), *_whole_gang(candidate)]
            running = self._cache.holders(uow, policy.policy.max_preemptions)
        given = CycleInput(
            snapshot=self._snapshot(now, drained, holders, pending),
            pending=pending,
            now=now,
            holders=running,
            knowledge=knowledge,
            seed=self._seed,
        )
        plugins = with_max_wait(policy.plugins, max_wait_s)
        return self._result(given, LoadedPolicy(policy=policy.policy, plugins=plugins))

    def _snapshot(
        self,
        now: datetime,
        drained: Mapping[str, str],
        holders: Mapping[str, str],
        pending: Sequence[PendingBenchmark],
    ) -> Snapshot:
        """Return the boards with those attributes of their nodes that benchmarks name."""
        stated: set[tuple[Constraint | Affinity | Spread, ...]] = set()
        for each in pending:
            stated.update((each.constraints, each.affinities, each.spreads))
        named = frozenset(
            wish.attribute for own in stated for wish in own if is_of_node(wish.attribute)
        )
        return self._twin.snapshot(now, drained=drained, holders=holders, node_attributes=named)

    def _result(self, given: CycleInput, policy: LoadedPolicy) -> CycleResult:
        return decide(given, policy.policy, policy.plugins, monotonic_s=self._clock.monotonic_s)

    def _pending(
        self, uow: UnitOfWork, policy: LoadedPolicy, policies: CyclePolicies
    ) -> list[PendingBenchmark]:
        decides = (lambda each: policies.decides(policy, each)) if policies.own else None
        return self._cache.pending(uow, decides)

    def _knowledge(self, uow: UnitOfWork, now: datetime) -> Knowledge:
        runs = self._past.read(uow, now)
        loads = self._twin.loads(now)
        certain = self._clock.certain()
        return gather(
            uow, now, runs, self._max_run_s, self._tariff, loads, certain, self._models.current
        )

    def _note_held(self, runs: History, holders: Mapping[str, str], now: datetime) -> None:
        """Pass to the twin which boards hold, or have just held, tasks of Edgeyard."""
        held = dict.fromkeys(holders, now)
        if (
            self._twin.boards_with_unknown_tasks()
        ):  # boards that report progress mostly have live attempts
            held = {each.target_uid: each.ended_at for each in runs[-_RECENT_RUNS:]} | held
        self._twin.note_held(held)


def _whole_gang(candidate: PendingBenchmark) -> list[PendingBenchmark]:
    """Return a candidate with the others of its gang."""
    others = [
        replace(candidate, benchmark_id=f"{candidate.benchmark_id}-{number}")
        for number in range(1, candidate.gang_size)
    ]
    return [candidate, *others]
