"""Queues whose load, run times or boards change in the middle, decided by the default policy.

Each lab has `BOARDS` boards of one family, five models of different run times and four users who
submit as a Poisson process with random priorities, so that later benchmarks overtake. It decides
and forecasts at each event, and forecasts learn from those that ended before, as the server's do.
What it knows of run times are the runs that ended. After half of the benchmarks one thing changes;
those that are submitted from then on count.

The peer draws run times from past runs of the same model and runs the same list schedule.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.framework.batch_builder import kind_of
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.model.decision import BoardHolder, CycleInput, PendingBenchmark
from edgeyard.scheduler.model.forecast import HIGH, LOW, Forecast, ForecastResult
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.prediction.calibration import (
    REMEMBERED,
    interval_scales_of,
    overdue,
    result_of,
)
from edgeyard.scheduler.prediction.forecast import forecasts

BOARDS = 6
SUBMITTED = 160
LOAD = 0.7
"""Of all boards before the change: doubled, the queue grows to the end."""

USERS, MODELS = 4, 5
SPREAD = 0.3
"""Standard deviation of ln seconds from one run of a model to the next."""

MAX_RUN_S = 900.0
SAMPLES = 64
_POLICY = load_policy("default")

Floats = NDArray[np.float64]


class Change(StrEnum):
    """What changes in the middle."""

    LOAD = "load doubled"
    RUN_TIMES = "run times halved"
    BOARDS = "a third of the boards lost"


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Intervals and what came, seconds from the forecast; shape (benchmarks,) and (2, benchmarks).

    Attributes:
        queues: Number of the lab of each.
    """

    queues: NDArray[np.intp]
    came: Floats
    ours: Floats
    plain: Floats


def shifted(change: Change, count: int) -> tuple[Outcomes, Outcomes]:
    """Simulate so many labs; return their starts of benchmarks that had to wait, and their ends."""
    with ProcessPoolExecutor() as pool:
        labs = list(pool.map(partial(simulated_lab, change), range(count), chunksize=4))
    return joined([starts for starts, _ in labs]), joined([ends for _, ends in labs])


def simulated_lab(
    change: Change, seed: int, *, submitted: int = SUBMITTED
) -> tuple[Outcomes, Outcomes]:
    """Simulate one lab; see `shifted`."""
    return _Lab(change, seed, submitted).run()


def joined(parts: Sequence[Outcomes]) -> Outcomes:
    """Return the outcomes of several parts as one."""
    return Outcomes(
        np.concatenate([each.queues for each in parts]),
        np.concatenate([each.came for each in parts]),
        np.concatenate([each.ours for each in parts], axis=1),
        np.concatenate([each.plain for each in parts], axis=1),
    )


@dataclass(frozen=True, slots=True)
class _Predicted:
    """A first forecast, and the ends of the peer's intervals of start and end."""

    forecast: Forecast
    plain_start: Floats
    plain_end: Floats


