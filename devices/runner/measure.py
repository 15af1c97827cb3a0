"""Timing a loaded model: warm up until steady, then keep every latency."""

from __future__ import annotations

import gc
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.metrics import P50, Metric
from edgeyard.devices.runner.board import peak_bytes
from edgeyard.devices.runner.conditions import Conditions, Watch
from edgeyard.devices.runner.engine import Progress, Session
from edgeyard.devices.runner.feeds import Feeds
from edgeyard.devices.runner.first_run import first_outputs
from edgeyard.devices.runner.interval import MIN_SAMPLES, median_interval
from edgeyard.devices.runner.trust import Verdict, interval_so_far, judge
from edgeyard.devices.runner.warmup import Timed, WarmUp, warm_up
from edgeyard.errors import RunFailed

Note = Callable[[str], None]
"""``note(sentence)``: what people should know of a run until the next note."""

Clock = Callable[[], int]
"""Nanoseconds that never go back."""

_CHUNK_S = 0.25
"""Progress is reported and the machine checked between chunks, never inside one."""

_MIN_EFFECTIVE = 30
"""Independent runs before a precision counts as reached. Looking again and again until an interval
is narrow stops at intervals that are narrow by chance: with fewer, 88 % of them hold the median
where runs depend on one another (autocorrelation 0.9), with these 93 %."""

_MAX_RUNS = 10_000_000

MIN_MEASURING_S = 0.5
"""Numbers taken in less say how the board was at that moment: twenty runs of a model of 10 µs are
over in 0.2 ms, within one time slice of the kernel."""

_GRAIN_NS = 100_000
"""What one number covers at least. Reading the clock takes 30 to 1,000 ns, by board."""
_SPAN_S, _MAX_PAUSE_S = 0.25, 0.001
"""A span of inferences is made longer up to so long, over pauses up to so long."""

_CHECK_GROWTH = 1.25
"""The interval is computed again when the series has grown by a quarter: the cost stays linear."""

WARMING_PERCENT, WARMED_PERCENT, MEASURED_PERCENT = 5.0, 15.0, 95.0


