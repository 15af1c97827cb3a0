"""How far a fitted scenario is from days that it was not fitted to."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec
import numpy as np

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.figures.metrics import JobOutcomes
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.simulator.comparison import outcomes_of
from edgeyard.simulator.fitting.arrivals import hour_of_week
from edgeyard.simulator.fitting.distances import Distance, distance
from edgeyard.simulator.fitting.estimates import Floats
from edgeyard.simulator.fitting.scenario import (
    MIN_RUNS,
    MIN_WINDOW_S,
    before,
    fit_scenario,
    possible_attempts,
)
from edgeyard.simulator.generators.labs import default_scenario
from edgeyard.simulator.importers.history import KnownBoards, RecordedHistory, Row, held_s
from edgeyard.simulator.lab.world import LabWorld
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import DAY_S, Scenario
from edgeyard.simulator.wording import count_of

FIGURES = ("wait_s", "turnaround_s", "utilisation")
"""Compared figures: submission to decision, submission to end, and the busy share of all boards in
each hour."""

QUANTILES = (0.1, 0.5, 0.9, 0.99)
"""Quantiles that are stated."""

WARM_UP_S = DAY_S
"""Time that is simulated before the compared days, because simulations begin with empty queues."""

RESOLUTION_S = 1.0
"""Waits and turnaround times are rounded to it, because a real cycle decides what has arrived since
the last one, and the service's own work is not simulated."""

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A figure of all benchmarks, or of all hours; numbers are NaN without any.

    Attributes:
        count: How many values; of all simulations together.
        mean: Of the values.
        quantiles: `QUANTILES` of them.
    """

    count: int
    mean: float
    quantiles: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """A figure of what happened and of simulations.

    Attributes:
        name: One of `FIGURES`.
        happened: What is recorded.
        default: Of simulations of the default scenario, before fitting.
        fitted: Of simulations of the fitted scenario.
        default_distance: Of the default scenario from what happened.
        fitted_distance: Of the fitted scenario from what happened.
    """

    name: str
    happened: Sample
    default: Sample
    fitted: Sample
    default_distance: Distance
    fitted_distance: Distance


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """A fitted scenario, and the days that followed, next to what happened.

    Attributes:
        began: Beginning of the history.
        since: End of what the scenario was fitted to, and beginning of the compared days.
        until: Their end.
        runs: Simulations of each scenario.
        policy: That decided in them.
        benchmarks: That were submitted in these days.
        default_benchmarks: Mean over the simulations of the default scenario.
        fitted_benchmarks: Mean over those of the fitted scenario.
        comments: What a reader should know, in words.
    """

    began: datetime
    since: datetime
    until: datetime
    runs: int
    policy: str
    benchmarks: int
    default_benchmarks: float
    fitted_benchmarks: float
    figures: tuple[ComparedFigure, ...]
    comments: tuple[str, ...]


def validate(
    history: RecordedHistory,
    policy: Policy,
    plugins: Plugins,
    *,
    days: int,
    runs: int,
    until: datetime | None = None,
    advanced: Callable[[str, float], None] = lambda stage, share: None,
) -> Validation:
    """Fit a scenario to what was known before the last days, and compare it with these days.

    A benchmark that had not ended at the end of the days counts with the time that had passed
    until then, in the history and in the simulations.

    Args:
        history: Of a lab.
        policy: Decides in the simulations.
        plugins: What it names.
        days: So many at the end are compared.
        runs: So many simulations of each scenario, with the seeds from 1 on; at least 2.
        until: End of the history; None: when the last thing happened that is recorded.
        advanced: Called now and then with a stage in words, and the share of it that is done.

    Raises:
        InvalidInput: The history is too short for so many days, or too little happened in it; or
            a simulation is an error.
    """
    began: datetime = history.benchmarks[0]["submit_time"]
    end = _end(history, until)
    since = end - timedelta(days=days)
    _check_days(history, began, since, end, days)
    attempts, _ = possible_attempts(history)
    happened = _recorded(history, attempts, since, end)
    if len(happened.job) < MIN_RUNS:
        found = f"{count_of(len(happened.job), 'benchmark')} in the last {count_of(days, 'day')}"
        reason = f"only {found} can be compared"
        raise InvalidInput.at("--days", reason, f"days with at least {MIN_RUNS}: more --days")
    try:
        fitted = fit_scenario(
            before(history, since), advanced=lambda share: advanced("fitting", share)
        )
    except InvalidInput as error:
        raise InvalidInput(
            [
                replace(
                    each,
                    reason=f"before the last {count_of(days, 'day')}: {each.reason}",
                    accepted=f"{each.accepted}; or fewer --days" if each.accepted else "",
                )
                for each in error.errors
            ]
        ) from error
    assert fitted.scenario.lab is not None
    groups = fitted.scenario.lab.boards
    uids = frozenset(uid for group in groups for uid in group.uids)
    begin = since - timedelta(seconds=WARM_UP_S)
    scenario = _days(fitted.scenario, days, hour_of_week(begin))
    assert scenario.lab is not None
    assert scenario.lab.arrivals is not None
    peer = _days(default_scenario(groups, scenario.lab.arrivals.rate_per_hour), days, 0.0)
    simulated: dict[str, list[dict[str, Floats]]] = {"default": [], "fitted": []}
    for seed in range(1, runs + 1):
        for place, (name, each) in enumerate((("default", peer), ("fitted", scenario))):
            advanced(f"{name} scenario, seed {seed}", (seed - 1 + place / 2) / runs)
            simulated[name].append(
                _of_run(_simulated(each, policy, plugins, seed), len(uids), days)
            )
    advanced("comparing", 1.0)
    recorded = {**_times(happened), "utilisation": _recorded_busy(attempts, uids, since, days)}
    return Validation(
        began=began,
        since=since,
        until=end,
        runs=runs,
        policy=policy.name,
        benchmarks=len(happened.job),
        default_benchmarks=_mean_count(simulated["default"]),
        fitted_benchmarks=_mean_count(simulated["fitted"]),
        figures=tuple(
            _compared(
                name,
                recorded[name],
                [each[name] for each in simulated["default"]],
                [each[name] for each in simulated["fitted"]],
            )
            for name in FIGURES
        ),
        comments=(*fitted.comments, *_comments(history, uids, since, end)),
    )


def _end(history: RecordedHistory, until: datetime | None) -> datetime:
    """Return when the last thing happened that is recorded, but not after ``until``."""
    began: datetime = history.benchmarks[0]["submit_time"]
    last: datetime = max(
        KnownBoards(history.boards, history.attempts, began).last,
        history.benchmarks[-1]["submit_time"],
    )
    return last if until is None else min(until, last)


def _check_days(
    history: RecordedHistory, began: datetime, since: datetime, end: datetime, days: int
) -> None:
    if (since - began).total_seconds() >= MIN_WINDOW_S:
        return
    whole_s = (end - began).total_seconds()
    max_days = math.floor((whole_s - MIN_WINDOW_S) / DAY_S)
    found = f"{whole_s / DAY_S:.1f} days from {began:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
    if max_days < 1:
        reason = f"the history has {found}, and a day to compare needs at least an hour before it"
        raise InvalidInput.at(history.source, reason, "a longer history: an earlier --since")
    reason = (
        f"the last {count_of(days, 'day')} leave no time to fit the scenario to: "
        f"the history has {found}"
    )
    raise InvalidInput.at("--days", reason, f"up to {max_days}, or an earlier --since")


def _days(scenario: Scenario, days: int, first_hour: float) -> Scenario:
    """Return a scenario of so many days, and of the time before in which its queues fill."""
    lab = scenario.lab
    assert lab is not None
    assert lab.arrivals is not None
    arrivals = msgspec.structs.replace(lab.arrivals, first_hour=first_hour)
    return msgspec.structs.replace(
        scenario,
        duration_s=WARM_UP_S + days * DAY_S,
        lab=msgspec.structs.replace(lab, arrivals=arrivals),
    )


def _simulated(scenario: Scenario, policy: Policy, plugins: Plugins, seed: int) -> SimulatedRun:
    """Simulate a scenario until its last arrival, without waiting for what waits or runs then."""
    world = LabWorld(scenario, policy, plugins, seed=seed)
    while world.now_s < scenario.duration_s and world.step():
        pass
    return world.result()


def _recorded(
    history: RecordedHistory, attempts: Mapping[str, Sequence[Row]], since: datetime, end: datetime
) -> JobOutcomes:
    """Return the outcomes of the benchmarks of the days, in seconds from their beginning.

    Benchmarks that ended before they were submitted, by a clock that jumped, are left out, and so
    are those that led to an end without an attempt of which the start is known.
    """
    found: list[tuple[Row, Row | None]] = []
    for each in history.benchmarks:
        if not since <= each["submit_time"] < end:
            continue
        ended = each["ended_at"]
        last = next(reversed(attempts.get(each["benchmark_id"], ())), None)
        ran = last is not None or each["status"] not in ("completed", "failed")
        if ran and (ended is None or ended >= each["submit_time"]):
            found.append((each, last))

    def seconds(at: datetime | None) -> float:
        return math.nan if at is None else (at - since).total_seconds()

    starts = [
        math.nan if last is None else seconds(last["ended_at"]) - held_s(last) for _, last in found
    ]
    count = len(found)
    jobs = JobOutcomes(
        job=np.array([each["benchmark_id"] for each, _ in found], dtype=object),
        user=np.array([each["user_id"] for each, _ in found], dtype=object),
        submit_s=np.array([seconds(each["submit_time"]) for each, _ in found], dtype=np.float64),
        start_s=np.array(starts, dtype=np.float64),
        end_s=np.array([seconds(each["ended_at"]) for each, _ in found], dtype=np.float64),
        status=np.array([each["status"] for each, _ in found], dtype=object),
        attempts=np.ones(count, dtype=np.int64),
        preemptions=np.zeros(count, dtype=np.int64),
        deadline_s=np.full(count, np.nan),
        until_s=math.inf,
    )
    return _within(jobs, 0.0, seconds(end))


def _within(jobs: JobOutcomes, from_s: float, until_s: float) -> JobOutcomes:
    """Return the jobs that were submitted between two times, as they are known at the second."""
    chosen = (jobs.submit_s >= from_s) & (jobs.submit_s < until_s)
    has_ended = jobs.end_s[chosen] <= until_s
    return JobOutcomes(
        job=jobs.job[chosen],
        user=jobs.user[chosen],
        submit_s=jobs.submit_s[chosen],
        start_s=np.where(has_ended, jobs.start_s[chosen], np.nan),
        end_s=np.where(has_ended, jobs.end_s[chosen], np.nan),
        status=np.where(has_ended, jobs.status[chosen], "pending"),
        attempts=jobs.attempts[chosen],
        preemptions=jobs.preemptions[chosen],
        deadline_s=jobs.deadline_s[chosen],
        until_s=until_s,
    )


def _times(jobs: JobOutcomes) -> dict[str, Floats]:
    """Return the values of the figures that each benchmark has, where it has them."""
    found = {name: jobs.figure(name).values for name in ("wait_s", "turnaround_s")}
    return {name: values[~np.isnan(values)] for name, values in found.items()}


def _of_run(run: SimulatedRun, boards: int, days: int) -> dict[str, Floats]:
    """Return the values of all figures of a simulation, after its queues have filled."""
    until_s = WARM_UP_S + days * DAY_S
    held = run.occupancy
    return {
        **_times(_within(outcomes_of(run), WARM_UP_S, until_s)),
        "utilisation": _busy_share(held.from_s, held.to_s, WARM_UP_S, days, boards),
    }


def _recorded_busy(
    attempts: Mapping[str, Sequence[Row]], uids: Collection[str], since: datetime, days: int
) -> Floats:
    its = [
        ((row["ended_at"] - since).total_seconds(), held_s(row))
        for rows in attempts.values()
        for row in rows
        if row["target_uid"] in uids
    ]
    to_s, lengths = np.array(its, dtype=np.float64).reshape(-1, 2).T
    return _busy_share(to_s - lengths, to_s, 0.0, days, len(uids))


def _busy_share(from_s: Floats, to_s: Floats, begin_s: float, days: int, boards: int) -> Floats:
    """Return the busy share of boards in each hour of the days; shape (24 * days,).

    Attempts that had not ended at the end of the days are not known.
    """
    edges = begin_s + np.arange(24 * days + 1) * _HOUR_S
    known = to_s <= edges[-1]
    begin, length = from_s[known], (to_s - from_s)[known]
    busy_s = np.array([np.clip(edge - begin, 0.0, length).sum() for edge in edges])
    return np.minimum(np.diff(busy_s) / (_HOUR_S * boards), 1.0)  # sums are rounded


def _mean_count(found: Sequence[Mapping[str, Floats]]) -> float:
    return float(np.mean([len(each["wait_s"]) for each in found]))


def _compared(
    name: str, happened: Floats, default: Sequence[Floats], fitted: Sequence[Floats]
) -> ComparedFigure:
    def rounded(values: Floats) -> Floats:
        return values if name == "utilisation" else np.floor(values / RESOLUTION_S)

    recorded = rounded(happened)
    return ComparedFigure(
        name=name,
        happened=_sample(happened),
        default=_sample(np.concatenate(default)),
        fitted=_sample(np.concatenate(fitted)),
        default_distance=distance(recorded, [rounded(each) for each in default]),
        fitted_distance=distance(recorded, [rounded(each) for each in fitted]),
    )


def _sample(values: Floats) -> Sample:
    if not len(values):
        nan = math.nan
        return Sample(count=0, mean=nan, quantiles=(nan,) * len(QUANTILES))
    return Sample(
        count=len(values),
        mean=float(values.mean()),
        quantiles=tuple(np.quantile(values, QUANTILES).tolist()),
    )


def _comments(
    history: RecordedHistory, uids: Collection[str], since: datetime, end: datetime
) -> list[str]:
    found = []
    if len(uids) == 1:
        found.append("The lab has one board, so the choice of boards can't be compared.")
    joined = {
        each["target_uid"]
        for each in history.boards
        if since <= each["at"] <= end and each["known"]
    } - set(uids)
    if joined:
        found.append(
            f"{count_of(len(joined), 'board')} joined the lab in the compared days; simulations do "
            "not have them."
        )
    return found
