"""How wrong forecasts were, and how wide they must be to hold: intervals that learn from misses.

What is drawn of a queue takes the runs ahead to be alike by chance alone; one user's jobs of one
afternoon are alike for other reasons, and waits come out wider than any past run tells. Each start
that was foretold is therefore held against the one that came, in units of the interval as it was
drawn (the signed nonconformity score of conformalized quantile regression, Romano, Patterson &
Candès 2019, of logarithms); the quantiles of the newest scores say how far each side must be
stretched for one start in ten to fall beyond it, whatever the cause. Where what comes keeps
changing, the newest hundreds follow it (as of Gibbs & Candès 2021, with a window for their step).
Of runs themselves nothing is stretched: their laws hold one by one.
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
"""Fewer tell nothing of one in ten."""

_NARROWEST, _WIDEST = 0.1, 16.0
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


def score(told: Forecast, started_at: datetime, stretch: IntervalScale | None) -> float | None:
    """How far off a start was: 1 is the upper end of the interval as it was drawn, -1 the lower.

    Args:
        told: Of one that waited.
        started_at: When it did start.
        stretch: What the forecast had been stretched by; None: it is as it was drawn.

    Returns:
        None: it was to start at once, and no factor changes that.
    """
    wait_s, low_s, middle_s, high_s = (
        (each - told.made_at).total_seconds()
        for each in (started_at, told.start_low, told.start, told.start_high)
    )
    if middle_s <= 0.0:
        return None
    off = math.log(max(wait_s / middle_s, _SOONEST))
    by = stretch or IntervalScale(late=1.0, early=1.0)
    late = math.log(high_s / middle_s) / by.late
    early = -math.log(max(low_s / middle_s, _SOONEST**by.early)) / by.early
    return off / max(late if off >= 0.0 else early, _MIN_WIDTH)


def stretch_of(scores: Sequence[float]) -> IntervalScale | None:
    """By which one start in ten falls beyond each end; None where too few scores tell."""
    if len(scores) < MIN_SCORES:
        return None
    # of so many and the next one, which is as likely in any place among them
    level = min(HIGH * (len(scores) + 1) / len(scores), 1.0)
    late, early = np.quantile([scores, np.negative(scores)], level, axis=1).tolist()
    return IntervalScale(
        late=min(max(late, _NARROWEST), _WIDEST), early=min(max(early, _NARROWEST), _WIDEST)
    )


def stretched(starts: Floats, soonest_s: float, stretch: IntervalScale | None) -> Floats:
    """Possible starts, so much further from their median, or nearer.

    Args:
        starts: Shape (samples,), seconds from now.
        soonest_s: None is before.
        stretch: None: as they are.
    """
    if stretch is None:
        return starts
    low, middle, high = np.quantile(starts, (LOW, MIDDLE, HIGH)).tolist()
    if middle <= 0.0:
        return starts
    ratios = np.maximum(starts / middle, _SOONEST)
    late, early = math.log(high / middle), -math.log(max(low / middle, _SOONEST))
    factors = np.where(ratios > 1.0, _factor(stretch.late, late), _factor(stretch.early, early))
    return np.asarray(np.maximum(middle * ratios**factors, soonest_s))


def _factor(stretch: float, width: float) -> float:
    return stretch * max(width, _MIN_WIDTH) / width if width > 0.0 else 1.0