@dataclass(frozen=True, kw_only=True)
class StopRule:
    """When a measurement ends: after ``runs``, or when the interval is narrow, or at ``max_s``.

    Attributes:
        runs: Number of runs; not looked at when ``precision`` is given.
        precision: Relative half-width of the p50's interval.
        max_s: With ``precision``, ``min_s`` or ``min_runs``: no further chunk begins after this
            time.
        cap: What ``max_s`` comes from, for people, with ``precision``.
        min_s: Runs go on until they took so long together, also where there are enough of them.
        min_runs: Runs that are made whatever time they take; None: ``runs``, with a precision 1.
    """

    runs: int
    precision: Optional[float] = None
    max_s: float = math.inf
    cap: str = "time"
    min_s: float = 0.0
    min_runs: Optional[int] = None


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A series of latencies, and what is to be known to trust it.

    Attributes:
        latencies_ms: Shape (runs,), in order.
        precision: That was asked for.
        loops: Consecutive inferences that each latency is the mean of.
        launches: Processes that measured, one after another, as many latencies each.
        first_ms: The first inference after loading; None: not measured.
        rows_a_run: Rows that one run takes; None: there is no dimension for rows.
        rates: Shape (parts,), the throughputs, 1/s, of parts of the time; None: that is runs over
            the sum of latencies, as one caller in a row made all runs.
        spans: When the inferences ran: begin, end (`time.monotonic`) and how many, in order; empty:
            not recorded, so that no energy of an inference is known.
        primary: The metric that the result is compared by.
        peak_bytes: Resident memory that the inferences needed, without what the numbers of a long
            measurement take; None: not known.
    """

    latencies_ms: NDArray[np.float64]
    warmup: Optional[WarmUp]
    conditions: Conditions
    verdict: Verdict
    precision: Optional[float] = None
    loops: int = 1
    launches: int = 1
    first_ms: Optional[float] = None
    rows_a_run: Optional[int] = None
    rates: Optional[NDArray[np.float64]] = None
    spans: Sequence[Tuple[float, float, float]] = ()
    primary: Metric = P50
    peak_bytes: Optional[int] = None

    def as_json(self) -> Dict[str, object]:
        """Return the values as the report contains them."""
        total_s = float(self.latencies_ms.sum()) / 1e3 * self.loops
        runs = len(self.latencies_ms) * self.loops
        runs_per_s = runs / total_s if total_s > 0 else None
        if self.rates is not None:
            runs_per_s = float(np.median(self.rates))
        rows_per_s = None
        if runs_per_s is not None and self.rows_a_run is not None:
            rows_per_s = runs_per_s * self.rows_a_run
        report: Dict[str, object] = {
            "inference_latency": summary(self.latencies_ms, self.verdict),
            "nb_inference": runs,
            "inner_loops": self.loops,
            "launches": self.launches,
            "runs_per_s": runs_per_s,
            "rows_per_s": rows_per_s,
            "verdict": self.verdict.as_json(),
            "warmup": None if self.warmup is None else self.warmup.as_json(),
            "load_cpu": min(100.0, self.conditions.cpu_use * 100),
            "temperature": self.conditions.temperature_after_c,
            "conditions": self.conditions.as_json(),
        }
        if self.rates is not None:
            known = median_interval(self.rates)
            report["runs_per_s_ci95"] = None if known is None else [known.low, known.high]
            report["runs_per_s_ci95_degrees"] = None if known is None else known.degrees
        if self.primary is not P50:
            report["primary_metric"] = self.primary.name
        if self.first_ms is not None:
            report["first_inference_ms"] = self.first_ms
        if self.precision is not None:
            interval = self.verdict.interval
            report["precision"] = {
                "asked": self.precision,
                "reached": interval is not None and interval.half_width <= self.precision,
                "half_width": None if interval is None else interval.half_width,
            }
        return report


def rows_a_run(feeds: Feeds, outputs: Sequence[object]) -> Optional[int]:
    """Return how many rows a run takes; None if its arrays have no dimension for rows.

    Rows are the first dimension where all inputs but scalars have at least two dimensions, all
    outputs that are arrays at least one, and the first ones of all are equal.
    """
    inputs = [value for value in feeds.values() if value.ndim]
    arrays = [value for value in outputs if isinstance(value, np.ndarray)]
    if any(value.ndim < 2 for value in inputs) or any(one.ndim < 1 for one in arrays):
        return None
    sizes = {len(value) for value in (*inputs, *arrays)}
    return (sizes.pop() or None) if inputs and len(sizes) == 1 else None


def inner_loops(run_ns: float) -> int:
    """Return how many inferences to time together, so that the clock's resolution is negligible."""
    return max(1, math.ceil(_GRAIN_NS / max(run_ns, 1.0)))


def add_span(
    spans: List[Tuple[float, float, float]], begin_s: float, end_s: float, runs: int
) -> None:
    """Add when inferences ran; short ones that follow each other closely become one.

    Args:
        spans: As of `Measurement`.
        begin_s: `time.monotonic`, not before the end of the last one.
        end_s: Later than that.
        runs: How many inferences.
    """
    if spans:
        before_s, until_s, done = spans[-1]
        if begin_s - until_s < _MAX_PAUSE_S and end_s - before_s < _SPAN_S:
            spans[-1] = (before_s, end_s, done + runs)
            return
    if end_s > begin_s:
        spans.append((begin_s, end_s, float(runs)))


def timed_loops(
    run: Callable[[Feeds], object],
    feeds: Feeds,
    count: int,
    loops: int,
    clock: Clock = time.perf_counter_ns,
) -> List[float]:
    """Mean latencies of ``count`` times ``loops`` consecutive runs in nanoseconds."""
    if loops == 1:
        return [float(one) for one in timed_runs(run, feeds, count, clock)]
    latencies: List[float] = []
    keep = latencies.append
    for _ in range(count):
        inner = repeat(None, loops)
        started = clock()
        for _ in inner:
            run(feeds)
        keep((clock() - started) / loops)
    return latencies


