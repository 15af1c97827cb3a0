"""What schedules are compared by: figures of each job and of all, and how sure they are.

All functions take columns; times are seconds. None of them changes its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.streams import stream

Floats = NDArray[np.float64]

SLOWDOWN_THRESHOLD_S = 10.0
"""Minimum run time in the bounded slowdown."""

MIN_RUN_S = 1e-3
"""Minimum run time in the slowdown; shorter ones come from clocks with a low resolution."""

COMPLETED = "completed"
"""The status of jobs that led to a result."""

JOB_FIGURES = ("wait_s", "turnaround_s", "slowdown", "bounded_slowdown")
"""Names of the figures of a job."""

MAX_NAMED = 20
"""Maximum number of jobs that never ended that are named."""

RESAMPLES = 2000
_CELLS = 4_000_000
"""Maximum numbers of a block of resamples: 32 MB."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobOutcomes:
    """The jobs of one run, simulated or real; shape (jobs,) each, times on one clock in seconds.

    Attributes:
        job: Ids as text.
        user: Names as text.
        submit_s: When the job was submitted.
        start_s: When its last attempt started; NaN: it never did.
        end_s: When it ended, however it did; NaN: it had not by ``until_s``.
        status: Words such as ``completed``, ``failed`` or ``pending``.
        attempts: How often it started.
        preemptions: How often it was preempted.
        deadline_s: NaN: none.
        until_s: When the run, or what is known of it, ends.
    """

    job: NDArray[np.object_]
    user: NDArray[np.object_]
    submit_s: Floats
    start_s: Floats
    end_s: Floats
    status: NDArray[np.object_]
    attempts: NDArray[np.int64]
    preemptions: NDArray[np.int64]
    deadline_s: Floats
    until_s: float

    @property
    def completed(self) -> NDArray[np.bool_]:
        """Whether the job ended with a result."""
        return np.asarray(self.status == COMPLETED, dtype=np.bool_)

    @property
    def unended(self) -> NDArray[np.bool_]:
        """Whether the job had not ended when the run did."""
        return np.isnan(self.end_s)

    def figure(self, name: str) -> JobFigure:
        """Return a figure of each job.

        Jobs that never ended are not left out of waiting and turnaround: they count with the time
        that passed until the run ended, a lower bound. A slowdown needs a run time, so only
        completed jobs have one; the turnaround of jobs that failed, expired or were cancelled is
        no completion time, and is left out too. `JobFigure` counts both.

        Args:
            name: ``wait_s``, ``turnaround_s``, ``slowdown`` or ``bounded_slowdown``.
        """
        started = ~np.isnan(self.start_s)
        stopped = np.where(self.unended, self.until_s, self.end_s)
        if name == "wait_s":
            values = np.where(started, self.start_s, stopped) - self.submit_s
            return JobFigure(np.maximum(values, 0.0), ~started)
        turnaround = stopped - self.submit_s
        if name == "turnaround_s":
            values = np.where(self.completed | self.unended, turnaround, np.nan)
            return JobFigure(values, self.unended)
        min_run_s = {"slowdown": MIN_RUN_S, "bounded_slowdown": SLOWDOWN_THRESHOLD_S}[name]
        known = self.completed & started
        run = np.maximum(self.end_s - self.start_s, min_run_s)
        values = np.where(known, np.maximum(turnaround / run, 1.0), np.nan)
        return JobFigure(values, np.zeros(len(values), dtype=np.bool_))


