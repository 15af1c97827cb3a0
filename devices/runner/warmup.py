"""Warm-up that is detected, not assumed.

The rule: runs are timed in windows. The engine is warm when the medians of the last three windows
agree: each pair within 3 %, or within twice the standard error of their difference where the
series is noisier than that. The standard error of a window's median is 1.2533 s / sqrt(n) with
s = 1.4826 MAD (Kendall and Stuart, The Advanced Theory of Statistics, vol. 1, section 10.12;
Rousseeuw and Croux, JASA 88, 1993). A trend of more than 3 % a window is never taken for noise: it
moves medians by n times its slope, and the error by less than that for every n from 2 on.

A model that takes a second or more has a rule of its own, since windows of it would take minutes:
it is warm when three consecutive runs after the first lie within 3 % of each other, or when its
last nine runs pass as three windows. Its warm-up is bounded in runs, not in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, List, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

RULE = "the medians of the last three windows agree within 3 % or twice their standard error"
RULE_OF_SLOW = "three consecutive runs after the first lie within 3 %, or the last nine as windows"

TOLERANCE = 0.03
WINDOWS = 3
MAX_WINDOWS = 40
MAX_WARMUP_S = 30.0
"""A model of less than a second a run that is not steady after half a minute won't be."""

SLOW_S = 1.0
"""A run of so long is a window of its own."""

_RUNS_OF_SLOW = 3
_MAX_RUNS_OF_SLOW = 12

_WINDOW_S = 0.02
"""Two kernel ticks: shorter windows would see a tick or none."""

_SMALLEST, _LARGEST = 5, 500
_KEPT = 500

Timed = Callable[[int], Sequence[int]]
"""``timed(count)``: so many runs' latencies, nanoseconds."""


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """How the warm-up went.

    Attributes:
        settled: The latencies became steady within the bounds.
        seconds: Sum of the runs.
        window: Runs a window; 1 for a slow model.
        latencies_ms: Of the runs, in order.
    """

    settled: bool
    runs: int
    seconds: float
    window: int
    latencies_ms: Sequence[float]
    rule: str = RULE

    def as_json(self) -> Mapping[str, object]:
        """Return the values as the report contains them."""
        return {
            "settled": self.settled,
            "runs": self.runs,
            "seconds": round(self.seconds, 6),
            "window": self.window,
            "rule": self.rule,
            "latencies_ms": [round(one, 6) for one in self.latencies_ms[:_KEPT]],
        }


def warm_up(timed: Timed, max_s: float = math.inf) -> WarmUp:
    """Run until the latencies are steady, or a bound is reached.

    Args:
        max_s: No further window begins after this time. A model of less than a second a run
            gets half a minute at most, and a slow one at least four runs.
    """
    first = list(timed(1))
    # the first run pays for allocations: the ones after it show how long a run takes
    trial = list(timed(1)) if first[0] >= SLOW_S * 1e9 else list(timed(_SMALLEST))
    if min(trial) >= SLOW_S * 1e9:
        return _warm_up_slow(timed, first + trial, max_s)
    window = _window(min(trial) / 1e9)
    latencies = first + trial
    windows: List[NDArray[np.float64]] = []
    if len(trial) >= window:
        windows.append(np.array(trial, dtype=np.float64))
    spent_ns = sum(latencies)
    bound_ns = min(MAX_WARMUP_S, max_s) * 1e9
    settled = False
    while not settled and len(windows) < MAX_WINDOWS and spent_ns < bound_ns:
        taken = timed(window)
        latencies += taken
        spent_ns += sum(taken)
        windows.append(np.array(taken, dtype=np.float64))
        settled = len(windows) >= WINDOWS and _agree(windows[-WINDOWS:])
    return _result(latencies, window, settled, RULE)


def _warm_up_slow(timed: Timed, latencies: List[int], max_s: float) -> WarmUp:
    settled = False
    while not settled and len(latencies) <= _MAX_RUNS_OF_SLOW:
        if len(latencies) > _RUNS_OF_SLOW and sum(latencies) >= max_s * 1e9:
            break
        latencies += timed(1)
        warm = np.array(latencies[1:], dtype=np.float64)
        if len(warm) >= _RUNS_OF_SLOW:
            last = warm[-_RUNS_OF_SLOW:]
            settled = bool(last.max() <= (1 + TOLERANCE) * last.min())
        if len(warm) >= WINDOWS * _RUNS_OF_SLOW and not settled:
            settled = _agree(np.split(warm[-WINDOWS * _RUNS_OF_SLOW :], WINDOWS))
    return _result(latencies, 1, settled, RULE_OF_SLOW)


def _result(latencies: Sequence[int], window: int, settled: bool, rule: str) -> WarmUp:
    return WarmUp(
        settled=settled,
        runs=len(latencies),
        seconds=sum(latencies) / 1e9,
        window=window,
        latencies_ms=[one / 1e6 for one in latencies],
        rule=rule,
    )


def _window(run_s: float) -> int:
    return min(_LARGEST, max(_SMALLEST, math.ceil(_WINDOW_S / max(run_s, 1e-9))))


def _agree(windows: Sequence[NDArray[np.float64]]) -> bool:
    medians = np.array([np.median(one) for one in windows])
    errors = np.array(
        [
            1.2533 * 1.4826 * np.median(np.abs(one - median)) / math.sqrt(len(one))
            for one, median in zip(windows, medians, strict=True)
        ]
    )
    apart = np.abs(medians[:, None] - medians[None, :])
    noise = 2 * np.sqrt(errors[:, None] ** 2 + errors[None, :] ** 2)
    return bool(np.all(apart <= np.maximum(TOLERANCE * medians.min(), noise)))
