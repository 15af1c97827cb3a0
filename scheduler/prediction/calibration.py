"""Calibrate forecasts: how wrong earlier ones were, and how wide intervals must be to hold.

The samples of a queue assume that the runs ahead resemble each other by chance alone; one user's
jobs of one afternoon resemble each other for other reasons, and waits vary more than any past run
shows. Each predicted start is therefore compared with the one that came, in units of the interval
as it was drawn (the signed nonconformity score of conformalized quantile regression, Romano,
Patterson & Candès 2019, of logarithms). The quantiles of the newest scores state how far each side
must be widened for one start in ten to fall beyond it, whatever the cause. Where conditions keep
changing, the newest hundreds follow them (as of Gibbs & Candès 2021, with a window for their step).
Intervals of runs are not rescaled: their distributions hold one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.model.forecast import HIGH, LOW, MIDDLE, Forecast

MIN_SCORES = 30
"""Minimum number of scores, with which one start in ten can be estimated."""

_MIN_SCALE, _MAX_SCALE = 0.1, 16.0
_MIN_WIDTH = 0.1  # of a side's logarithm: what looks nearly certain may be overtaken all the same
_SOONEST = 1e-3  # of the median: a start that comes at once is so much sooner

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class IntervalScale:
    """Widths of a wait's sides, in units of those that were drawn, or of a tenth if that is more.

    Attributes:
        late: From the median to the upper end, as logarithms.
        early: From the lower end to the median.
    """

    late: float
    early: float


def nonconformity_score(
    forecast: Forecast, started_at: datetime, scale: IntervalScale | None
) -> float | None:
    """Compute how far off a predicted start was.

    Args:
        forecast: Of a benchmark that waited.
        started_at: When it did start.
        scale: By which the forecast had been widened; None: it is as it was drawn.

    Returns:
        1 for the upper end of the interval as it was drawn, -1 for the lower. None where the
        benchmark was to start at once: no factor changes that.
    """
    wait_s, low_s, middle_s, high_s = (
        (each - forecast.made_at).total_seconds()
        for each in (started_at, forecast.start_low, forecast.start, forecast.start_high)
    )
    if middle_s <= 0.0:
        return None
    error = math.log(max(wait_s / middle_s, _SOONEST))
    scale = scale or IntervalScale(late=1.0, early=1.0)
    late = math.log(high_s / middle_s) / scale.late
    early = -math.log(max(low_s / middle_s, _SOONEST**scale.early)) / scale.early
    return error / max(late if error >= 0.0 else early, _MIN_WIDTH)


def interval_scale_of(scores: Sequence[float]) -> IntervalScale | None:
    """Return the scale with which one start in ten falls beyond each end; None: too few scores."""
    if len(scores) < MIN_SCORES:
        return None
    # of so many and the next one, which is as likely in any place among them
    level = min(HIGH * (len(scores) + 1) / len(scores), 1.0)
    late, early = np.quantile([scores, np.negative(scores)], level, axis=1).tolist()
    return IntervalScale(
        late=min(max(late, _MIN_SCALE), _MAX_SCALE), early=min(max(early, _MIN_SCALE), _MAX_SCALE)
    )


def rescaled(starts: Floats, soonest_s: float, scale: IntervalScale | None) -> Floats:
    """Return possible starts with their distances from the median multiplied.

    Args:
        starts: Shape (samples,), seconds from now.
        soonest_s: No start is earlier.
        scale: None: leave them as they are.
    """
    if scale is None:
        return starts
    low, middle, high = np.quantile(starts, (LOW, MIDDLE, HIGH)).tolist()
    if middle <= 0.0:
        return starts
    ratios = np.maximum(starts / middle, _SOONEST)
    late, early = math.log(high / middle), -math.log(max(low / middle, _SOONEST))
    factors = np.where(ratios > 1.0, _factor(scale.late, late), _factor(scale.early, early))
    return np.asarray(np.maximum(middle * ratios**factors, soonest_s))


def _factor(scale: float, width: float) -> float:
    return scale * max(width, _MIN_WIDTH) / width if width > 0.0 else 1.0
