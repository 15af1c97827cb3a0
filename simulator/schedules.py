"""Simulated schedules, and two figures of the same jobs compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.figures.metrics import (
    RESAMPLES,
    SLOWDOWN_THRESHOLD_S,
    Floats,
    Interval,
    mean_interval,
)


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
        """Seconds from submission to start of each job."""
        return self.start - self.submit

    @property
    def run_s(self) -> Floats:
        """Seconds from start to end of each job."""
        return self.end - self.start

    @property
    def turnaround_s(self) -> Floats:
        """Seconds from submission to end of each job; also called completion time."""
        return self.end - self.submit

    @property
    def slowdown(self) -> Floats:
        """Turnaround over run time; 1 is ideal."""
        return self.turnaround_s / self.run_s

    def bounded_slowdown(self) -> Floats:
        """Slowdown that short jobs can't dominate: ``max(1, turnaround / max(run, threshold))``.

        Source: Feitelson, Rudolph, "Metrics and Benchmarking for Parallel Job Scheduling", 1998.
        """
        return np.maximum(self.turnaround_s / np.maximum(self.run_s, SLOWDOWN_THRESHOLD_S), 1.0)

    @property
    def makespan_s(self) -> float:
        """Seconds from the first submission to the last end; 0 without jobs."""
        return float(self.end.max() - self.submit.min()) if len(self.end) else 0.0

    def utilisation(self, processors: int) -> float:
        """Share of the machine that was in use from the first submission to the last end."""
        whole = processors * self.makespan_s
        return float((self.run_s * self.procs).sum() / whole) if whole else 0.0


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


def compare(
    first: Floats, second: Floats, *, seed: int = 0, block: int = 1, resamples: int = RESAMPLES
) -> Comparison:
    """Compare two policies pairwise: job by job, or seed by seed, on common random numbers.

    Args:
        first: A figure of each job (or run) under the first policy.
        second: The same figure of the same jobs (or runs) under the second.
        seed: Of the resampling.
        block: See `mean_interval`.
        resamples: See `mean_interval`.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} values can't be paired with {len(second)}")
    difference = np.asarray(first - second, dtype=np.float64)
    below = float(second.mean())
    return Comparison(
        difference=mean_interval(difference, seed=seed, block=block, resamples=resamples),
        ratio=float(first.mean()) / below if below else float("nan"),
        lower=float((difference < 0).mean()),
        higher=float((difference > 0).mean()),
    )
