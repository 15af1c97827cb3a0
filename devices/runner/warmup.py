"""Warm-up that is detected, not assumed.

The rule: runs are timed in windows. The engine is warm when the medians of the last three windows
agree: each pair within 3 %, or within twice the standard error of their difference where the
series is noisier than that. The standard error of a window's median is 1.2533 s / sqrt(n) with
s = 1.4826 MAD (Kendall and Stuart, The Advanced Theory of Statistics, vol. 1, section 10.12;
Rousseeuw and Croux, JASA 88, 1993). A trend of more than 3 % a window is never taken for noise: it
moves medians by n times its slope, and the error by less than that for every n from 2 on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, List, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

RULE = "the medians of the last three windows agree within 3 % or twice their standard error"

TOLERANCE = 0.03
WINDOWS = 3
MOST_WINDOWS = 40
LONGEST_S = 30.0
"""A model that is not steady after half a minute won't be, or is so slow that it has no warm-up."""

_WINDOW_S = 0.02
"""Two kernel ticks: shorter windows would see a tick or none."""

_SMALLEST, _LARGEST = 5, 500
_SMALLEST_OF_SLOW, _SLOW_S = 3, 1.0
_KEPT = 500

Timed = Callable[[int], Sequence[int]]
"""``timed(count)``: so many runs' latencies, nanoseconds."""


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """How the warm-up went.

    Attributes:
        settled: The latencies became steady within the bounds.
        seconds: Sum of the runs.
        window: Runs a window.
        latencies_ms: Of the runs, in order.
    """

    settled: bool
    runs: int
    seconds: float
    window: int
    latencies_ms: Sequence[float]

    def as_json(self) -> Mapping[str, object]:
        """As the report has it."""
        return {
            "settled": self.settled,
            "runs": self.runs,
            "seconds": round(self.seconds, 6),
            "window": self.window,
            "rule": RULE,
            "latencies_ms": [round(one, 6) for one in self.latencies_ms[:_KEPT]],
        }


def warm_up(timed: Timed, longest_s: float = LONGEST_S) -> WarmUp:
    """Run until the latencies are steady, or a bound is reached.

    Args:
        longest_s: No further window begins after this time.
    """
    first = list(timed(1))
    # the first run pays for allocations: how long a run takes is told by the ones after it
    trial = list(timed(_SMALLEST_OF_SLOW if first[0] >= _SLOW_S * 1e9 else _SMALLEST))
    window = _window(min(trial) / 1e9)
    latencies = first + trial
    windows: List[NDArray[np.float64]] = []
    if len(trial) >= window:
        windows.append(np.array(trial, dtype=np.float64))
    spent_ns = sum(latencies)
    settled = False
    while not settled and len(windows) < MOST_WINDOWS and spent_ns < longest_s * 1e9:
        taken = timed(window)
        latencies += taken
        spent_ns += sum(taken)
        windows.append(np.array(taken, dtype=np.float64))
        settled = len(windows) >= WINDOWS and _agree(windows[-WINDOWS:])
    return WarmUp(
        settled=settled,
        runs=len(latencies),
        seconds=spent_ns / 1e9,
        window=window,
        latencies_ms=[one / 1e6 for one in latencies],
    )


def _window(run_s: float) -> int:
    if run_s >= _SLOW_S:
        return _SMALLEST_OF_SLOW
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
