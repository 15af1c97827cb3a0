"""TYPE1 as a soak: one caller in a row for a stated time, and when the board became steady.

A board that is cold is faster than the same board after half an hour: its clock falls as it gets
warm. The soak is divided into windows, a minute each unless the user says otherwise. The number of
the result is that of the steady part alone, and so is its verdict.
"""

from __future__ import annotations

import gc
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.board import process_s
from edgeyard.devices.runner.conditions import Conditions, Watch, together
from edgeyard.devices.runner.engine import Progress, Session
from edgeyard.devices.runner.feeds import Feeds
from edgeyard.devices.runner.interval import median_interval
from edgeyard.devices.runner.measure import (
    MEASURED_PERCENT,
    WARMED_PERCENT,
    Clock,
    Measurement,
    Note,
    check_finite,
    collections_paused,
    inner_loops,
    prepare,
    timed_loops,
)
from edgeyard.devices.runner.spec import soak_windows
from edgeyard.devices.runner.trust import Reason, judge, not_steady

STEADY_TOLERANCE = 0.05
"""How far the p50 of a window may be from that of the steady part: the drift that makes a number
suspect."""

MAX_OUTSIDE = 0.1
"""Share of the steady windows that may be further away: others use the machine for a while."""

MIN_STEADY_WINDOWS = 3
MIN_STEADY_SHARE = 0.2
"""The least that the steady part is of a soak that drifts: some short end always looks steady."""

CLOCK_FALL = 0.05
"""A mean clock that is lower by this than that of the first window is a sign of throttling."""

MAX_NUMBERS = 1_000_000
"""Latencies at most of a soak: each is the mean of more inferences where there would be more."""

_MAX_SHOWN = 10_000
"""Latencies that the p50 of the present window comes from while it is shown."""

