"""Keeps a forecast of the whole lab, and measures how accurate its forecasts were."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.engine.cycle import Cycle
from edgeyard.scheduler.engine.metrics import Observe
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.decision import PlannedStart
from edgeyard.scheduler.model.forecast import Coverage, Forecast, ForecastResult, Forecasts
from edgeyard.scheduler.ports import Clock, Store
from edgeyard.scheduler.prediction.calibration import (
    AS_DRAWN,
    REMEMBERED,
    interval_scales_of,
    overdue,
    result_of,
)
from edgeyard.scheduler.prediction.forecast import forecasts, with_start_of

LATELY = 100
"""Newest comparisons by which intervals are labelled: the standard error of a share of them is at
most 5 points, and a change of the load shows after a few dozen."""


class Forecaster:
    """Rolls the last cycle's queue forward. `run` on its own thread, the rest on any.

    Attributes:
        latest: The newest forecasts.
        interval_scales: By how much intervals are widened, as earlier forecasts turned out.
        coverage: What the intervals of earlier ones held lately.
    """

    def __init__(self, cycle: Cycle, store: Store, clock: Clock, observe: Observe) -> None:
        """Read nothing before `run`, which begins with what was learned before a restart."""
        self._cycle = cycle
        self._store = store
        self._clock = clock
        self._observe = observe
        self.latest = Forecasts()
        self.interval_scales = AS_DRAWN
        self.coverage = Coverage()
        self._seen: Decisions | None = None
        self._first: dict[str, Forecast] = {}
        self._overdue: Sequence[ForecastResult] = ()
        self._results: deque[ForecastResult] = deque(maxlen=REMEMBERED)
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
        waiting = decided.row_of_id
        running = {each.benchmark_id for each in decided.holders}
        began = self._clock.monotonic_s()
        self._overdue = overdue(
            (each for key, each in self._first.items() if key in running or key in waiting),
            waiting,
            decided.now,
        )
        self._calibrate()
        found = forecasts(decided.forecast_input, interval_scales=self.interval_scales)
        planned = {
            benchmark_id: with_start_of(found.get(benchmark_id), plan)
            for benchmark_id, plan in decided.planned_starts().items()
        }
        took_s = self._clock.monotonic_s() - began
        live: Container[str] = {*waiting, *running}
        if outcome.idle:
            found, live = _only(found, outcome.live), outcome.live
            planned = {}
        self.latest = Forecasts(made_at=decided.now, by_id=found, planned=planned)
        for benchmark_id, forecast in found.items():
            self._first.setdefault(benchmark_id, forecast)
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
        learned = []
        for benchmark in ended:
            if benchmark.ended_at is None:
                continue
            forecast = self._first.pop(benchmark.benchmark_id)
            result = result_of(
                forecast,
                benchmark.started_at,
                benchmark.ended_at,
                completed=benchmark.status is Status.COMPLETED,
            )
            if result.end is not None:
                error_s = abs((benchmark.ended_at - forecast.finish).total_seconds())
                self._observe("eta_error_seconds", error_s, {})
            if result.start is not None or result.end is not None:
                learned.append(result)
        if learned:
            self._learn(learned)
            self._report()
            if self._keeps:
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
        known = {each.benchmark_id for each in results}
        self._overdue = [each for each in self._overdue if each.benchmark_id not in known]
        self._results.extend(results)
        self._calibrate()

    def _calibrate(self) -> None:
        results = [*self._results, *self._overdue]
        self.interval_scales = interval_scales_of(results)
        starts = [each.start.held for each in results if each.start is not None][-LATELY:]
        ends = [each.end.held for each in results if each.end is not None][-LATELY:]
        self.coverage = Coverage(
            starts_held=sum(starts), started=len(starts), ends_held=sum(ends), ended=len(ends)
        )

    def _report(self) -> None:
        found = self.coverage
        for of, held, count in (
            ("start", found.starts_held, found.started),
            ("end", found.ends_held, found.ended),
        ):
            if count:
                self._observe("eta_interval_coverage_ratio", held / count, {"of": of})


def _only(forecasts_by_id: Mapping[str, Forecast], live: Container[str]) -> dict[str, Forecast]:
    return {key: each for key, each in forecasts_by_id.items() if key in live}