@dataclass(frozen=True, slots=True, eq=False)
class JobFigure:
    """One figure of each job.

    Attributes:
        values: Shape (jobs,); NaN: the job has none.
        at_least: Shape (jobs,): the value is a lower bound, because the job did not get that far.
    """

    values: Floats
    at_least: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A figure over the jobs of a run; all numbers are NaN if no job has it.

    Attributes:
        jobs: How many it is made of.
        at_least: How many of these count with a lower bound.
    """

    jobs: int
    at_least: int
    interval: Interval
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetrics:
    """Metrics of a run.

    Attributes:
        jobs: All that were submitted.
        statuses: How many ended (or did not) in each status.
        unended: Ids of jobs that had not ended, at most `MAX_NAMED`; ``statuses`` counts all.
        figures: Distributions of `JOB_FIGURES` by name.
        makespan_s: From the first submission to the last end, or to the end of the run if a job
            had not ended.
        utilisation: Mean share of the boards (or processors) in use, of those that were online,
            from the first submission to the last end; NaN: unknown.
        deadlines: Jobs that had one.
        deadline_misses: Jobs that did not complete by then, counted once it had passed.
        fairness: Jain's index of the users' mean bounded slowdowns.
        preemptions: Of all jobs.
        failed_attempts: Attempts that failed or were lost.
        overloaded: Mean number of overloaded nodes over time; NaN: the world has none.
        energy_j: Of all runs; NaN: unknown.
        credits: Cost of all runs; NaN: unknown.
        comparable_share: Share of the completed benchmarks without a concurrent run on their host,
            0 to 1; NaN: unknown.
    """

    jobs: int
    statuses: Mapping[str, int]
    unended: tuple[str, ...]
    figures: Mapping[str, Distribution]
    makespan_s: float
    utilisation: float
    deadlines: int
    deadline_misses: int
    fairness: float
    preemptions: int
    failed_attempts: int
    overloaded: float
    energy_j: float
    credits: float
    comparable_share: float


def measure(
    jobs: JobOutcomes,
    *,
    utilisation: float = float("nan"),
    failed_attempts: int | None = None,
    overloaded: float = float("nan"),
    energy_j: float = float("nan"),
    credits: float = float("nan"),
    comparable_share: float = float("nan"),
    resamples: int = RESAMPLES,
) -> RunMetrics:
    """Return the metrics of a run.

    Args:
        jobs: Its jobs, in the order of their submission.
        utilisation: See `RunMetrics`.
        failed_attempts: See `RunMetrics`; None: all that led neither to a result nor to a
            preemption, and had ended.
        overloaded: See `RunMetrics`.
        energy_j: See `RunMetrics`.
        credits: See `RunMetrics`.
        comparable_share: See `RunMetrics`.
        resamples: Of the bootstrap.
    """
    ended = jobs.end_s[~jobs.unended]
    last = jobs.until_s if jobs.unended.any() else float(ended.max(initial=0.0))
    makespan = last - float(jobs.submit_s.min()) if len(jobs.job) else 0.0
    has_deadline = ~np.isnan(jobs.deadline_s)
    by_then = np.where(jobs.unended, jobs.until_s, jobs.end_s)
    missed = has_deadline & np.where(
        jobs.completed, by_then > jobs.deadline_s, jobs.deadline_s <= jobs.until_s
    )
    slowdown = jobs.figure("bounded_slowdown").values
    known = ~np.isnan(slowdown)
    _, user = np.unique(jobs.user[known].astype(str), return_inverse=True)
    running = jobs.unended & ~np.isnan(jobs.start_s) & (jobs.status == "running")
    failed = np.maximum(jobs.attempts - jobs.preemptions - jobs.completed - running, 0)
    names, counts = np.unique(jobs.status.astype(str), return_counts=True)
    return RunMetrics(
        jobs=len(jobs.job),
        statuses=dict(zip(names.tolist(), counts.tolist(), strict=True)),
        unended=tuple(str(each) for each in jobs.job[jobs.unended][:MAX_NAMED]),
        figures={name: distribution(jobs.figure(name), resamples) for name in JOB_FIGURES},
        makespan_s=makespan,
        utilisation=utilisation,
        deadlines=int(has_deadline.sum()),
        deadline_misses=int(missed.sum()),
        fairness=fairness(user, slowdown[known]) if known.any() else float("nan"),
        preemptions=int(jobs.preemptions.sum()),
        failed_attempts=int(failed.sum()) if failed_attempts is None else failed_attempts,
        overloaded=overloaded,
        energy_j=energy_j,
        credits=credits,
        comparable_share=comparable_share,
    )


def distribution(figure: JobFigure, resamples: int = RESAMPLES) -> Distribution:
    """Return mean, interval and percentiles of a figure; blocks of √n jobs are resampled."""
    known = ~np.isnan(figure.values)
    values = figure.values[known]
    if not len(values):
        nan = float("nan")
        return Distribution(
            jobs=0, at_least=0, interval=Interval(nan, nan, nan), p50=nan, p90=nan, p99=nan, max=nan
        )
    p50, p90, p99 = percentiles(values).tolist()
    return Distribution(
        jobs=len(values),
        at_least=int(figure.at_least[known].sum()),
        interval=mean_interval(values, block=round(len(values) ** 0.5), resamples=resamples),
        p50=p50,
        p90=p90,
        p99=p99,
        max=float(values.max()),
    )
