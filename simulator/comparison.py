"""Comparisons of policies that met the same jobs: paired by scenario, seed and job.

Runs with one scenario and one seed have common random numbers: the same arrivals, run times and
faults. What differs between two such runs is the policy's doing, so differences are taken within
pairs. Several seeds are several independent samples, and then the seeds are resampled; with fewer
than `MIN_SEEDS` the jobs of all seeds are, in blocks of neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.figures.metrics import (
    JOB_FIGURES,
    Floats,
    Interval,
    JobOutcomes,
    RunMetrics,
    mean_interval,
    measure,
)
from edgeyard.simulator.runs import FAULTED, LOST, STATUSES, SimulatedRun
from edgeyard.simulator.schedules import Comparison, compare

MIN_SEEDS = 5
"""With this many seeds or more, intervals are computed from the means of the seeds."""

RUN_FIGURES = (
    "utilisation",
    "makespan_s",
    "deadline_misses",
    "fairness",
    "preemptions",
    "failed_attempts",
    "overloaded",
    "energy_j",
    "credits",
    "comparable_share",
)
"""Names of the figures of a run."""

Key = tuple[str, int]
"""Key of runs that are compared with each other: scenario (with its load) and seed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredRun:
    """A run with its metrics.

    Attributes:
        scenario: Label of the scenario and its load: runs are compared within it.
    """

    scenario: str
    policy: str
    seed: int
    jobs: JobOutcomes
    metrics: RunMetrics

    @property
    def key(self) -> Key:
        """Scenario and seed, which are the same in all runs that it is compared with."""
        return self.scenario, self.seed


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary:
    """A policy over all seeds of a scenario.

    Attributes:
        seeds: How many.
        jobs: Of all seeds.
        deadlines: Jobs of all seeds that had one.
        completed: Of all seeds.
        unended: Jobs that had not ended, of all seeds.
        figures: Means by the names of `JOB_FIGURES` and `RUN_FIGURES`. From `MIN_SEEDS` on they
            and their intervals are over the seeds' means; with fewer those of `JOB_FIGURES` are
            over all jobs, and the others have no interval (NaN).
        at_least: Jobs that count with a lower bound, by figure.
        percentiles: Median, 90 % and 99 % of each of `JOB_FIGURES` over the jobs of all seeds.
    """

    scenario: str
    policy: str
    seeds: int
    jobs: int
    deadlines: int
    completed: int
    unended: int
    figures: Mapping[str, Interval]
    at_least: Mapping[str, int]
    percentiles: Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """One figure under two policies on the same jobs.

    Attributes:
        result: First less second.
        pairs: How many jobs, or runs, both have.
        unpaired: Jobs that did not get so far under one of them, and are in neither mean.
        by: What was resampled: ``seed`` or ``job``.
        more_completed: Jobs that the first completed more than the second; negative: fewer.
    """

    scenario: str
    figure: str
    first: str
    second: str
    result: Comparison
    pairs: int
    unpaired: int
    by: str
    more_completed: int = 0


def outcomes_of(run: SimulatedRun) -> JobOutcomes:
    """Return the outcomes of the jobs of a simulated run."""
    jobs = run.jobs
    last = [float(run.series.time_s[-1])] if len(run.series) else []
    ends = jobs.end_s[~np.isnan(jobs.end_s)]
    names = np.array(STATUSES, dtype=object)
    return JobOutcomes(
        job=jobs.job.astype(object),
        user=jobs.user.astype(object),
        submit_s=jobs.submit_s,
        start_s=jobs.start_s,
        end_s=jobs.end_s,
        status=names[jobs.status],
        attempts=jobs.attempts,
        preemptions=jobs.preemptions,
        deadline_s=jobs.deadline_s,
        until_s=max([*last, float(ends.max(initial=0.0)), float(jobs.submit_s.max(initial=0.0))]),
    )


def measured(run: SimulatedRun, *, scenario: str | None = None) -> MeasuredRun:
    """Return a simulated run with its metrics.

    Args:
        scenario: Its label; None: the scenario's name.
    """
    jobs = outcomes_of(run)
    ended = jobs.end_s[~jobs.unended]
    last = jobs.until_s if jobs.unended.any() else float(ended.max(initial=0.0))
    span = float(jobs.submit_s.min(initial=np.inf)), last
    series = run.series
    stated = run.meta.figures
    unknown = float("nan")
    metrics = measure(
        jobs,
        utilisation=time_mean(series.time_s, series.busy_share, *span),
        failed_attempts=int(np.isin(run.occupancy.how, (LOST, FAULTED)).sum()),
        overloaded=(
            time_mean(series.time_s, series.overloaded, *span)
            if run.meta.world == "nodes"
            else unknown
        ),
        energy_j=stated.get("energy_j", unknown),
        credits=stated.get("credits", unknown),
        comparable_share=stated.get("comparable_share", unknown),
    )
    return MeasuredRun(
        scenario=run.meta.scenario if scenario is None else scenario,
        policy=run.meta.policy,
        seed=run.meta.seed,
        jobs=jobs,
        metrics=metrics,
    )