def timed_runs(
    run: Callable[[Feeds], object], feeds: Feeds, count: int, clock: Clock = time.perf_counter_ns
) -> List[int]:
    """Latencies of ``count`` runs in nanoseconds; nothing but the run is between two readings."""
    latencies: List[int] = []
    keep = latencies.append
    for _ in range(count):
        started = clock()
        run(feeds)
        keep(clock() - started)
    return latencies


def measure(
    session: Session,
    feeds: Feeds,
    until: "StopRule | Callable[[WarmUp], StopRule]",
    watch: Watch,
    progress: Progress,
    *,
    clock: Clock = time.perf_counter_ns,
    max_warmup_s: float = math.inf,
    loops: Optional[int] = None,
    note: Note = lambda sentence: None,
) -> Measurement:
    """Warm up, measure and judge.

    Args:
        until: When to end, or what decides that once the model is warm.
        loops: Consecutive inferences that a latency is the mean of; None: as many as are needed.
        note: Takes what is known so far; of a precision, before the progress.

    Raises:
        RunFailed: ``user_model``: outputs are not finite; and what `Session.run` raises.
    """
    ready = prepare(session, feeds, progress, clock=clock, max_warmup_s=max_warmup_s)
    warmup, recent_ns = ready.warmup, ready.recent_ns
    with collections_paused():
        if loops is None:
            loops = inner_loops(recent_ns)
        until = until(warmup) if callable(until) else until
        watch.start()
        latencies, spans = _series(
            session, feeds, until, watch, progress, clock, recent_ns, loops, note
        )
        conditions = watch.stop()
    check_finite(session, session.run(feeds))
    return Measurement(
        latencies_ms=latencies,
        warmup=warmup,
        conditions=conditions,
        verdict=judge(
            latencies,
            conditions,
            warmup=warmup,
            precision=until.precision,
            cap=(
                f"The {until.cap} was used up"
                if len(latencies) < _MAX_RUNS
                else f"The maximum of {_MAX_RUNS:,} runs was reached"
            ),
            loops=loops,
        ),
        precision=until.precision,
        loops=loops,
        first_ms=ready.first_ms,
        rows_a_run=ready.rows_a_run,
        spans=spans,
        peak_bytes=ready.peak_bytes,
    )


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A model that is warm.

    Attributes:
        first_ms: The first inference after loading.
        recent_ns: Median of one inference at the end of the warm-up.
        rows_a_run: As of `Measurement`.
        peak_bytes: As of `Measurement`.
    """

    first_ms: float
    warmup: WarmUp
    recent_ns: float
    rows_a_run: Optional[int]
    peak_bytes: Optional[int]


def prepare(
    session: Session,
    feeds: Feeds,
    progress: Progress,
    *,
    clock: Clock = time.perf_counter_ns,
    max_warmup_s: float = math.inf,
) -> Ready:
    """Run once, check the outputs, and warm up.

    Raises:
        RunFailed: ``user_model``: outputs are not finite; and what `Session.run` raises.
    """
    began = clock()
    outputs = first_outputs(session, feeds)
    first_ms = (clock() - began) / 1e6
    check_finite(session, outputs)
    rows = rows_a_run(feeds, outputs)
    del outputs  # kept, they would count as memory that the model needs
    gc.collect()
    with collections_paused():
        warmup = warm_up(
            warming(lambda count: timed_runs(session.run, feeds, count, clock), progress),
            max_warmup_s,
        )
    progress(WARMED_PERCENT, "measuring")
    recent_ns = float(np.median(warmup.latencies_ms[-warmup.window :])) * 1e6
    return Ready(
        first_ms=first_ms,
        warmup=warmup,
        recent_ns=recent_ns,
        rows_a_run=rows,
        peak_bytes=peak_bytes(),
    )


@contextmanager
def collections_paused() -> Iterator[None]:
    """Let Python collect no garbage meanwhile: its collections are no property of the model."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def warming(timed: Timed, progress: Progress) -> Timed:
    """Report before each window that the engine still warms up, then measure."""

    def reporting(count: int) -> Sequence[int]:
        progress(WARMING_PERCENT, "warmup")
        return timed(count)

    return reporting


