"""TYPE1 by several callers at once: throughput and latency by their number, and the knee.

A caller runs one inference after another and waits for nothing in between (a closed loop). The
callers are threads of one process. They share the loaded model where the engine allows it
(`edgeyard.devices.runner.engine.SharingEngine`); otherwise each loads its own.

The knee is the number of callers with the largest throughput per latency (Kleinrock, "Power and
deterministic rules of thumb", ICC 1979). In a closed loop N callers have a mean latency of N / X
where X is the throughput (Little's law), so that this is the largest X² / N: twice as many callers
have to bring more than 1.41 times the throughput.
"""

from __future__ import annotations

import gc
import math
import threading
import time
from array import array
from dataclasses import dataclass
from functools import cached_property
from typing import Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.metrics import RUNS_PER_S
from edgeyard.devices.runner.board import resident_bytes
from edgeyard.devices.runner.conditions import Conditions, Watch, together
from edgeyard.devices.runner.engine import Progress, Session
from edgeyard.devices.runner.feeds import Feeds
from edgeyard.devices.runner.interval import median_interval, quantile_interval
from edgeyard.devices.runner.measure import (
    MEASURED_PERCENT,
    WARMED_PERCENT,
    Clock,
    Measurement,
    Note,
    check_finite,
    collections_paused,
    prepare,
)
from edgeyard.devices.runner.spec import MAX_LEVEL_RUNS, MIN_LEVEL_S
from edgeyard.devices.runner.trust import (
    Reason,
    Series,
    callers_exceed_cores,
    callers_take_turns,
    judge,
)
from edgeyard.errors import RunFailed

PARTS = 20
"""Parts of a level at most whose throughputs its interval comes from."""

MIN_ROUNDS = 8
"""Inferences of each caller that a level waits for: fewer parts have no interval."""

SHORT_MS = 0.1
"""Callers of shorter inferences wait for each other outside of the engine: of each inference some
5 to 10 µs are Python's, and one thread at a time has them."""

_LOOK_S = 0.25
"""The machine is looked at and progress is reported so often."""

_POLL_S = 0.02

Another = Callable[[], Session]


