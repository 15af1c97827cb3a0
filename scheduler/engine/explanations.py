"""Answers questions from recorded cycles: about a benchmark, and about a shadow policy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from edgeyard.errors import NotFound
from edgeyard.scheduler.decide.changes import Bounds, Changes, what_would_change
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.decide.record import policy_of, result_of
from edgeyard.scheduler.engine.cycle_outcome import CycleOutcome
from edgeyard.scheduler.engine.plugin_lock import with_lock, with_max_wait
from edgeyard.scheduler.engine.replay import CycleComparison, compare_with_shadow
from edgeyard.scheduler.framework.registry import Registry
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.decision import Explanation
from edgeyard.scheduler.model.forecast import Forecast
from edgeyard.scheduler.ports import Clock, Store
from edgeyard.scheduler.prediction.calibration import AS_DRAWN, IntervalScales

MAX_CHANGES_S = 0.8
"""Longest search for what would change a decision: the answer is to be there within a second."""

_MAX_CYCLES = 8
"""Newest cycles that are looked through: policies of single benchmarks have cycles of their own."""


class Explanations:
    """Reads recorded cycles; remembers the last one, which most questions are about. Any thread."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        latest: Callable[[], CycleOutcome | None] = lambda: None,
    ) -> None:
        """Nothing is read yet.

        Args:
            store: Has the records.
            registry: Of the plugins.
            clock: Bounds the time of `changes`.
            latest: Gives the outcome of the last cycle, also of one that was not recorded.
        """
        self._store = store
        self._registry = registry
        self._clock = clock
        self._latest = latest
        self._lock = threading.Lock()  # a result belongs to one thread at a time
        self._last: tuple[int, CycleResult] | None = None

    def of(self, benchmark_id: str) -> Explanation:
        """Return the newest of a benchmark.

        Raises:
            NotFound: No cycle has considered it yet.
            ConfigError: A plugin of the cycle's policy is no longer installed.
        """
        with self._store.read() as uow:
            seq = uow.cycles.explaining_cycle(benchmark_id)
        with self._lock:
            return self._result(seq).explanation(benchmark_id)

    def _result(self, seq: int) -> CycleResult:
        """Return a recorded cycle; the caller holds the lock."""
        if self._last is None or self._last[0] != seq:
            with self._store.read() as uow:
                record = uow.cycles.get(seq)
            plugins = with_lock(self._registry.resolve(policy_of(record)))
            self._last = (seq, result_of(record, plugins))
        return self._last[1]

    def shadows(
        self, since: datetime | None, until: datetime | None, limit: int
    ) -> Sequence[tuple[int, CycleComparison]]:
        """Return what shadow policies decided in the cycles of [since, until), newest first.

        Raises:
            ConfigError: A plugin of a recorded policy is no longer installed.
        """
        with self._store.read() as uow:
            heads = uow.cycles.shadows(since=since, until=until, limit=limit)
        found = []
        for head in heads:
            assert head.shadow_of is not None
            with self._store.read() as uow:
                try:
                    record, shadow = uow.cycles.get(head.shadow_of), uow.cycles.get(head.seq)
                except NotFound:  # dropped by age meanwhile
                    continue
            compared = compare_with_shadow(record, shadow, self._registry)
            found.append((head.shadow_of, replace(compared, policy=shadow.policy)))
        return found

    def changes(
        self,
        benchmark_id: str,
        bounds: Bounds | None = None,
        forecast: Forecast | None = None,
        interval_scales: IntervalScales = AS_DRAWN,
    ) -> Changes | None:
        """Find changes that would let it start sooner, by deciding its newest cycle again.

        Args:
            bounds: What its user may ask for.
            forecast: Its newest forecast, with which the answer agrees.
            interval_scales: The one that forecast was made with.

        Returns:
            None where it does not wait.

        Raises:
            NotFound: No cycle has considered it yet.
            ConfigError: A plugin of the cycle's policy is no longer installed.
            Unavailable: Another decision used a plugin for too long.
        """
        until_s = self._clock.monotonic_s() + MAX_CHANGES_S
        with self._store.read() as uow:
            since = uow.cycles.explaining_cycle(benchmark_id)
            if uow.benchmarks.get(benchmark_id).status is not Status.PENDING:
                return None
        then = self._waiting_in(benchmark_id, since)
        if then is None:
            return None
        then = replace(then, plugins=with_max_wait(then.plugins, MAX_CHANGES_S))
        return what_would_change(
            then,
            benchmark_id,
            bounds=bounds,
            now=self._clock.now(),
            forecast=forecast,
            interval_scales=interval_scales,
            left_s=lambda: until_s - self._clock.monotonic_s(),
        )

    def _waiting_in(self, benchmark_id: str, since: int) -> Decisions | None:
        """Return the newest cycle that left it waiting, from the one that explains it on."""
        latest = self._latest()
        if latest is not None and _waits(latest.decided, benchmark_id):
            return latest.decided
        with self._store.read() as uow:
            heads = uow.cycles.newest(since=since, limit=_MAX_CYCLES)
        for seq in dict.fromkeys([*(head.seq for head in heads), since]):
            with self._lock:
                decided = self._result(seq).decided
            if _waits(decided, benchmark_id):
                return decided
        return None


def _waits(decided: Decisions, benchmark_id: str) -> bool:
    """Return whether the cycle decided it, and gave it no board."""
    job = decided.row_of_id.get(benchmark_id)
    if job is None or decided.placed(job):
        return False
    return not decided.pending[job].has_own_policy
