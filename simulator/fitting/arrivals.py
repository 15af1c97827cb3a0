"""The rate of arrivals by hour of the week, from the times of recorded submissions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.simulator.fitting.estimates import Floats, gamma_strength, shrunk
from edgeyard.simulator.scenario import DAY_S, WEEK_HOURS

HOUR_S = 3600.0
_DAY_HOURS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """Rates by hour of the week.

    Attributes:
        per_hour: Mean over the hours of a week.
        factors: On that mean; shape (168,), from Monday 00:00 UTC.
        hours: So many hours of the week were observed at all.
    """

    per_hour: float
    factors: Floats
    hours: int


def hour_of_week(at: datetime) -> float:
    """Return the hours since Monday 00:00 UTC."""
    return (at.timestamp() / HOUR_S + 3 * _DAY_HOURS) % WEEK_HOURS  # 1970 began on a Thursday


def fit_week(times_s: Floats, first_hour: float, duration_s: float) -> Week:
    """Fit the rate of events in each hour of the week.

    The rate of an hour of the day is shrunk to the mean rate, and that of an hour of the week to
    its hour of the day: by as much as the counts suggest (`gamma_strength`). An hour that was
    never observed has the rate of its hour of the day.

    Args:
        times_s: Seconds from the beginning of the history.
        first_hour: Hour of the week at which it began.
        duration_s: Of the history.
    """
    observed = _observed_hours(first_hour, duration_s)
    cells = np.floor(times_s / HOUR_S + first_hour).astype(np.int64) % WEEK_HOURS
    counts = np.bincount(cells, minlength=WEEK_HOURS).astype(np.float64)
    mean = counts.sum() / observed.sum()
    expected = mean * observed
    by_day = (WEEK_HOURS // _DAY_HOURS, _DAY_HOURS)
    day_counts = counts.reshape(by_day).sum(axis=0)
    day_expected = expected.reshape(by_day).sum(axis=0)
    day = shrunk(day_counts, day_expected, gamma_strength(day_counts, day_expected))
    factors = np.tile(day, by_day[0])
    expected = expected * factors
    factors = factors * shrunk(counts, expected, gamma_strength(counts, expected))
    scale = counts.sum() / float((mean * observed * factors).sum())
    level = float(factors.mean())
    return Week(
        per_hour=float(mean * scale * level),
        factors=factors / level,
        hours=int(np.count_nonzero(observed)),
    )


def _observed_hours(first_hour: float, duration_s: float) -> Floats:
    """Return for how many hours each hour of the week was observed; shape (168,)."""
    end = first_hour + duration_s / HOUR_S
    edges = np.unique(
        np.concatenate(([first_hour, end], np.arange(np.ceil(first_hour), np.ceil(end))))
    )
    cells = np.floor(edges[:-1]).astype(np.int64) % WEEK_HOURS
    return np.bincount(cells, weights=np.diff(edges), minlength=WEEK_HOURS).astype(np.float64)


def batches(times_s: Floats, users: NDArray[np.int64], gap_s: float) -> NDArray[np.int64]:
    """Return the batch of each submission: a user's next one within ``gap_s`` belongs to it.

    Args:
        times_s: Ascending; shape (submissions,).
        users: Of each submission.
        gap_s: Seconds.
    """
    found = np.zeros(len(times_s), dtype=np.int64)
    last: dict[int, tuple[float, int]] = {}
    count = 0
    for row, (at_s, user) in enumerate(zip(times_s.tolist(), users.tolist(), strict=True)):
        before_s, batch = last.get(user, (-DAY_S, -1))
        if at_s - before_s > gap_s:
            batch, count = count, count + 1
        found[row] = batch
        last[user] = (at_s, batch)
    return found
