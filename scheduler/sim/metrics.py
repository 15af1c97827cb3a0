"""What schedules are compared by: figures of each job and of all, and how sure they are.

All functions take columns; times are seconds. None of them changes its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.sim.kernel.streams import stream

Floats = NDArray[np.float64]

SLOWDOWN_THRESHOLD_S = 10.0
"""Shorter runs count as this long in the bounded slowdown."""

RESAMPLES = 2000
_CELLS = 4_000_000
"""Of one block of resamples: 32 MB."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """When jobs came, started and ended; shape (jobs,) each.

    Attributes:
        submit: Seconds.
        start: Seconds, not before ``submit``.
        end: Seconds, after ``start``.
        procs: Processors, or boards, that the job holds while it runs.
    """

    submit: Floats
    start: Floats
    end: Floats
    procs: NDArray[np.int64]

    @property
    def wait_s(self) -> Floats:
        """From submission to start."""
        return self.start - self.submit

    @property
    def run_s(self) -> Floats:
        """From start to end."""
        return self.end - self.start

    @property
    def turnaround_s(self) -> Floats:
        """From submission to end; also called completion time."""
        return self.end - self.submit

    @property
    def slowdown(self) -> Floats:
        """Turnaround over run time; 1 is ideal."""
        return self.turnaround_s / self.run_s

    def bounded_slowdown(self, threshold_s: float = SLOWDOWN_THRESHOLD_S) -> Floats:
        """Slowdown that short jobs can't dominate: ``max(1, turnaround / max(run, threshold))``.

        Source: Feitelson, Rudolph, "Metrics and Benchmarking for Parallel Job Scheduling", 1998.
        """
        return np.maximum(self.turnaround_s / np.maximum(self.run_s, threshold_s), 1.0)

    @property
    def makespan_s(self) -> float:
        """From the first submission to the last end; 0 without jobs."""
        return float(self.end.max() - self.submit.min()) if len(self.end) else 0.0

    def utilisation(self, processors: int) -> float:
        """Share of the machine that was in use from the first submission to the last end."""
        whole = processors * self.makespan_s
        return float((self.run_s * self.procs).sum() / whole) if whole else 0.0

    def max_in_use(self) -> int:
        """Return how many processors were in use at the same time at most."""
        times = np.concatenate([self.start, self.end])
        change = np.concatenate([self.procs, -self.procs])
        order = np.lexsort((change, times))  # at one instant ends come first
        return int(np.cumsum(change[order]).max(initial=0))


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One policy against another on the same jobs.

    Attributes:
        difference: Mean of first less second, with its interval: below 0, the first is lower.
        ratio: Mean of the first over mean of the second.
        lower: Share of jobs (or runs) with which the first is lower.
        higher: Share with which it is higher; with the others both are equal.
    """

    difference: Interval
    ratio: float
    lower: float
    higher: float


def jain(values: Floats) -> float:
    """Return Jain's fairness index: 1 if all are equal, 1/n if one has everything.

    Source: Jain, Chiu, Hawe, "A Quantitative Measure of Fairness", DEC-TR-301, 1984.
    """
    squares = len(values) * float(np.square(values).sum())
    return float(values.sum()) ** 2 / squares if squares else 1.0


def fairness(users: NDArray[np.int64], values: Floats) -> float:
    """Return Jain's index of the users' means of a figure, such as the bounded slowdown."""
    _, user = np.unique(users, return_inverse=True)
    return jain(np.bincount(user, weights=values) / np.bincount(user))


def percentiles(values: Floats, shares: tuple[float, ...] = (0.5, 0.9, 0.99)) -> Floats:
    """Return quantiles, interpolated linearly; NaN without values."""
    if not len(values):
        return np.full(len(shares), np.nan)
    return np.asarray(np.quantile(values, shares), dtype=np.float64)


def mean_interval(
    values: Floats, *, seed: int = 0, resamples: int = RESAMPLES, block: int = 1
) -> Interval:
    """Return the mean and its 95 % percentile-bootstrap interval.

    Args:
        values: At least one.
        seed: Of the resampling.
        resamples: How many.
        block: Values that follow one another are drawn together in blocks of this length: what
            jobs wait depends on what their neighbours waited. 1: each value by itself.

    Source: Efron, Tibshirani, "An Introduction to the Bootstrap", 1993, section 13.3; circular
    blocks: Politis, Romano, 1992.
    """
    values = np.asarray(values, dtype=np.float64)
    count = len(values)
    block = min(max(block, 1), count)
    blocks = -(-count // block)
    total = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[: block - 1]]))])
    sums = total[block:] - total[:-block]  # of the block that begins at each value
    rng = stream(seed, "bootstrap")
    means = np.empty(resamples)
    at_once = max(_CELLS // blocks, 1)
    for first in range(0, resamples, at_once):
        size = min(at_once, resamples - first)
        drawn = rng.integers(0, count, size=(size, blocks))
        means[first : first + size] = sums[drawn].sum(axis=1) / (blocks * block)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(values.mean()), float(low), float(high))


def compare(first: Floats, second: Floats, *, seed: int = 0, block: int = 1) -> Comparison:
    """Compare two policies pairwise: job by job, or seed by seed, on common random numbers.

    Args:
        first: A figure of each job (or run) under the first policy.
        second: The same figure of the same jobs (or runs) under the second.
        seed: Of the resampling.
        block: As of `mean_interval`.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} values can't be paired with {len(second)}")
    difference = np.asarray(first - second, dtype=np.float64)
    below = float(second.mean())
    return Comparison(
        difference=mean_interval(difference, seed=seed, block=block),
        ratio=float(first.mean()) / below if below else float("nan"),
        lower=float((difference < 0).mean()),
        higher=float((difference > 0).mean()),
    )