def summarise(runs: Sequence[MeasuredRun]) -> list[PolicySummary]:
    """Return one summary for each scenario and policy, in the order of their first runs."""
    groups: dict[tuple[str, str], list[MeasuredRun]] = {}
    for run in runs:
        groups.setdefault((run.scenario, run.policy), []).append(run)
    return [_summary(scenario, policy, each) for (scenario, policy), each in groups.items()]


def _summary(scenario: str, policy: str, runs: Sequence[MeasuredRun]) -> PolicySummary:
    figures: dict[str, Interval] = {}
    percentiles: dict[str, tuple[float, float, float]] = {}
    at_least: dict[str, int] = {}
    for name in JOB_FIGURES:
        each = [run.metrics.figures[name] for run in runs]
        at_least[name] = sum(one.at_least for one in each)
        values = np.concatenate([run.jobs.figure(name).values for run in runs])
        known = values[~np.isnan(values)]
        if len(each) >= MIN_SEEDS:
            figures[name] = _over_seeds(np.array([one.interval.mean for one in each]))
        elif len(each) == 1:
            figures[name] = each[0].interval
        elif len(known):
            figures[name] = mean_interval(known, block=round(len(known) ** 0.5))
        else:
            figures[name] = _over_seeds(known)
        low, middle, high = (
            np.quantile(known, (0.5, 0.9, 0.99)).tolist() if len(known) else (np.nan,) * 3
        )
        percentiles[name] = (low, middle, high)
    for name in RUN_FIGURES:
        figures[name] = _over_seeds(np.array([getattr(run.metrics, name) for run in runs], float))
    return PolicySummary(
        scenario=scenario,
        policy=policy,
        seeds=len(runs),
        jobs=sum(run.metrics.jobs for run in runs),
        deadlines=sum(run.metrics.deadlines for run in runs),
        completed=sum(int(run.jobs.completed.sum()) for run in runs),
        unended=sum(int(run.jobs.unended.sum()) for run in runs),
        figures=figures,
        at_least=at_least,
        percentiles=percentiles,
    )


def _over_seeds(values: Floats) -> Interval:
    """Return the mean over seeds, with an interval if there are enough of them.

    Runs that lack the figure are left out.
    """
    known = values[~np.isnan(values)]
    if not len(known):
        return Interval(float("nan"), float("nan"), float("nan"))
    if len(known) < MIN_SEEDS:
        return Interval(float(known.mean()), float("nan"), float("nan"))
    return mean_interval(known)


def compare_policies(
    runs: Sequence[MeasuredRun], *, baseline: str | None = None
) -> list[PairedComparison]:
    """Compare policies on the seeds that both have.

    Args:
        runs: Of any scenarios, policies and seeds; the last of several equal ones counts.
        baseline: Compare each other policy with this one; None: all pairs.
    """
    found: list[PairedComparison] = []
    for scenario in dict.fromkeys(run.scenario for run in runs):
        by_policy: dict[str, dict[int, MeasuredRun]] = {}
        for run in runs:
            if run.scenario == scenario:
                by_policy.setdefault(run.policy, {})[run.seed] = run
        if baseline is None:
            pairs = [(second, first) for first, second in combinations(by_policy, 2)]
        else:
            pairs = [(each, baseline) for each in by_policy if each != baseline]
        for first, second in pairs:
            if second not in by_policy:
                continue
            common = [seed for seed in by_policy[first] if seed in by_policy[second]]
            both = [(by_policy[first][seed], by_policy[second][seed]) for seed in common]
            if both:
                found.extend(_compare(scenario, first, second, both))
    return found


