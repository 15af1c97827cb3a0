"""Calibrate forecasts: how wrong earlier ones were, and how wide intervals must be to hold.

The samples of a queue assume that the runs ahead resemble the past by chance alone; waits vary more
than any past run shows, and load, models and boards change. So each predicted start and end is
compared with the one that came, in units of the interval as it was drawn (the signed nonconformity
score of conformalized quantile regression, Romano, Patterson & Candès 2019, of logarithms). A
quantile of the scores states how far each side must be widened for one in ten to fall beyond it.

Where conditions change, past scores say too little of the next. Two things follow the change:

- The newest scores count most: the weight of a score halves every `HALF_LIFE` later ones (weighted
  conformal prediction beyond exchangeability, Barber, Candès, Ramdas & Tibshirani 2023).
- The level of the quantile follows what was missed (adaptive conformal inference: Gibbs & Candès
  2021, *Adaptive Conformal Inference Under Distribution Shift*, equation 2), for each side ::

      a := a + g (0.1 - [the side was missed]),  g = `STEP`, within `LEVELS`

  For bounded a, a distant change of the level is not paid by endless intervals; aggregation of many
  steps (AgACI: Zaffran et al. 2022; Gibbs & Candès 2024) and an integrator (conformal PID:
  Angelopoulos, Candès & Tibshirani 2023) gain nothing over the two on the logs of `bench-forecast`.

What is late already counts before it comes (`overdue`).

What is calibrated apart is missed for different causes: starts of benchmarks that wait, their ends,
and ends of those that start at once, which tell of runs alone.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.model.forecast import (
    HIGH,
    LOW,
    MIDDLE,
    Compared,
    Forecast,
    ForecastResult,
    Widths,
)

REMEMBERED = 500
"""Comparisons that count, of each kind: of what is older, less than a quarter of the weight is."""

MIN_SCORES = 30
"""Minimum number of scores, with which one in ten can be estimated."""

HALF_LIFE = 200.0
"""Comparisons after which one counts half: about 290 count at a time, one in ten is then known to
two points."""

STEP = 0.02
"""Change of a level by a comparison: four misses in a row widen a side as far as it gets."""

LEVELS = (0.03, 1.0 - HIGH)
"""Lowest and highest level. Below the lowest, too few scores are left to be reliable. The highest
is that of the scores themselves: intervals that held for a while do not become narrower."""

_MIN_SCALE, _MAX_SCALE = 0.1, 16.0
_MIN_WIDTH = 0.1  # of a side's logarithm: what looks nearly certain may be overtaken all the same
_SOONEST = 1e-3  # of the median: a start that comes at once is so much sooner
START_RESOLUTION_S = 1.0
"""Nothing is known of a start more exactly, in seconds: a board that comes free is given away in
the next cycle, and cycles are up to a second apart."""

_MAX_LOG_RATIO = -math.log(_SOONEST)  # nor is any so much later, unless it was drawn

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class IntervalScale:
    """Widths of an interval's sides, in units of those that were drawn.

    Attributes:
        late: From the median to the upper end, as logarithms.
        early: From the lower end to the median.
    """

    late: float
    early: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalScales:
    """By how much intervals are widened; None: as drawn, since too little is known.

    Attributes:
        start: Of the starts of benchmarks that wait.
        end: Of their ends.
        run: Of the ends of benchmarks that start at once or run.
    """

    start: IntervalScale | None = None
    end: IntervalScale | None = None
    run: IntervalScale | None = None


_AS_WIDE = IntervalScale(late=1.0, early=1.0)

AS_DRAWN = IntervalScales()
"""Widens nothing."""


def interval_scales_of(results: Sequence[ForecastResult]) -> IntervalScales:
    """Return by how much intervals are widened after these results, oldest first."""
    waited = [each.end for each in results if each.waited]
    at_once = [each.end for each in results if not each.waited]
    return IntervalScales(
        start=interval_scale_of([each.start for each in results if each.start is not None]),
        end=interval_scale_of([each for each in waited if each is not None]),
        run=interval_scale_of([each for each in at_once if each is not None]),
    )


def interval_scale_of(compared: Sequence[Compared]) -> IntervalScale | None:
    """Return the scale with which about one in ten will fall beyond each end.

    Args:
        compared: Oldest first; the last `REMEMBERED` count.

    Returns:
        None: too few.
    """
    scored = [(each.score, each.held) for each in compared if each.score is not None]
    scored = scored[-REMEMBERED:]
    if len(scored) < MIN_SCORES:
        return None
    late = early = 1.0 - HIGH
    for score, held in scored:
        late = _followed(late, not held and score > 0.0)
        early = _followed(early, not held and score < 0.0)
    scores = np.array([score for score, _ in scored])
    weights = np.exp2(-np.arange(len(scores))[::-1] / HALF_LIFE)
    return IntervalScale(
        late=_quantile(scores, weights, 1.0 - late), early=_quantile(-scores, weights, 1.0 - early)
    )


def _followed(level: float, missed: bool) -> float:
    return min(max(level + STEP * ((1.0 - HIGH) - missed), LEVELS[0]), LEVELS[1])


def _quantile(scores: Floats, weights: Floats, level: float) -> float:
    """Return the score that the share ``level`` of the weight does not exceed, within bounds.

    The next one counts as much as the newest, and may be the highest.
    """
    order = np.argsort(scores)
    shares = np.cumsum(weights[order]) / (weights.sum() + 1.0)
    place = min(int(np.searchsorted(shares, level)), len(scores) - 1)
    return min(max(float(scores[order[place]]), _MIN_SCALE), _MAX_SCALE)


def compared_start(forecast: Forecast, started_at: datetime) -> Compared | None:
    """Compare the start of a benchmark that waited; None: it was placed at once, or ran."""
    if forecast.start_widths is None:
        return None
    return Compared(
        score=_score(forecast, forecast.start, forecast.start_widths, started_at),
        held=forecast.start_low <= started_at <= forecast.start_high,
    )


def compared_end(forecast: Forecast, ended_at: datetime) -> Compared:
    """Compare the end of a benchmark that completed."""
    return Compared(
        score=_score(forecast, forecast.finish, forecast.finish_widths, ended_at),
        held=forecast.finish_low <= ended_at <= forecast.finish_high,
    )


def overdue(
    forecasts: Iterable[Forecast], waiting: Container[str], now: datetime
) -> list[ForecastResult]:
    """Return what is known to be missed already: starts and ends later than their intervals.

    Without them the longest waits would be learned last, and none of them while a queue grows.

    Args:
        forecasts: Of live benchmarks, their first ones.
        waiting: Those that have not started.
        now: They started or ended later than this.
    """
    found = []
    for each in forecasts:
        start = end = None
        if each.benchmark_id in waiting and now > each.start_high:
            start = compared_start(each, now)
        if now > each.finish_high:
            end = compared_end(each, now)
        if start is not None or end is not None:
            found.append(_result(each, now, start, end))
    return found


def result_of(
    forecast: Forecast, started_at: datetime | None, ended_at: datetime, *, completed: bool
) -> ForecastResult:
    """Return how the first forecast of a benchmark that ended turned out."""
    return _result(
        forecast,
        ended_at,
        None if started_at is None else compared_start(forecast, started_at),
        compared_end(forecast, ended_at) if completed else None,
    )


def _result(
    forecast: Forecast, at: datetime, start: Compared | None, end: Compared | None
) -> ForecastResult:
    return ForecastResult(
        benchmark_id=forecast.benchmark_id,
        at=at,
        waited=forecast.start_widths is not None,
        start=start,
        end=end,
    )


def _score(
    forecast: Forecast, middle: datetime, widths: Widths | None, came_at: datetime
) -> float | None:
    """Return 1 for the upper end of an interval as it was drawn, -1 for the lower.

    None where it was to end at once, since no factor changes that, and where the forecast rests on
    a bound instead of past runs.
    """
    middle_s = (middle - forecast.made_at).total_seconds()
    if widths is None or middle_s <= 0.0 or not forecast.grounded:
        return None
    error = math.log(max((came_at - forecast.made_at).total_seconds() / middle_s, _SOONEST))
    return error / (widths.late if error >= 0.0 else widths.early)


def drawn_widths(times: Floats, resolution_s: float = 0.0) -> Widths | None:
    """Return the widths of the interval of these times, each at least 0.1; None: at once.

    Args:
        times: Shape (samples,), seconds from now.
        resolution_s: Minimum distance of each end from the median.
    """
    low, middle, high = _interval(times)
    if not 0.0 < middle <= high < math.inf:
        return None
    low, high = min(low, middle - resolution_s), max(high, middle + resolution_s)
    return Widths(
        late=max(math.log(high / middle), _MIN_WIDTH),
        early=max(-math.log(max(low / middle, _SOONEST)), _MIN_WIDTH),
    )


def rescaled(
    times: Floats,
    soonest_s: Floats | float,
    scale: IntervalScale | None,
    resolution_s: float = 0.0,
) -> Floats:
    """Return possible times with their distances from the median multiplied.

    Args:
        times: Shape (samples,), seconds from now.
        soonest_s: None is earlier.
        scale: Factors on `drawn_widths`; None: 1.
        resolution_s: As for `drawn_widths`.
    """
    widths, scale = drawn_widths(times, resolution_s), scale or _AS_WIDE
    if widths is None:
        return np.asarray(np.maximum(times, soonest_s))
    low, middle, high = _interval(times)
    logs = np.log(np.maximum(times / middle, _SOONEST))
    late, early = math.log(high / middle), -math.log(max(low / middle, _SOONEST))
    if late <= 0.0 or early <= 0.0:  # alike as drawn: by their ranks over the width that counts
        places = (np.argsort(np.argsort(times, kind="stable")) + 0.5) / len(times)
        at_median = np.abs(places - MIDDLE) < 0.75 / len(times)  # the median does not move
        distances = np.where(at_median, 0.0, (places - MIDDLE) / (HIGH - MIDDLE))
        if late <= 0.0:
            logs = np.maximum(logs, np.where(distances > 0.0, distances * widths.late, logs))
            late = widths.late
        if early <= 0.0:
            logs = np.minimum(logs, np.where(distances < 0.0, distances * widths.early, logs))
            early = widths.early
    factors = np.where(
        logs > 0.0, scale.late * widths.late / late, scale.early * widths.early / early
    )
    highest, lowest = np.maximum(logs, _MAX_LOG_RATIO), np.minimum(logs, -_MAX_LOG_RATIO)
    logs = np.clip(logs * factors, lowest, highest)
    return np.asarray(np.maximum(middle * np.exp(logs), soonest_s))


def _interval(times: Floats) -> tuple[float, float, float]:
    """Return what `numpy.quantile` does, which takes ten times as long for so few."""
    places = np.array((LOW, MIDDLE, HIGH)) * (len(times) - 1)
    low, middle, high = np.interp(places, np.arange(len(times)), np.sort(times)).tolist()
    return low, middle, high