def check_finite(session: Session, outputs: Sequence[object]) -> None:
    """Refuse NaN and infinity, which come out of a run without an error.

    Raises:
        RunFailed: ``user_model``, naming the output.
    """
    for spec, value in zip(session.outputs, outputs, strict=True):
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fc":
            continue
        wrong = int(value.size - np.count_nonzero(np.isfinite(value)))
        if wrong:
            raise RunFailed(
                "user_model",
                f"output {spec.name!r} has {wrong} of {value.size} values that are NaN or "
                "infinite; check the model and the range of its input",
            )


def summary(latencies_ms: NDArray[np.float64], verdict: Verdict) -> Mapping[str, object]:
    """Return the report's ``inference_latency``: milliseconds.

    Args:
        latencies_ms: Shape (runs,), at least one run.
    """
    p90, p99 = (float(one) for one in np.percentile(latencies_ms, (90, 99)))
    interval = verdict.interval
    return {
        "unit": "ms",
        "count": len(latencies_ms),
        "mean": float(latencies_ms.mean()),
        "std": float(latencies_ms.std(ddof=1)) if len(latencies_ms) > 1 else 0.0,
        "min": float(latencies_ms.min()),
        "max": float(latencies_ms.max()),
        "p50": float(np.median(latencies_ms)),
        "p90": p90,
        "p99": p99,
        "p50_ci95": None if interval is None else [interval.low, interval.high],
        "p50_ci95_half_width": None if interval is None else interval.half_width,
        "p50_ci95_degrees": None if interval is None else interval.degrees,
        "autocorrelation_time": None if interval is None else interval.tau,
    }


def _series(
    session: Session,
    feeds: Feeds,
    until: StopRule,
    watch: Watch,
    progress: Progress,
    clock: Clock,
    recent_ns: float,
    loops: int,
    note: Note,
) -> "Tuple[NDArray[np.float64], List[Tuple[float, float, float]]]":
    max_runs = until.runs if until.precision is None else _MAX_RUNS
    chunks: List[NDArray[np.float64]] = []
    spans: List[Tuple[float, float, float]] = []
    done, check_at = 0, MIN_SAMPLES
    spent_ns = 0.0
    min_ns = min(until.min_s, until.max_s) * 1e9
    min_runs = until.min_runs
    if min_runs is None:
        min_runs = until.runs if until.precision is None else 1
    limits = f"{until.cap} at most"
    if until.precision is not None:
        note(interval_so_far(None, until.precision, limits))
    while done < max_runs or (spent_ns < min_ns and done < _MAX_RUNS):
        number_ns = max(recent_ns, 1.0) * loops
        wanted = max_runs - done if done < max_runs else math.ceil((min_ns - spent_ns) / number_ns)
        count = max(1, min(wanted, int(_CHUNK_S * 1e9 / number_ns)))
        if until.precision is not None:
            count = min(count, max(1, check_at - done))
        began_s = time.monotonic()
        taken = timed_loops(session.run, feeds, count, loops, clock)
        add_span(spans, began_s, time.monotonic(), count * loops)
        chunks.append(np.array(taken, dtype=np.float64) / 1e6)
        done += count
        spent_ns += sum(taken) * loops
        recent_ns = spent_ns / done / loops
        watch.look()
        share = min(done / max_runs, spent_ns / min_ns if min_ns > 0 else 1.0)
        if until.precision is not None:
            share = spent_ns / 1e9 / max(until.max_s, 1e-9)
            if done >= check_at:
                check_at = math.ceil(done * _CHECK_GROWTH)
                interval = median_interval(np.concatenate(chunks))
                if interval is not None:
                    enough = interval.effective >= _MIN_EFFECTIVE and spent_ns >= min_ns
                    if enough and interval.half_width <= until.precision:
                        break
                    share = max(share, (until.precision / interval.half_width) ** 2)
                    note(interval_so_far(interval, until.precision, limits))
        if spent_ns >= until.max_s * 1e9 and done >= min_runs:
            break
        progress(
            WARMED_PERCENT + (MEASURED_PERCENT - WARMED_PERCENT) * min(1.0, share), "measuring"
        )
    return np.concatenate(chunks), spans
