"""How good any schedule can be: an offline lower bound.

It knows all jobs in advance, which no policy does, and holds for every schedule that does not
interrupt jobs, on boards or on processors:

- A job ends no earlier than its submission plus its shortest run.
- Give a job's work (shortest run times its share of the machine) to one machine that is as fast as
  all boards or processors together and may divide its time. With S the start of a job and p its
  shortest run, the job's mean busy date there is ``S + p / 2``, and it ends at ``S + p`` or later.
  The weighted sum of mean busy dates is least if the machine always serves the job with the
  greatest weight for its work: so the sum of ends is no less than that, plus ``p / 2`` for each.

Source: Goemans, "Improved approximation algorithms for scheduling with release dates", SODA 1997;
Eastman, Even, Isaacs, "Bounds for the optimal scheduling of n jobs on m processors", 1964.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Lower bounds on the figures of any schedule.

    Attributes:
        mean_turnaround_s: Weighted, seconds.
        makespan_s: From the first submission to the last end.
    """

    mean_turnaround_s: float
    makespan_s: float


def lower_bound(
    submit_s: Floats, run_s: Floats, share: Floats, weights: Floats | None = None
) -> Bound:
    """Return a bound on the mean turnaround and on the makespan of any schedule.

    Args:
        submit_s: Shape (jobs,), at least one.
        run_s: Shape (jobs,): the shortest run of each, above 0.
        share: Shape (jobs,): share of the whole machine that it takes, above 0, up to 1.
        weights: Shape (jobs,), of turnarounds in the mean, above 0; None: 1. With
            ``1 / max(run_s, 10)`` the mean is a bound on the mean bounded slowdown.
    """
    weight = np.ones(len(submit_s)) if weights is None else weights
    work = run_s * share
    apart = float((weight * run_s).sum())
    busy = _mean_busy_dates(submit_s, work, weight)
    together = float((weight * (busy + run_s / 2.0 - submit_s)).sum())
    order = np.argsort(submit_s, kind="stable")
    to_come = np.cumsum(work[order][::-1])[::-1]
    last = max(float((submit_s + run_s).max()), float((submit_s[order] + to_come).max()))
    return Bound(
        mean_turnaround_s=max(apart, together) / len(submit_s),
        makespan_s=last - float(submit_s.min()),
    )


def _mean_busy_dates(submit_s: Floats, work: Floats, weight: Floats) -> Floats:
    """Return mean busy dates on one machine that always serves the greatest weight for work."""
    arrivals = np.argsort(submit_s, kind="stable").tolist()
    left, dates = work.tolist(), [0.0] * len(work)
    waiting: list[tuple[float, int]] = []
    now, come = 0.0, 0
    while come < len(arrivals) or waiting:
        if not waiting:
            now = max(now, float(submit_s[arrivals[come]]))
        while come < len(arrivals) and submit_s[arrivals[come]] <= now:
            job = arrivals[come]
            heapq.heappush(waiting, (-float(weight[job] / work[job]), job))
            come += 1
        _, job = waiting[0]
        until = now + left[job]
        if come < len(arrivals):
            until = min(until, float(submit_s[arrivals[come]]))
        dates[job] += (until - now) * (until + now) / 2.0
        left[job] -= until - now
        if until - now <= 0.0 or left[job] <= 1e-12 * work[job]:
            heapq.heappop(waiting)
        now = until
    return np.array(dates) / work
