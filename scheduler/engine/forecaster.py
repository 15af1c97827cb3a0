"""Keeps a forecast of the whole lab, and tells how good its forecasts turned out to be."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from edgeyard.scheduler.decide.decided import Decided
from edgeyard.scheduler.decide.forecast import forecasts
from edgeyard.scheduler.engine.cycle import Cycle, Observe
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.forecast import Forecast, Forecasts
from edgeyard.scheduler.ports import Clock, Store

REMEMBERED = 500
"""Ends that the coverage is told of: the newest; its standard error is then below 2 %."""


class Forecaster:
    """Rolls the last cycle's queue forward. `run` on its own thread, the rest on any.

    Attributes:
        latest: The newest forecasts.
    """

    def __init__(self, cycle: Cycle, store: Store, clock: Clock, observe: Observe) -> None:
        """Nothing is looked at before `run`."""
        self._cycle = cycle
        self._store = store
        self._clock = clock
        self._observe = observe
        self.latest = Forecasts()
        self._seen: Decided | None = None
        self._first: dict[str, Forecast] = {}
        self._kept: deque[bool] = deque(maxlen=REMEMBERED)

    def run(self) -> float:
        """Forecast anew what the last cycle saw.

        Returns:
            Seconds that it took.
        """
        decided = self._cycle.decided
        if decided is None or decided is self._seen:
            return 0.0
        self._seen = decided
        began = self._clock.monotonic_s()
        found = forecasts(decided)
        took_s = self._clock.monotonic_s() - began
        self.latest = Forecasts(made_at=decided.now, by_id=found, took_s=took_s)
        live = {each.benchmark_id for each in decided.pending}
        live |= {each.benchmark_id for each in decided.holders}
        for benchmark_id, forecast in found.items():
            self._first.setdefault(benchmark_id, forecast)
        self._look_back(live)
        return took_s

    def of(self, benchmark_id: str) -> Forecast | None:
        """The newest of a benchmark; None where there is none."""
        return self.latest.by_id.get(benchmark_id)

    def _look_back(self, live: set[str]) -> None:
        """Compare those that ended with what was first told of them."""
        gone = [benchmark_id for benchmark_id in self._first if benchmark_id not in live]
        if not gone:
            return
        with self._store.read() as uow:
            ended = uow.benchmarks.get_many(gone)
        for benchmark in ended:
            if benchmark.status is Status.COMPLETED and benchmark.ended_at is not None:
                self._tell(self._first[benchmark.benchmark_id], benchmark.ended_at)
            if benchmark.ended_at is not None:
                del self._first[benchmark.benchmark_id]
        known = {benchmark.benchmark_id for benchmark in ended}
        for benchmark_id in gone:
            if benchmark_id not in known:
                del self._first[benchmark_id]

    def _tell(self, told: Forecast, ended_at: datetime) -> None:
        self._kept.append(told.finish_low <= ended_at <= told.finish_high)
        error_s = abs((ended_at - told.finish).total_seconds())
        self._observe("eta_error_seconds", error_s, {})
        self._observe("eta_interval_coverage_ratio", sum(self._kept) / len(self._kept), {})