_CHUNK_S, _CHUNKS_A_WINDOW = 0.5, 10
"""The machine is looked at and progress reported between chunks, which are short parts of a window:
how many inferences a chunk has is decided before others may take the CPU away."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """What one window showed.

    Attributes:
        begin_s: Since the beginning of the soak.
        latencies_ms: Shape (numbers,), at least one.
        spans: As of `Measurement`.
    """

    begin_s: float
    end_s: float
    latencies_ms: NDArray[np.float64]
    conditions: Conditions
    spans: Sequence[Tuple[float, float, float]] = ()

    @property
    def p50_ms(self) -> float:
        """Median of the window."""
        return float(np.median(self.latencies_ms))

    @property
    def clock_mhz(self) -> Optional[float]:
        """Mean of the clock over the window; None: the kernel does not report it."""
        seen = self.conditions.frequencies_mhz
        return float(np.mean(seen)) if seen else None

    @property
    def throttled(self) -> Optional[bool]:
        """Whether firmware or kernel reported throttling; None: neither reports it."""
        events, now = self.conditions.throttle_events, self.conditions.throttled
        if events is None and now is None:
            return None
        return bool(events) or bool(now)

    def as_json(self, loops: int) -> Dict[str, object]:
        """Return the values as the report contains them."""
        interval = median_interval(self.latencies_ms)
        return {
            "begin_s": self.begin_s,
            "end_s": self.end_s,
            "nb_inference": len(self.latencies_ms) * loops,
            "p50_ms": self.p50_ms,
            "p50_low_ms": None if interval is None else interval.low,
            "p50_high_ms": None if interval is None else interval.high,
            "p99_ms": float(np.percentile(self.latencies_ms, 99)),
            "temperature_c": self.conditions.temperature_after_c,
            "clock_mhz": self.clock_mhz,
            "throttled": self.throttled,
        }


@dataclass(frozen=True, kw_only=True)
class Soak:
    """A soak: its windows, and which of them are the steady part.

    Attributes:
        steady_from: Index of the first steady window; None: it did not become steady.
        overhead: Processor time of the measuring process outside of inferences, over the time of
            the soak: Edgeyard's own share of a core.
        measurement: Of the steady part, or of all where there is none.
    """

    window_s: float
    windows: Sequence[Window]
    steady_from: Optional[int]
    overhead: float
    measurement: Measurement

    def as_json(self) -> Dict[str, object]:
        """Return the ``soak`` of the report."""
        loops = self.measurement.loops
        steady = None
        if self.steady_from is not None:
            steady = {
                "begin_s": self.windows[self.steady_from].begin_s,
                "windows": len(self.windows) - self.steady_from,
                "p50_ms": float(np.median(self.measurement.latencies_ms)),
            }
        return {
            "duration_s": self.windows[-1].end_s,
            "window_s": self.window_s,
            "windows": [one.as_json(loops) for one in self.windows],
            "steady": steady,
            "throttling": throttling(self.windows),
            "overhead": self.overhead,
        }


def steady_from(p50s_ms: Sequence[float]) -> Optional[int]:
    """Return the index of the first window of the steady part; None: there is none.

    From it on at least nine windows in ten are within 5 % of the median of all of these, among them
    the first one and two of the last three, and there are at least three: windows of another level
    at the end are no outliers. Of a soak that drifts by more than 5 %, these are a fifth of it or
    more, and the drift does not go on there at half its rate.
    """
    medians = np.array(p50s_ms, dtype=np.float64)
    shortest = MIN_STEADY_WINDOWS
    if len(medians) < shortest:
        return None
    drift = _rate(medians)
    if abs(drift) * len(medians) > STEADY_TOLERANCE * np.median(medians):
        shortest = max(shortest, math.ceil(MIN_STEADY_SHARE * len(medians)))
    else:
        drift = 0.0
    for first in range(len(medians) - shortest + 1):
        rest = medians[first:]
        near = np.abs(rest / np.median(rest) - 1) <= STEADY_TOLERANCE
        ends = near[0] and np.count_nonzero(near[-MIN_STEADY_WINDOWS:]) >= MIN_STEADY_WINDOWS - 1
        goes_on = drift != 0 and _rate(rest) / drift >= 0.5
        if ends and not goes_on and np.count_nonzero(~near) <= MAX_OUTSIDE * len(rest):
            return first
    return None


def _rate(values: NDArray[np.float64]) -> float:
    """Return by how much values move a step, from the median of their first third to the last."""
    third = max(1, len(values) // 3)
    moved = float(np.median(values[-third:]) - np.median(values[:third]))
    return moved / (len(values) - third)


def throttling(windows: Sequence[Window]) -> Dict[str, object]:
    """Return when throttling began, the sign that showed it, and the signs that this board has.

    ``after_s`` is the beginning of the first window with a sign, null without one; ``sign`` is
    ``reported`` (by firmware or kernel) or ``clock``; ``watched`` lists the signs that there are.
    """
    watched = []
    if any(one.throttled is not None for one in windows):
        watched.append("reported")
    first_mhz = windows[0].clock_mhz
    if first_mhz is not None:
        watched.append("clock")
    for one in windows:
        if one.throttled:
            return {"after_s": one.begin_s, "sign": "reported", "watched": watched}
        mhz = one.clock_mhz
        if first_mhz is not None and mhz is not None and mhz < (1 - CLOCK_FALL) * first_mhz:
            return {"after_s": one.begin_s, "sign": "clock", "watched": watched}
    return {"after_s": None, "sign": None, "watched": watched}


def soak(
    session: Session,
    feeds: Feeds,
    watch_of: Callable[[], Watch],
    progress: Progress,
    *,
    duration_s: float,
    window_s: float,
    clock: Clock = time.perf_counter_ns,
    max_warmup_s: float = math.inf,
    note: Note = lambda sentence: None,
) -> Soak:
    """Warm up, then run one inference after another for so long, and judge the steady part.

    Args:
        watch_of: Returns what observes one window.
        duration_s: Of the soak, without the warm-up; a last window of less than half a window is
            part of the one before it.
        note: Takes the p50 of the present window, before the progress.

    Raises:
        RunFailed: As `measure`.
    """
    ready = prepare(session, feeds, progress, clock=clock, max_warmup_s=max_warmup_s)
    number_s = ready.recent_ns / 1e9
    loops = max(
        inner_loops(ready.recent_ns), math.ceil(duration_s / MAX_NUMBERS / max(number_s, 1e-9))
    )
    count = soak_windows(duration_s, window_s)
    windows: List[Window] = []
    own_cpu_s = 0.0
    gc.collect()
    with collections_paused():
        began = clock()
        cpu_s = process_s()
        for index in range(count):
            until_s = duration_s if index == count - 1 else (index + 1) * window_s
            if windows and windows[-1].end_s >= until_s:
                continue  # one inference takes longer than a window
            watch = watch_of()
            begin_s = (clock() - began) / 1e9
            watch.start()
            chunks: List[NDArray[np.float64]] = []
            began_s = time.monotonic()
            runs, now_s = 0, begin_s
            while not chunks or now_s < until_s:
                span_s = min(_CHUNK_S, window_s / _CHUNKS_A_WINDOW, max(0.0, until_s - now_s))
                many = max(1, math.ceil(span_s / max(number_s, 1e-9) / loops))
                own_cpu_s += process_s() - cpu_s
                taken = np.array(timed_loops(session.run, feeds, many, loops, clock))
                ended_s = time.monotonic()
                runs += many * loops
                cpu_s = process_s()
                chunks.append(taken / 1e6)
                watch.look()
                before_s, now_s = now_s, (clock() - began) / 1e9
                number_s = (now_s - before_s) / many / loops
                note(_so_far(index + 1, count, window_s, chunks))
                share = min(1.0, now_s / duration_s)
                progress(WARMED_PERCENT + (MEASURED_PERCENT - WARMED_PERCENT) * share, "measuring")
            windows.append(
                Window(
                    begin_s=begin_s,
                    end_s=now_s,
                    latencies_ms=np.concatenate(chunks),
                    conditions=watch.stop(),
                    # one: between its chunks the machine is looked at for 0.1 ms
                    spans=[(began_s, ended_s, float(runs))],
                )
            )
        own_cpu_s += process_s() - cpu_s
        wall_ns = clock() - began
    check_finite(session, session.run(feeds))
    first = steady_from([one.p50_ms for one in windows])
    counted = windows[first or 0 :]
    latencies = np.concatenate([one.latencies_ms for one in counted])
    conditions = together([one.conditions for one in counted])
    if windows[0].conditions.temperature_before_c is not None:
        conditions = replace(
            conditions, temperature_before_c=windows[0].conditions.temperature_before_c
        )
    verdict = judge(latencies, conditions, warmup=ready.warmup, loops=loops)
    return Soak(
        window_s=window_s,
        windows=windows,
        steady_from=first,
        overhead=own_cpu_s / (wall_ns / 1e9),
        measurement=Measurement(
            latencies_ms=latencies,
            warmup=ready.warmup,
            conditions=conditions,
            verdict=verdict,
            loops=loops,
            first_ms=ready.first_ms,
            rows_a_run=ready.rows_a_run,
            peak_bytes=ready.peak_bytes,
            spans=[span for one in counted for span in one.spans],
        ),
    )


def doubts(report: Mapping[str, object]) -> Sequence[Reason]:
    """Return the reasons against the number of a soak that `judge` does not find.

    Args:
        report: As `Soak.as_json` returns it.
    """
    windows = report["windows"]
    if report["steady"] is not None or not isinstance(windows, list):
        return ()
    return (not_steady(STEADY_TOLERANCE, len(windows)),)


def write_numbers(path: Path, found: Soak) -> None:
    """Write all latencies and the index of the window of each."""
    counts = [len(one.latencies_ms) for one in found.windows]
    np.savez(
        path,
        ms=np.concatenate([one.latencies_ms for one in found.windows]),
        window=np.repeat(np.arange(len(counts)), counts),
    )


def window_name(window_s: float) -> str:
    """Return what people call a window: a minute, if it is one."""
    return "minute" if window_s == 60.0 else f"window of {window_s:g} s"


def _so_far(number: int, count: int, window_s: float, chunks: Sequence[NDArray[np.float64]]) -> str:
    step = 1 + sum(map(len, chunks)) // _MAX_SHOWN  # whole windows would cost a per cent of a core
    p50_ms = float(np.median(np.concatenate([each[::step] for each in chunks])))
    return f"{window_name(window_s)} {number} of {count}: p50 {p50_ms:.4g} ms"