class _Lab:
    def __init__(self, change: Change, seed: int, submitted: int) -> None:
        self._change, self._seed, self._submitted = change, seed, submitted
        self._rng = np.random.default_rng([seed, list(Change).index(change)])
        self._typical_s = np.exp(self._rng.uniform(np.log(10.0), np.log(120.0), MODELS))
        self._uids = [f"rpi4b-{number:04}-0001" for number in range(1, BOARDS + 1)]
        self._plugins = registry(entry_points=False).resolve(_POLICY)
        self._pending: dict[str, PendingBenchmark] = {}
        self._running: dict[str, BoardHolder] = {}
        self._kinds: dict[str, PendingBenchmark] = {}
        self._past = History()
        self._runs_of: dict[str, list[float]] = defaultdict(list)
        self._predicted: dict[str, _Predicted] = {}
        self._results: deque[ForecastResult] = deque(maxlen=REMEMBERED)
        self._started: dict[str, datetime] = {}
        self._ended: dict[str, datetime] = {}

    def run(self) -> tuple[Outcomes, Outcomes]:
        arrivals, changed_s = self._arrivals()
        events: list[tuple[float, int, str]] = [(at, n, "") for n, at in enumerate(arrivals)]
        heapq.heapify(events)
        halved = self._change is Change.RUN_TIMES
        lost = self._uids[: BOARDS // 3] if self._change is Change.BOARDS else []
        while events:
            at, number, ended = heapq.heappop(events)
            now = NOW + timedelta(seconds=at)
            if ended:
                self._end(ended, now)
            else:
                self._submit(number, now)
            gone = lost if at >= changed_s else []
            placed = self._decide(now, gone) if self._pending else []
            for benchmark_id in placed:
                job = self._kinds[benchmark_id]
                run_s = self._typical_s[int(job.model_sha256 or "0", 16) % MODELS]
                run_s = run_s * np.exp(SPREAD * self._rng.standard_normal())
                run_s *= 0.5 if halved and at >= changed_s else 1.0
                end_s = at + float(np.clip(run_s, 1.0, MAX_RUN_S))
                heapq.heappush(events, (end_s, self._submitted + len(self._started), benchmark_id))
        return self._outcome(changed_s)

    def _arrivals(self) -> tuple[list[float], float]:
        """Return when benchmarks are submitted, and when the change is, in seconds."""
        every_s = self._typical_s.mean() / (BOARDS * LOAD)
        gaps, half = self._rng.exponential(every_s, self._submitted), self._submitted // 2
        if self._change is Change.LOAD:
            gaps[half:] /= 2.0
        at = np.cumsum(gaps)
        return at.tolist(), float(at[half])

    def _submit(self, number: int, now: datetime) -> None:
        model = int(self._rng.integers(MODELS))
        job = pending(
            f"b-{number:03}",
            user_id=f"user-{self._rng.integers(USERS)}",
            model_sha256=f"{model:064x}",
            submit_time=now,
            user_priority=int(self._rng.integers(1, 11)),
        )
        self._pending[job.benchmark_id] = self._kinds[job.benchmark_id] = job

    def _end(self, benchmark_id: str, now: datetime) -> None:
        holder, job = self._running.pop(benchmark_id), self._kinds[benchmark_id]
        started_at = self._started[benchmark_id]
        run_s = (now - started_at).total_seconds()
        self._past = self._past.extended(
            [
                PastRun(
                    benchmark_id=benchmark_id,
                    user_id=job.user_id,
                    target_uid=holder.target_uid,
                    family=job.family,
                    kind=kind_of(job),
                    run_s=run_s,
                    failure=None,
                    ended_at=now,
                )
            ]
        )
        self._runs_of[job.model_sha256 or ""].append(run_s)
        self._ended[benchmark_id] = now
        forecast = self._predicted[benchmark_id].forecast
        self._results.append(result_of(forecast, started_at, now, completed=True))

    def _decide(self, now: datetime, gone: Sequence[str]) -> list[str]:
        """Decide and forecast; return what was placed."""
        busy = {each.target_uid for each in self._running.values()}
        result = decide(
            CycleInput(
                snapshot=snapshot_of(
                    [board(uid, busy=uid in busy) for uid in self._uids],
                    offline=[uid for uid in gone if uid not in busy],
                    now=now,
                ),
                pending=list(self._pending.values()),
                now=now,
                holders=list(self._running.values()),
                knowledge=Knowledge(runs=self._past, max_run_s=MAX_RUN_S),
                seed=self._seed,
            ),
            _POLICY,
            self._plugins,
        )
        new = self._pending.keys() - self._predicted.keys()
        if new:
            late = overdue(
                (
                    self._predicted[each].forecast
                    for each in (*self._pending, *self._running)
                    if each in self._predicted
                ),
                self._pending,
                now,
            )
            scales = interval_scales_of([*self._results, *late])
            found = forecasts(result.decided.forecast_input, interval_scales=scales)
            for benchmark_id in sorted(new):
                plain = self._plain(result, benchmark_id, now, len(self._uids) - len(gone))
                self._predicted[benchmark_id] = _Predicted(found[benchmark_id], *plain)
        for placed in result.placements:
            job = self._pending.pop(placed.benchmark_id)
            self._started[placed.benchmark_id] = now
            self._running[placed.benchmark_id] = BoardHolder(
                benchmark_id=placed.benchmark_id,
                target_uid=placed.target_uid,
                priority=50,
                user_id=job.user_id,
                started_at=now,
                kind=kind_of(job),
                time_limit_s=MAX_RUN_S,
            )
        return [each.benchmark_id for each in result.placements]

    def _plain(
        self, result: CycleResult, benchmark_id: str, now: datetime, boards: int
    ) -> tuple[Floats, Floats]:
        """Return quantiles of start and end by a list schedule of plain past runs."""
        free = np.zeros((SAMPLES, boards))
        for place, holder in enumerate(list(self._running.values())[:boards]):
            ran_s = (now - self._started[holder.benchmark_id]).total_seconds()
            left = self._drawn(self._kinds[holder.benchmark_id]) - ran_s
            free[:, place] = np.maximum(left, 0.0)
        samples, order = np.arange(SAMPLES), list(result.order)
        placed = {each.benchmark_id for each in result.placements}
        order.sort(key=lambda each: each not in placed)
        for each in order:
            first = free.argmin(axis=1)
            begins = free[samples, first]
            free[samples, first] += self._drawn(self._kinds[each])
            if each == benchmark_id:
                break
        ends = free[samples, first]
        return np.quantile(begins, (LOW, HIGH)), np.quantile(ends, (LOW, HIGH))

    def _drawn(self, job: PendingBenchmark) -> Floats:
        alike = self._runs_of[job.model_sha256 or ""]
        if len(alike) < MODELS:
            alike = [each for runs in self._runs_of.values() for each in runs] or [MAX_RUN_S]
        return self._rng.choice(alike, SAMPLES)

    def _outcome(self, changed_s: float) -> tuple[Outcomes, Outcomes]:
        starts: list[tuple[float, ...]] = []
        ends: list[tuple[float, ...]] = []
        for benchmark_id, each in self._predicted.items():
            forecast, made_at = each.forecast, each.forecast.made_at
            if made_at < NOW + timedelta(seconds=changed_s):
                continue

            def since(*times: datetime) -> tuple[float, ...]:
                return tuple((time - made_at).total_seconds() for time in times)  # noqa: B023

            if forecast.start_widths is not None:
                times = (self._started[benchmark_id], forecast.start_low, forecast.start_high)
                starts.append((*since(*times), *each.plain_start))
            times = (self._ended[benchmark_id], forecast.finish_low, forecast.finish_high)
            ends.append((*since(*times), *each.plain_end))
        return self._as_seen(starts), self._as_seen(ends)

    def _as_seen(self, rows: Sequence[tuple[float, ...]]) -> Outcomes:
        columns = np.array(rows, dtype=np.float64).reshape(-1, 5).T
        queues = np.full(columns.shape[1], self._seed)
        return Outcomes(queues, columns[0], columns[1:3], columns[3:5])