def _compare(
    scenario: str, first: str, second: str, both: Sequence[tuple[MeasuredRun, MeasuredRun]]
) -> list[PairedComparison]:
    found = []
    more_completed = sum(
        int(one.jobs.completed.sum()) - int(other.jobs.completed.sum()) for one, other in both
    )
    comparison = partial(
        PairedComparison,
        scenario=scenario,
        first=first,
        second=second,
        more_completed=more_completed,
    )
    for name in JOB_FIGURES:
        pairs = [_pair_jobs(one.jobs, other.jobs, name) for one, other in both]
        pairs = [(_without_noise(*pair[:2]), pair[1], pair[2]) for pair in pairs]
        left = np.concatenate([pair[0] for pair in pairs])
        right = np.concatenate([pair[1] for pair in pairs])
        unpaired = sum(pair[2] for pair in pairs)
        if not len(left):
            continue
        by_seed = len([pair for pair in pairs if len(pair[0])]) >= MIN_SEEDS
        if by_seed:
            means = [(pair[0].mean(), pair[1].mean()) for pair in pairs if len(pair[0])]
            seeds = compare(*(np.array(side) for side in zip(*means, strict=True)))
            whole = compare(left, right, resamples=1)
            result = Comparison(
                difference=seeds.difference,
                ratio=seeds.ratio,
                lower=whole.lower,
                higher=whole.higher,
            )
        else:
            result = compare(left, right, block=round(len(left) ** 0.5))
        found.append(
            comparison(
                figure=name,
                result=result,
                pairs=len(left),
                unpaired=unpaired,
                by="seed" if by_seed else "job",
            )
        )
    for name in RUN_FIGURES:
        values = np.array(
            [(getattr(one.metrics, name), getattr(other.metrics, name)) for one, other in both],
            dtype=np.float64,
        )
        known = values[~np.isnan(values).any(axis=1)]
        if not len(known) or not known.any():
            continue
        result = compare(_without_noise(known[:, 0], known[:, 1]), known[:, 1])
        if len(known) < MIN_SEEDS:
            nan = float("nan")
            result = Comparison(
                difference=Interval(result.difference.mean, nan, nan),
                ratio=result.ratio,
                lower=result.lower,
                higher=result.higher,
            )
        found.append(
            comparison(
                figure=name,
                result=result,
                pairs=len(known),
                unpaired=len(values) - len(known),
                by="seed",
            )
        )
    return found


def _without_noise(first: Floats, second: Floats) -> Floats:
    """Return the first with the second's value where only rounding makes them differ."""
    return np.where(np.isclose(first, second, rtol=1e-9, atol=0.0), second, first)


def _pair_jobs(first: JobOutcomes, second: JobOutcomes, name: str) -> tuple[Floats, Floats, int]:
    """Return a figure of the jobs of which both runs know it exactly, and how many others are."""
    at_first, at_second = _common(first.job, second.job)
    one, other = first.figure(name), second.figure(name)
    values, others = one.values[at_first], other.values[at_second]
    exact = ~(
        np.isnan(values) | np.isnan(others) | one.at_least[at_first] | other.at_least[at_second]
    )
    whole = len(first.job) + len(second.job) - len(at_first)
    return values[exact], others[exact], whole - int(exact.sum())


def _common(
    first: NDArray[np.object_], second: NDArray[np.object_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the ids that are in both, in the order of the first."""
    if len(first) == len(second) and np.array_equal(first, second):
        rows = np.arange(len(first))
        return rows, rows
    row_of = {each: row for row, each in enumerate(second.tolist())}
    found = [(row, row_of[each]) for row, each in enumerate(first.tolist()) if each in row_of]
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def time_means(time_s: Floats, values: NDArray[np.generic], edges: Floats) -> Floats:
    """Return the means between edges of a series whose values hold until the next time.

    Args:
        time_s: Ascending; before the first the value is 0.
        values: Shape as ``time_s``.
        edges: Shape (means + 1,), ascending, seconds.
    """
    if not len(time_s):
        return np.zeros(len(edges) - 1)
    height = values.astype(np.float64)
    integral = np.concatenate([[0.0], np.cumsum(height[:-1] * np.diff(time_s))])
    row = np.searchsorted(time_s, edges, side="right") - 1
    known = np.maximum(row, 0)
    area = np.where(row < 0, 0.0, integral[known] + height[known] * (edges - time_s[known]))
    return np.asarray(np.diff(area) / np.diff(edges), dtype=np.float64)


def time_mean(time_s: Floats, values: NDArray[np.generic], from_s: float, to_s: float) -> float:
    """Return the mean of such a series between two times; NaN: there is none, or no time."""
    if not len(time_s) or not from_s < to_s:
        return float("nan")
    return float(time_means(time_s, values, np.array([from_s, to_s]))[0])
