"""Keeps a forecast of the whole lab, and measures how accurate its forecasts were."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.engine.cycle import Cycle
from edgeyard.scheduler.engine.metrics import Observe
from edgeyard.scheduler.model.benchmark import Benchmark, Status
from edgeyard.scheduler.model.decision import PlannedStart
from edgeyard.scheduler.model.forecast import Coverage, Forecast, ForecastResult, Forecasts
from edgeyard.scheduler.ports import Clock, Store
from edgeyard.scheduler.prediction.calibration import (
    IntervalScale,
    interval_scale_of,
    nonconformity_score,
)
from edgeyard.scheduler.prediction.forecast import forecasts

REMEMBERED = 500
"""Forecasts that are looked back at: the newest; a coverage's standard error is then below 2 %."""


class Forecaster:
    """Rolls the last cycle's queue forward. `run` on its own thread, the rest on any.

    Attributes:
        latest: The newest forecasts.
        interval_scale: By how much waits are widened, as earlier forecasts turned out.
        coverage: How earlier ones turned out.
    """

    def __init__(self, cycle: Cycle, store: Store, clock: Clock, observe: Observe) -> None:
        """Read nothing before `run`, which begins with what was learned before a restart."""
        self._cycle = cycle
        self._store = store
        self._clock = clock
        self._observe = observe
        self.latest = Forecasts()
        self.interval_scale: IntervalScale | None = None
        self.coverage = Coverage()
        self._seen: Decisions | None = None
        self._first: dict[str, tuple[Forecast, IntervalScale | None]] = {}
        self._held: deque[bool] = deque(maxlen=REMEMBERED)
        self._scores: deque[float] = deque(maxlen=REMEMBERED)
        self._keeps: bool | None = None

    def run(self, *, keep: bool = True) -> float:
        """Forecast anew what the last cycle saw.

        Args:
            keep: Store what is learned, so that it survives a restart: on the server that leads.

        Returns:
            Seconds that it took.
        """
        if self._keeps is None:
            self._recall()
        self._keeps = keep
        outcome = self._cycle.latest
        if outcome is None:
            return 0.0
        if outcome.decided is self._seen:
            if outcome.idle:  # what has ended since then has no forecast any more
                known = self.latest
                self.latest = replace(known, by_id=_only(known.by_id, outcome.live))
                self._compare_ended(outcome.live)
            return 0.0
        decided = outcome.decided
        self._seen = decided
        began = self._clock.monotonic_s()
        found = forecasts(decided.forecast_input, interval_scale=self.interval_scale)
        planned = decided.planned_starts()
        took_s = self._clock.monotonic_s() - began
        live: Container[str] = {
            *(each.benchmark_id for each in decided.pending),
            *(each.benchmark_id for each in decided.holders),
        }
        if outcome.idle:
            found, live = _only(found, outcome.live), outcome.live
            planned = {}
        self.latest = Forecasts(made_at=decided.now, by_id=found, took_s=took_s, planned=planned)
        for benchmark_id, forecast in found.items():
            self._first.setdefault(benchmark_id, (forecast, self.interval_scale))
        self._compare_ended(live)
        return took_s

    def of(self, benchmark_id: str) -> Forecast | None:
        """Return the newest of a benchmark; None where there is none."""
        return self.latest.by_id.get(benchmark_id)

    def planned(self, benchmark_id: str) -> PlannedStart | None:
        """Return the board and the start planned for a benchmark that waits; None: no plan."""
        return self.latest.planned.get(benchmark_id)

    def _compare_ended(self, live: Container[str]) -> None:
        """Compare benchmarks that ended with their first forecasts."""
        gone = [benchmark_id for benchmark_id in self._first if benchmark_id not in live]
        if not gone:
            return
        with self._store.read() as uow:
            ended = uow.benchmarks.get_many(gone)
        results = [
            _result(benchmark, *self._first.pop(benchmark.benchmark_id))
            for benchmark in ended
            if benchmark.ended_at is not None
        ]
        self._learn([each for each, _ in results])
        for result, error_s in results:
            if result.held is not None:
                self._observe("eta_error_seconds", error_s, {})
                share = self.coverage.held / self.coverage.ended
                self._observe("eta_interval_coverage_ratio", share, {})
        learned = [each for each, _ in results if each.score is not None or each.held is not None]
        if learned and self._keeps:
            self._store.transact(
                lambda uow: uow.scoring.add_forecast_results(learned, keep=REMEMBERED)
            )
        known = {benchmark.benchmark_id for benchmark in ended}
        for benchmark_id in gone:
            if benchmark_id not in known:
                del self._first[benchmark_id]

    def _recall(self) -> None:
        """Take up what was learned before this server started."""
        with self._store.read() as uow:
            self._learn(uow.scoring.forecast_results(limit=REMEMBERED))

    def _learn(self, results: Sequence[ForecastResult]) -> None:
        self._scores.extend(each.score for each in results if each.score is not None)
        self._held.extend(each.held for each in results if each.held is not None)
        self.interval_scale = interval_scale_of(self._scores)
        self.coverage = Coverage(held=sum(self._held), ended=len(self._held))


def _result(
    benchmark: Benchmark, forecast: Forecast, interval_scale: IntervalScale | None
) -> tuple[ForecastResult, float]:
    """Return how a forecast turned out, and by how many seconds its end was wrong.

    Of waits, only those that waited and started teach something, and no bounds of unknown kinds.
    """
    assert benchmark.ended_at is not None
    score = None
    if benchmark.started_at is not None and forecast.grounded and forecast.place is not None:
        score = nonconformity_score(forecast, benchmark.started_at, interval_scale)
    held = None
    if benchmark.status is Status.COMPLETED:
        held = forecast.finish_low <= benchmark.ended_at <= forecast.finish_high
    result = ForecastResult(
        benchmark_id=benchmark.benchmark_id, at=benchmark.ended_at, score=score, held=held
    )
    return result, abs((benchmark.ended_at - forecast.finish).total_seconds())


def _only(forecasts_by_id: Mapping[str, Forecast], live: Container[str]) -> dict[str, Forecast]:
    return {key: each for key, each in forecasts_by_id.items() if key in live}