@dataclass(frozen=True, kw_only=True)
class Level:
    """What one number of callers showed, while all of them were running.

    Attributes:
        latencies_ms: Shape (inferences,), at least one, in the order in which they ended.
        rates: Shape (parts,), inferences per second of parts of equally many inferences.
        began_s: When counting began, `time.monotonic`.
    """

    callers: int
    duration_s: float
    latencies_ms: NDArray[np.float64]
    rates: NDArray[np.float64]
    conditions: Conditions
    began_s: float = 0.0

    @property
    def runs_per_s(self) -> float:
        """Throughput: the median of the parts."""
        return float(np.median(self.rates))

    @property
    def spans(self) -> Sequence[Tuple[float, float, float]]:
        """When the inferences ran that count, as of `Measurement`."""
        # perf_counter and monotonic are one clock on Linux
        return [(self.began_s, self.began_s + self.duration_s, float(len(self.latencies_ms)))]

    @cached_property
    def report(self) -> Mapping[str, object]:
        """The values as the report contains them; their intervals take time on a board."""
        rate, p50 = median_interval(self.rates), median_interval(self.latencies_ms)
        p99_low, p99_high = quantile_interval(self.latencies_ms, 0.99)
        return {
            "callers": self.callers,
            "duration_s": self.duration_s,
            "nb_inference": len(self.latencies_ms),
            "runs_per_s": self.runs_per_s,
            "runs_per_s_low": None if rate is None else rate.low,
            "runs_per_s_high": None if rate is None else rate.high,
            "p50_ms": float(np.median(self.latencies_ms)),
            "p50_low_ms": None if p50 is None else p50.low,
            "p50_high_ms": None if p50 is None else p50.high,
            "p99_ms": float(np.percentile(self.latencies_ms, 99)),
            "p99_low_ms": p99_low,
            "p99_high_ms": p99_high,
        }


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Throughput and latency by the number of callers.

    Attributes:
        levels: From few callers to many.
        shared: All callers used one loaded model.
        measurement: Of the knee, or of the only level.
    """

    levels: Sequence[Level]
    shared: bool
    measurement: Measurement

    def as_json(self) -> Dict[str, object]:
        """Return the ``concurrency`` of the report."""
        levels = [each.report for each in self.levels]
        at, near = knee(levels)
        return {
            "levels": levels,
            "callers": at,
            "knee": at if len(levels) > 1 else None,
            "not_distinct": near,
            "cores": len(self.measurement.conditions.cpus),
            "shared_model": self.shared,
        }


def knee(levels: Sequence[Mapping[str, object]]) -> Tuple[int, List[int]]:
    """Return the knee of a curve: the number of callers with the largest throughput per latency.

    Args:
        levels: At least one, each with ``callers``, ``runs_per_s`` and the ends of its interval,
            ``runs_per_s_low`` and ``runs_per_s_high`` (None: not known), as `Level.report`.

    Returns:
        The callers at the knee, the fewest of equals, and the other numbers of callers which may
        be the knee, too: their intervals of X² / N overlap that of the knee.
    """
    found = [_power(each) for each in levels]
    best = max(found, key=lambda each: (each[1], -each[0]))
    return best[0], [each[0] for each in found if each is not best and each[3] >= best[2]]


def _power(level: Mapping[str, object]) -> Tuple[int, float, float, float]:
    """Return the callers of a level, X² / N, and the ends of its interval."""
    callers = int(_number(level["callers"]))
    rate = _number(level["runs_per_s"])
    low, high = (
        rate if level.get(name) is None else _number(level[name])
        for name in ("runs_per_s_low", "runs_per_s_high")
    )
    return callers, rate**2 / callers, low**2 / callers, high**2 / callers


def _number(value: object) -> float:
    assert isinstance(value, (int, float))
    return float(value)


def curve(
    session: Session,
    another: Another,
    feeds: Feeds,
    watch_of: Callable[[int], Watch],
    progress: Progress,
    *,
    callers: Sequence[int],
    shared: bool,
    min_runs: int,
    max_s: float,
    clock: Clock = time.perf_counter_ns,
    max_warmup_s: float = math.inf,
    min_level_s: float = MIN_LEVEL_S,
    note: Note = lambda sentence: None,
) -> Curve:
    """Warm up by one caller, then measure each number of callers, and find the knee.

    Args:
        another: Returns what one more caller runs, while the others do.
        watch_of: Returns what observes a level with that number of callers.
        callers: Numbers of callers, rising.
        shared: Whether ``another`` loads no model; it is only reported.
        min_runs: Inferences of each level that all its callers make together.
        max_s: Of everything; each level has an equal share of what is left.
        note: Takes what each level showed, before the progress.

    Raises:
        RunFailed: As `measure`; ``timeout``: there was no time for two inferences of each caller.
    """
    began = time.monotonic()
    ready = prepare(session, feeds, progress, clock=clock, max_warmup_s=max_warmup_s)
    sessions = [session]
    levels: List[Level] = []
    grown_bytes = 0
    gc.collect()
    with collections_paused():
        for place, count in enumerate(callers):
            while len(sessions) < count:
                _check_time(max_s - (time.monotonic() - began), count)
                before_bytes = resident_bytes()
                sessions.append(another())
                sessions[-1].run(feeds)  # its memory is there before it counts
                grown_bytes += max(0, resident_bytes() - before_bytes)
            left_s = max_s - (time.monotonic() - began)

            def look(share: float, place: int = place) -> None:
                done = (place + share) / len(callers)
                percent = WARMED_PERCENT + (MEASURED_PERCENT - WARMED_PERCENT) * done
                progress(min(percent, MEASURED_PERCENT), "measuring")

            calling = _Callers(sessions[:count], feeds, clock)
            levels.append(
                calling.level(
                    watch_of(count),
                    look,
                    min_s=min_level_s,
                    min_runs=min_runs,
                    max_s=left_s / (len(callers) - place),
                )
            )
            grown_bytes += calling.grown_bytes
            note(_so_far(levels[-1]))
    check_finite(session, session.run(feeds))
    at, _ = knee([each.report for each in levels])
    chosen = next(each for each in levels if each.callers == at)
    conditions = together([each.conditions for each in levels])
    return Curve(
        levels=levels,
        shared=shared,
        measurement=Measurement(
            latencies_ms=chosen.latencies_ms,
            warmup=ready.warmup,
            conditions=conditions,
            verdict=judge(
                chosen.latencies_ms,
                conditions,
                warmup=ready.warmup,
                primary=Series(RUNS_PER_S, chosen.rates),
            ),
            first_ms=ready.first_ms,
            rows_a_run=ready.rows_a_run,
            peak_bytes=None if ready.peak_bytes is None else ready.peak_bytes + grown_bytes,
            rates=chosen.rates,
            spans=chosen.spans,
            primary=RUNS_PER_S,
        ),
    )


def doubts(report: Mapping[str, object]) -> Sequence[Reason]:
    """Return the reasons against a curve that `judge` does not find.

    Args:
        report: As `Curve.as_json` returns it.
    """
    levels, cores = report["levels"], report["cores"]
    if not isinstance(levels, list) or not isinstance(cores, int):
        return ()
    found = []
    max_callers = max(int(each["callers"]) for each in levels)
    if max_callers > cores:
        found.append(callers_exceed_cores(max_callers, cores))
    shortest_ms = min(float(each["p50_ms"]) for each in levels)
    if max_callers > 1 and shortest_ms < SHORT_MS:
        found.append(callers_take_turns(shortest_ms))
    return found


def part_rates(ends_s: NDArray[np.float64], began_s: float, callers: int) -> NDArray[np.float64]:
    """Return the throughputs of up to `PARTS` parts of equally many inferences, 1/s.

    Each part has whole rounds of all callers, and lasts from the end of the last inference before
    it to the end of its own last one: no inference is counted in part.

    Args:
        ends_s: Shape (inferences,), rising; at least one.
        began_s: When counting began.
    """
    size = callers * math.ceil(len(ends_s) / callers / PARTS)
    last = ends_s[size - 1 :: size]
    if not len(last):
        size, last = len(ends_s), ends_s[-1:]
    took = np.diff(last, prepend=began_s)
    rates: NDArray[np.float64] = size / np.maximum(took, 1e-9)
    return rates


class _Callers:
    """Threads that run inferences until they are stopped.

    Attributes:
        grown_bytes: Resident memory that they needed to run at the same time: it has grown by so
            much when each had run once, before their times take any.
    """

    def __init__(self, sessions: Sequence[Session], feeds: Feeds, clock: Clock) -> None:
        self._feeds, self._clock = feeds, clock
        self.grown_bytes = 0
        self._stop, self._begin = threading.Event(), threading.Event()
        self._errors: List[BaseException] = []
        self._times = [(array("q"), array("q")) for _ in sessions]
        self._max_runs = max(2, MAX_LEVEL_RUNS // len(sessions))
        self._threads = [
            threading.Thread(target=self._call, args=(each, *times), name=f"caller-{place}")
            for place, (each, times) in enumerate(zip(sessions, self._times, strict=True))
        ]

    def level(
        self,
        watch: Watch,
        look: Callable[[float], None],
        *,
        min_s: float,
        min_runs: int,
        max_s: float,
    ) -> Level:
        """Let all call, and keep what ended while all of them did.

        Raises:
            RunFailed: As of `curve`.
        """
        before_bytes, ran = resident_bytes(), False
        self._start()
        watch.start()
        began = looked = time.monotonic()
        self._begin.set()
        try:
            while not self._stop.wait(_POLL_S):
                if not ran and all(len(ends) for ends, _ in self._times):
                    ran, self.grown_bytes = True, max(0, resident_bytes() - before_bytes)
                now = time.monotonic()
                share = self._share(now - began, min_s, min_runs)
                if share >= 1.0 or now - began >= max_s:
                    break
                if now - looked >= _LOOK_S:
                    looked = now
                    watch.look()
                    look(max(share, min(1.0, (now - began) / max_s)))
        finally:
            self._stop.set()
        count = len(self._threads)
        if not self._errors and min(len(ends) for ends, _ in self._times) < 2:
            _check_time(0.0, count)
        for each in self._threads:
            each.join()
        conditions = watch.stop()
        if self._errors:
            raise self._errors[0]
        return self._level(conditions)

    def _start(self) -> None:
        started = 0
        try:
            for each in self._threads:
                each.start()
                started += 1
        except RuntimeError as error:  # the address space, or the number of threads, is used up
            self._stop.set()
            self._begin.set()
            raise RunFailed(
                "out_of_memory",
                f"caller {started + 1} of {len(self._threads)} could not be started: {error}; "
                "state fewer callers",
            ) from error

    def _share(self, spent_s: float, min_s: float, min_runs: int) -> float:
        """Return how much of a level is done; at 1 it is."""
        counts = [len(ends) for ends, _ in self._times]
        if min(counts) >= self._max_runs:
            return 1.0
        rounds = (min(counts) - 2) / MIN_ROUNDS
        runs = (sum(counts) - 2 * len(counts)) / min_runs
        return max(0.0, min(spent_s / min_s, rounds, runs))

    def _call(self, session: Session, ends: "array[int]", took: "array[int]") -> None:
        run, feeds, clock, stopped = session.run, self._feeds, self._clock, self._stop.is_set
        self._begin.wait()
        try:
            for _ in range(self._max_runs):
                if stopped():
                    break
                began = clock()
                run(feeds)
                ended = clock()
                took.append(ended - began)
                ends.append(ended)
        except BaseException as error:  # raised again by the thread that waits for this one
            self._errors.append(error)
            self._stop.set()

    def _level(self, conditions: Conditions) -> Level:
        first = max(ends[0] for ends, _ in self._times)
        last = min(ends[-1] for ends, _ in self._times)
        every = np.array([each for ends, _ in self._times for each in ends], dtype=np.int64)
        took = np.array([each for _, took in self._times for each in took], dtype=np.int64)
        order = np.argsort(every, kind="stable")
        kept = order[(every[order] > first) & (every[order] <= last)]
        callers = len(self._threads)
        if not len(kept):
            _check_time(0.0, callers)
        return Level(
            callers=callers,
            duration_s=(last - first) / 1e9,
            latencies_ms=took[kept] / 1e6,
            began_s=first / 1e9,
            rates=part_rates((every[kept] - first) / 1e9, 0.0, callers),
            conditions=conditions,
        )


def _check_time(left_s: float, callers: int) -> None:
    if left_s <= 0:
        raise RunFailed(
            "timeout",
            f"the time that was left was too short for {callers} callers, who make two inferences "
            "each at least: state a longer user_time, or fewer callers",
        )


def _so_far(level: Level) -> str:
    p50_ms = float(np.median(level.latencies_ms))
    who = "1 caller" if level.callers == 1 else f"{level.callers} callers"
    return f"{who}: {level.runs_per_s:.4g} inferences/s, p50 {p50_ms:.4g} ms"
