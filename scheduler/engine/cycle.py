"""One cycle of the scheduler: refresh, decide, commit. The only place that places benchmarks."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.engine import charging
from edgeyard.scheduler.engine.active_models import ActiveModels
from edgeyard.scheduler.engine.committer import Committer
from edgeyard.scheduler.engine.cycle_outcome import CycleOutcome, PolicyCommit, QueueView
from edgeyard.scheduler.engine.decider import CyclePolicies, Decider, Decision
from edgeyard.scheduler.engine.idle_times import IdleTimes
from edgeyard.scheduler.engine.pins import PinTimers
from edgeyard.scheduler.engine.plugin_lock import with_lock
from edgeyard.scheduler.engine.policies import LoadedPolicy, Policies
from edgeyard.scheduler.engine.queue_cache import QueueCache
from edgeyard.scheduler.engine.rewards import Scorekeeper, policy_key
from edgeyard.scheduler.engine.twin_refresher import TwinRefresher
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.model.decision import CycleInput, KeptIdle, PendingBenchmark
from edgeyard.scheduler.model.run_bounds import DEFAULT_MAX_RUN_S
from edgeyard.scheduler.model.tariff import Tariff
from edgeyard.scheduler.ports import Clock, Store, UnitOfWork
from edgeyard.scheduler.prediction.history import PastRuns

logger = logging.getLogger(__name__)

MAX_IDLE_S = 30.0
"""While nothing waits, there is a decision so often: forecasts of what runs are made from it."""

MAX_PREVIEW_WAIT_S = 10.0
"""Longest wait of a preview for a plugin that another decision uses."""


class Cycle:
    """Decides and commits on one thread; `preview` and `latest` are for any.

    Attributes:
        latest: Outcome of the last cycle; None before the first.
        models: The active registered models that decisions know.
    """

    def __init__(
        self,
        store: Store,
        refresher: TwinRefresher,
        policy: Policy,
        plugins: Plugins,
        clock: Clock,
        *,
        start_lead_s: float = 0.0,
        pin_grace_s: float = 300.0,
        max_run_s: float = DEFAULT_MAX_RUN_S,
        tariff: Tariff | None = None,
        past: PastRuns | None = None,
        policies: Policies | None = None,
        models: ActiveModels | None = None,
    ) -> None:
        """Read nothing before the first cycle.

        Args:
            start_lead_s: How long before its start time a benchmark may be handed to the cluster,
                which then holds the start itself; 0: Edgeyard keeps it until it is due.
            pin_grace_s: See `edgeyard.scheduler.engine.pins`.
            max_run_s: Bound on a run that states no ``user_time``.
            tariff: Factors on the rates by hour of the day; None: 1 at all hours.
            past: Ended attempts; None: within the usual bounds.
            policies: Says which policies operators activated; None: it stays ``policy``.
            models: The active registered models; None: read from the store.
        """
        self._store = store
        self._refresher = refresher
        self._clock = clock
        self._policies = policies
        self._cycle_policies = CyclePolicies(
            active=LoadedPolicy(policy=policy, plugins=with_lock(plugins))
        )
        self._scorekeeper = Scorekeeper()
        self.models = models or ActiveModels(store)
        pins = PinTimers(pin_grace_s, clock)
        self._cache = QueueCache(clock, pins, start_lead_s)
        self._decider = Decider(
            store,
            refresher.twin,
            self._cache,
            self._scorekeeper,
            past or PastRuns(),
            clock,
            max_run_s,
            tariff or Tariff(),
            self.models,
        )
        self._committer = Committer(
            store, self._cache, self._scorekeeper, pins, clock, max_run_s, tariff or Tariff()
        )
        self._idle_times, self._tariff = IdleTimes(), tariff or Tariff()
        self.latest: CycleOutcome | None = None
        self._decided_s = -math.inf

    def run(self) -> CycleOutcome:
        """Refresh the twin, decide once and commit all of it."""
        self._refresher.refresh()
        return self.explain(self.place())

    def place(self) -> CycleOutcome:
        """Decide on what the twin knows, and commit who is placed, preempted and expired.

        Why the others wait is left to `explain`, so that what was placed can be dispatched first.
        """
        began_s, now = self._clock.monotonic_s(), self._clock.now()
        stored = None
        with self._store.read() as uow:
            policies = self._current_policies(uow)
            first, *others = (*dict.fromkeys(policies.own.values()), policies.active)
            self._decider.reload(uow)
            if not self._is_idle(policies, now):
                stored = self._decider.gather(uow, first, policies, now)
        if stored is None:
            self._charge_idle_times((), now)
            return self._idle_outcome(now, self._clock.monotonic_s() - began_s)
        decision = self._decider.decide(stored)
        commits = [self._commit_of(decision, policies)]
        for policy in others:  # each one sees what those before it have placed
            with self._store.read() as uow:
                self._decider.reload(uow)
                stored = self._decider.gather(uow, policy, policies, now)
            decision = self._decider.decide(stored)
            commits.append(self._commit_of(decision, policies))
        canaries = self._place_canaries(decision)
        self._charge_idle_times(commits[-1].result.kept_idle, now)
        self._decided_s = began_s
        outcome = self._outcome(now, commits, self._clock.monotonic_s() - began_s)
        return replace(outcome, canaries=canaries)

    def explain(self, outcome: CycleOutcome) -> CycleOutcome:
        """Commit the rest of a cycle: why benchmarks wait, and what is learned of scorers.

        Args:
            outcome: From `place`.

        Returns:
            The same with the whole time that the cycle took.
        """
        began_s = self._clock.monotonic_s()
        self._committer.explain(outcome.all_commits)
        self._settle(outcome.at)
        took_s = self._clock.monotonic_s() - began_s
        self.latest = replace(outcome, seconds=outcome.seconds + took_s)
        return self.latest

    def follow(self) -> CycleOutcome:
        """Decide as the leader's next cycle would, to answer questions; write nothing."""
        began_s = self._clock.monotonic_s()
        self._refresher.refresh()
        now = self._clock.now()
        with self._store.read() as uow:
            policies = self._current_policies(uow)
            self._decider.reload(uow)
            stored = self._decider.gather(uow, policies.active, policies, now)
        decision = self._decider.decide(stored)
        commit = PolicyCommit(
            policy=policies.active,
            given=decision.given,
            result=decision.result,
            waiting=decision.result.waiting,
        )
        self.latest = self._outcome(now, [commit], self._clock.monotonic_s() - began_s)
        return self.latest

    def decide_shadow(self, outcome: CycleOutcome) -> PolicyCommit | None:
        """Record what the shadow policy would have decided; it has no effect.

        Apart from `run`, so that a slow shadow delays no attempt of that cycle. It has its own
        weights, and only scorers that are not suspended under it are asked.

        Args:
            outcome: The cycle to decide again.

        Returns:
            The shadow's commit; None where there is no shadow, or the cycle had no news.
        """
        shadow, seq = outcome.shadow, outcome.active.seq
        if shadow is None or seq is None:
            return None
        decision = self._decider.decide_again(outcome.active.given, shadow)
        # Under the name and version of the active policy, its faults would count as that one's.
        learn = policy_key(shadow.policy) != policy_key(outcome.active.policy.policy)
        self._committer.add_shadow(decision, seq, learn=learn)
        _log_faults(decision.result)
        return PolicyCommit(policy=shadow, given=decision.given, result=decision.result)

    def state(self) -> CycleInput:
        """Return what a decision would know now. Any thread."""
        return self._decider.state(self._cycle_policies)

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
        return self._decider.preview(candidate, self._cycle_policies, max_wait_s)

    def load_past(self) -> None:
        """Read the past, which may take a moment; no decision waits for it. Any thread."""
        self._decider.load_past()

    def _is_idle(self, policies: CyclePolicies, now: datetime) -> bool:
        """Return whether there is nothing to decide, and the last decision still shows the lab."""
        last, decided_s = self.latest, self._decided_s
        return (
            last is not None
            and last.active.policy.policy is policies.active.policy
            and not policies.own
            and self._clock.monotonic_s() - decided_s < MAX_IDLE_S
            and self._decider.is_idle(now)
        )

    def _idle_outcome(self, now: datetime, took_s: float) -> CycleOutcome:
        assert self.latest is not None
        commits = [
            PolicyCommit(policy=each.policy, given=each.given, result=each.result)
            for each in self.latest.commits
        ]
        outcome = self._outcome(now, commits, took_s)
        queue = QueueView(now.isoformat(), commits[-1].policy.policy.name, ())
        return replace(outcome, queue=queue, idle=True)

    def _charge_idle_times(self, kept: Sequence[KeptIdle], now: datetime) -> None:
        """Charge bookings and leases for boards that stood idle for them since the last cycle."""
        self._idle_times.update(kept, now)
        due = self._idle_times.due()
        if due:
            self._store.transact(
                lambda uow: charging.charge_idle_times(uow, due, now, self._tariff)
            )
            self._idle_times.charged(due)

    def _place_canaries(self, others: Decision) -> PolicyCommit | None:
        """Give canaries the boards that are left when all others are served."""
        decision = self._decider.decide_canaries(others)
        if decision is None:
            return None
        return self._commit_of(decision, CyclePolicies(active=decision.policy))

    def _commit_of(self, decision: Decision, policies: CyclePolicies) -> PolicyCommit:
        commit = self._committer.place(decision, policies)
        placements, now = decision.result.placements, decision.given.now
        self._refresher.twin.note_held({each.target_uid: now for each in placements})
        _log_faults(decision.result)
        return commit

    def _outcome(self, now: datetime, commits: list[PolicyCommit], took_s: float) -> CycleOutcome:
        active = commits[-1]
        name = active.policy.policy.name
        return CycleOutcome(
            at=now,
            commits=tuple(commits),
            shadow=self._cycle_policies.shadow,
            queue=QueueView(now.isoformat(), name, active.result.order, active.result.never),
            downloads=self._cache.downloads(),
            live=self._cache.live,
            seconds=took_s,
        )

    def _current_policies(self, uow: UnitOfWork) -> CyclePolicies:
        """Take up the policies that operators activated."""
        if self._policies is None:
            return self._cycle_policies
        active, shadow = self._policies.current(uow)
        own = self._policies.own(uow)
        if active.policy is not self._cycle_policies.active.policy:
            logger.info(
                "policy in use",
                extra={"event": "policy.active", "policy": active.policy.name},
            )
        self._cycle_policies = CyclePolicies(
            active=active, shadow=shadow, own=own
        )  # previews read it
        return self._cycle_policies

    def _settle(self, now: datetime) -> None:
        """Compare what scorers said of placements with how their runs ended, now and then."""
        if not self._scorekeeper.is_due(now):
            return
        with self._store.read() as uow:
            settles = self._scorekeeper.settles(uow, now)
        if not settles:
            return

        def settle(uow: UnitOfWork) -> None:
            active = self._cycle_policies.active
            self._scorekeeper.settle(uow, active.policy, active.plugins, now)

        self._store.transact(settle)


def _log_faults(result: CycleResult) -> None:
    for fault in result.faults:
        logger.error("plugin failed", extra={"event": "plugin.fault", "fault": str(fault)})
    for overrun in result.overruns:
        detail = f"{overrun}; its answer counts all the same"
        logger.warning("scorer late", extra={"event": "scorer.late", "fault": detail})
