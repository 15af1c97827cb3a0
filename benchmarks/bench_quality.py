"""How good decisions are: policies in simulated labs on the same arrivals, run times and faults.

Each row is a ratio of means over seeds, ours over the peer's; lower is better. Seeds are drawn with
replacement, the same ones for both, for its 95 % interval (paired percentile bootstrap: Efron and
Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3). The peer "least loaded" is the
policy ``default`` with the scorer `least_loaded` alone and no planner, "random" with `random`
alone; "priority_age" is ``default`` with that order and no planner.

The row `idle by bookings 8` compares nothing: see `booked_lab`. The rows `random labs …` are of
`benchmarks.random_labs`: geometric means over labs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from benchmarks.random_labs import FLOOR_S, LABS, LabFigures, geometric_mean, simulate_labs
from benchmarks.tables import Row
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.named import policy_named
from edgeyard.scheduler.framework.policy import Policy, ScorerChoice, load_policy
from edgeyard.simulator.comparison import MeasuredRun, measured
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import (
    Arrivals,
    BoardGroup,
    Faults,
    JobKind,
    JobRow,
    LabScenario,
    Scenario,
)

MAX_COMPLETION = 0.85
"""The mean completion in a lab of different boards, over that of the least loaded one."""

LOAD = 0.6
"""Share of the boards in use, if each ran as fast as a board of speed 1."""

OTHER_LOADS = (0.4, 0.6, 0.8, 0.95)
"""Loads at which the policy ``default`` is compared with the best of `RULES`."""

RULES = ("min_min", "f1", "sjf", "mct")
"""Plain rules that know run times."""

RULE_SEEDS = 4
"""Of the rows that compare with all of `RULES`: these are four policies more."""

SPEEDS = (0.5, 0.8, 1.25, 2.0)
RUNS_S = (150.0, 300.0, 600.0)
MEAN_S = float(np.mean(RUNS_S))
DRAWS = 10_000

MAX_IDLE_SHARE = 0.05
"""Board-seconds that are free while a benchmark that fits waits, over all board-seconds."""

MIN_IN_TIME = 0.95
"""Share of the bookings that start within `BOOKING_GRACE_S` of their stated start."""

BOOKING_GRACE_S = 30.0
BOOKED_SEEDS = 8
BOOKED_BOARDS = 8
ROUND_S, ROUNDS, AHEAD_S = 600.0, 3, 540.0
"""A user books all boards for the same time, each ten minutes, nine minutes ahead."""

MAX_OF_RULE, MAX_WORSE_LABS = 0.98, 0.05
"""In random labs: completion over each of `RULES`, and labs above 1.1 times the best of them."""

MAX_P99_WAIT, MAX_LONG_WAIT = 1.0, 1.5
"""In random labs, over the order by priority and age: the 99th percentile of waiting, and the mean
wait of a lab's longest kind of benchmarks."""

SIZES = {20: (12, 2 * 3600.0), 200: (6, 3600.0), 2000: (5, 900.0)}
"""By the number of boards: seeds, and seconds in which benchmarks arrive."""


@dataclass(frozen=True, slots=True)
class Lab:
    """A kind of lab.

    Attributes:
        boards: How many.
        equal: All are equally fast; otherwise a quarter has each of `SPEEDS`.
        faulty: A quarter of each kind of boards, rounded down but at least one (4 of 20 boards),
            fails one run in four, the others one in a hundred.
        deadline_s: Of half of the benchmarks, after their submission; None: nobody has one.
        load: See `LOAD`.
        seeds: How many; None: as in `SIZES`.
    """

    boards: int
    equal: bool = False
    faulty: bool = False
    deadline_s: float | None = None
    load: float = LOAD
    seeds: int | None = None


def scenario(lab: Lab) -> Scenario:
    """Return a lab with five earlier runs per board in its history."""
    count = lab.boards // len(SPEEDS)
    groups: list[BoardGroup] = []
    for speed in SPEEDS:
        group = BoardGroup(family="rpi4b", count=count, speed=1.0 if lab.equal else speed)
        if lab.faulty:
            bad = max(count // 4, 1)
            groups.append(_part_of(group, count - bad, 0.01))
            groups.append(_part_of(group, bad, 0.25))
        else:
            groups.append(group)
    mix = tuple(
        JobKind(
            model=f"model{row}",
            run_s=run_s,
            run_spread=0.1,
            deadline_s=lab.deadline_s,
            deadline_share=0.5,
        )
        for row, run_s in enumerate(RUNS_S)
    )
    _, duration_s = SIZES[lab.boards]
    return Scenario(
        name="quality",
        world="boards",
        duration_s=duration_s,
        lab=LabScenario(
            boards=tuple(groups),
            arrivals=Arrivals(rate_per_hour=lab.load * lab.boards * 3600.0 / MEAN_S, mix=mix),
            history_jobs=5 * lab.boards,
        ),
    )


def _part_of(group: BoardGroup, count: int, task_rate: float) -> BoardGroup:
    """Return so many boards of a group, with a share of runs that fail."""
    return BoardGroup(
        family=group.family, count=count, speed=group.speed, faults=Faults(task_rate=task_rate)
    )


@cache
def policy_of(name: str) -> Policy:
    """Return a policy by the name that rows use."""
    if name in ("least_loaded", "random"):
        alone = (ScorerChoice(name=name, weight=1.0),)
        default = load_policy("default")
        return replace(default, name=name, scorers=alone, explore_share=0.0, planner=None)
    if name == "priority_age":
        return replace(load_policy("default"), name=name, queue_policy=name, planner=None)
    return policy_named(name, registry(entry_points=False))


@cache
def runs(lab: Lab, policy: str) -> tuple[MeasuredRun, ...]:
    """Return one run for each seed; writes a line of progress to the standard error."""
    chosen = policy_of(policy)
    found = []
    seeds = lab.seeds or SIZES[lab.boards][0]
    for seed in range(1, seeds + 1):
        plugins = registry(entry_points=False).resolve(chosen)
        found.append(measured(simulate_lab(scenario(lab), chosen, plugins, seed=seed)))
        sys.stderr.write(
            f"{lab.boards} boards, {policy}: seed {seed} of {seeds}, "
            f"{time.process_time():.0f} s of processor time so far\n"
        )
    return tuple(found)


def ratio_interval(ours: Sequence[float], peer: Sequence[float]) -> tuple[float, float, float]:
    """Return the ratio of the sums and its 95 % interval, pairs drawn with replacement.

    Args:
        ours: A figure of each seed.
        peer: The same figure of the same seeds; not all 0.
    """
    first, second = np.asarray(ours, dtype=np.float64), np.asarray(peer, dtype=np.float64)
    drawn = np.random.default_rng(0).integers(0, len(first), (DRAWS, len(first)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = first[drawn].sum(axis=1) / second[drawn].sum(axis=1)
    low, high = np.nanquantile(ratios, [0.025, 0.975])
    return float(first.sum() / second.sum()), float(low), float(high)


def row(
    name: str,
    lab: Lab,
    ours: str,
    peer: str,
    figure: str = "turnaround_s",
    at_most: float | None = 1.0,
) -> Row:
    """Return one comparison; the note states its interval and whether the bound holds.

    Args:
        name: Of the row.
        lab: Where.
        ours: The policy.
        peer: The other one.
        figure: ``turnaround_s``, or a count of `RunMetrics`.
        at_most: Bound of the ratio; None: it has none. One of 1 holds unless the ratio is
            significantly above it.
    """
    first, second = (_figures(runs(lab, each), figure) for each in (ours, peer))
    ratio, low, high = ratio_interval(first, second)
    benchmarks = sum(each.metrics.jobs for each in runs(lab, ours))
    seeds = f"{len(first)} seeds, {benchmarks:,} benchmarks"
    note = f"{low:.3f} to {high:.3f}; {ours} over {peer}; {seeds}"
    if at_most is not None:
        holds = low <= 1.0 if at_most == 1.0 else ratio <= at_most
        bound = "not significantly above 1" if at_most == 1.0 else f"at most {at_most:g}"
        note += f"; {bound}: {'holds' if holds else 'MISSED'}"
    unit = "s" if figure == "turnaround_s" else "runs"
    return Row(name, float(np.mean(first)), unit, float(np.mean(second)), ratio, note)


def _figures(found: Sequence[MeasuredRun], figure: str) -> list[float]:
    if figure == "turnaround_s":
        return [each.metrics.figures[figure].interval.mean for each in found]
    return [float(getattr(each.metrics, figure)) for each in found]


def best_rule_row(load: float) -> Row:
    """Return the comparison with the rule that has the shortest mean completion at a load."""
    lab = Lab(20, load=load, seeds=RULE_SEEDS)
    means = {each: np.mean(_figures(runs(lab, each), "turnaround_s")) for each in RULES}
    best = min(means, key=means.__getitem__)
    return row(f"vs best rule 20 load {load:g}", lab, "default", best)


def small_rows() -> list[Row]:
    """Return the rows of 20 boards, without those of `completion_rows`."""
    lab = Lab(20)
    deadlines = Lab(20, deadline_s=600.0, load=0.9)  # 900 s at 0.8: less than one miss a lab
    return [
        row("vs random 20", lab, "default", "random"),
        row("vs native 20", lab, "default", "native"),
        row("vs MCT 20", lab, "default", "mct"),
        *(best_rule_row(load) for load in OTHER_LOADS),
        row(
            "failures default 20",
            Lab(20, faulty=True),
            "default",
            "least_loaded",
            "failed_attempts",
        ),
        row("deadline misses default 20", deadlines, "default", "least_loaded", "deadline_misses"),
        row("equal boards 20", Lab(20, equal=True), "default", "least_loaded"),
    ]


def booked_lab() -> Scenario:
    """Return a lab of eight equal boards, all of which one user books again and again.

    The others submit benchmarks of 3, 20 and 60 s that keep about half of the boards busy and state
    no ``user_time``; the server's limit, 900 s, is longer than the time to any booked start. Cycles
    follow one another as fast as on a server: a second between them is a third of a short run.
    """
    family = "rpi4b"
    lengths_s = ((3.0, 20.0), (20.0, 3.0), (60.0, 1.0))
    mix = tuple(
        JobKind(model=f"model{row}", share=share, run_s=run_s, run_spread=0.3, families=(family,))
        for row, (run_s, share) in enumerate(lengths_s)
    )
    mean_s = sum(run_s * share for run_s, share in lengths_s) / sum(w for _, w in lengths_s)
    bookings = tuple(
        JobRow(
            job_id=f"booking-{turn}-{number}",
            submit_s=turn * ROUND_S,
            start_s=turn * ROUND_S + AHEAD_S,
            run_s=20.0,
            family=family,
            model="booked",
            user="booker",
        )
        for turn in range(ROUNDS)
        for number in range(BOOKED_BOARDS)
    )
    return Scenario(
        name="bookings",
        world="boards",
        duration_s=ROUNDS * ROUND_S,
        lab=LabScenario(
            boards=(BoardGroup(family=family, count=BOOKED_BOARDS),),
            arrivals=Arrivals(rate_per_hour=0.5 * BOOKED_BOARDS * 3600.0 / mean_s, mix=mix),
            jobs=bookings,
            max_run_s=900.0,
            cycle_s=0.1,
            history_jobs=5 * BOOKED_BOARDS,
        ),
    )


def idle_share(run: SimulatedRun, booked_starts_s: Mapping[str, float]) -> float:
    """Return the board-seconds that are free while a benchmark waits, over all board-seconds.

    Every benchmark fits every board. One that is booked waits from its stated start on.

    Args:
        run: Until its last benchmark has ended.
        booked_starts_s: Stated starts by the names of the benchmarks.
    """
    jobs, held = run.jobs, run.occupancy
    ready_s = np.array(
        [
            booked_starts_s.get(name, submit_s)
            for name, submit_s in zip(jobs.job.tolist(), jobs.submit_s.tolist(), strict=True)
        ]
    )
    times = np.concatenate((ready_s, jobs.start_s, held.from_s, held.to_s))
    waiting = np.repeat((1, -1, 0, 0), (len(jobs), len(jobs), len(held), len(held)))
    busy = np.repeat((0, 0, 1, -1), (len(jobs), len(jobs), len(held), len(held)))
    order = np.argsort(times, kind="stable")
    lengths_s = np.diff(times[order])
    waits = np.cumsum(waiting[order])[:-1] > 0
    free = len(run.boards) - np.cumsum(busy[order])[:-1]
    return float((lengths_s * waits * free).sum() / (lengths_s.sum() * len(run.boards)))


def booking_row() -> Row:
    """Return how much of a lab stands idle because of bookings, and how late these start."""
    lab, policy = booked_lab(), policy_of("default")
    assert lab.lab is not None
    starts_s = {job.job_id: job.start_s or 0.0 for job in lab.lab.jobs}
    idle, late_s = [], []
    for seed in range(1, BOOKED_SEEDS + 1):
        plugins = registry(entry_points=False).resolve(policy)
        found = simulate_lab(lab, policy, plugins, seed=seed)
        idle.append(idle_share(found, starts_s))
        for name, start_s in zip(found.jobs.job.tolist(), found.jobs.start_s, strict=True):
            if name in starts_s:
                late_s.append(float(start_s) - starts_s[name])
    share, in_time = float(np.mean(idle)), float(np.mean(np.array(late_s) <= BOOKING_GRACE_S))
    holds = share <= MAX_IDLE_SHARE and in_time >= MIN_IN_TIME
    note = (
        f"of all board-seconds, {min(idle):.3f} to {max(idle):.3f}; {BOOKED_SEEDS} seeds; "
        f"{in_time:.1%} of {len(late_s)} bookings start within {BOOKING_GRACE_S:g} s; at most "
        f"{MAX_IDLE_SHARE:g} and at least {MIN_IN_TIME:.0%}: {'holds' if holds else 'MISSED'}"
    )
    return Row("idle by bookings 8", share, "share", note=note)


def completion_rows(boards: int) -> list[Row]:
    """Return the mean completion of both policies that Edgeyard brings against the least loaded."""
    return [
        row(
            f"completion {policy} {boards}",
            Lab(boards),
            policy,
            "least_loaded",
            at_most=MAX_COMPLETION,
        )
        for policy in ("default", "learned")
    ]


def random_rows(labs: Sequence[int] = range(1, LABS + 1)) -> list[Row]:
    """Return the rows of random small labs.

    Args:
        labs: Their numbers.
    """
    known = registry(entry_points=False)
    found = {}
    for name in ("default", "priority_age", *RULES):
        found[name] = simulate_labs(policy_of(name), known, labs)
        used_s = time.process_time()
        sys.stderr.write(f"random labs, {name}: {used_s:.0f} s of processor time so far\n")
    return random_comparisons(found)


def random_comparisons(found: Mapping[str, LabFigures]) -> list[Row]:
    """Return the rows of random labs from what each policy did in them."""
    ours, before = found["default"], found["priority_age"]
    labs = f"{len(ours.turnaround_s)} labs, {ours.completed.sum():,} benchmarks"
    rows = []
    for name in RULES:
        ratio, low, high = geometric_mean(ours.turnaround_s, found[name].turnaround_s)
        bound = _bound(
            f"at most {MAX_OF_RULE:g}, interval below 1", ratio <= MAX_OF_RULE and high < 1.0
        )
        means = float(ours.turnaround_s.mean()), float(found[name].turnaround_s.mean())
        note = f"{low:.3f} to {high:.3f}; geometric mean, default over {name}; {labs}; {bound}"
        rows.append(Row(f"random labs {name}", means[0], "s", means[1], ratio, note))
    best_s = np.min([found[name].turnaround_s for name in RULES], axis=0)
    worse = float(np.mean(ours.turnaround_s > 1.1 * best_s))
    bound = _bound(f"at most {MAX_WORSE_LABS:g}", worse <= MAX_WORSE_LABS)
    note = f"of {labs} above 1.1 times the best of {', '.join(RULES)}; {bound}"
    rows.append(Row("random labs above best", worse, "share", note=note))
    for name, first, second, max_ratio in (
        ("p99 wait", ours.p99_wait_s, before.p99_wait_s, MAX_P99_WAIT),
        ("long runs wait", ours.long_wait_s, before.long_wait_s, MAX_LONG_WAIT),
    ):
        ratio, low, high = ratio_interval(first.tolist(), second.tolist())
        mean, *_ = geometric_mean(first + FLOOR_S, second + FLOOR_S)
        bound = _bound(f"at most {max_ratio:g}", ratio <= max_ratio)
        note = (
            f"{low:.3f} to {high:.3f}; default over priority_age; {labs}; "
            f"geometric mean with {FLOOR_S:g} s added {mean:.3f}; {bound}"
        )
        means = float(first.mean()), float(second.mean())
        rows.append(Row(f"random labs {name}", means[0], "s", means[1], ratio, note))
    return rows


def _bound(words: str, holds: bool) -> str:
    return f"{words}: {'holds' if holds else 'MISSED'}"


def run() -> list[Row]:
    """All rows."""
    found = [each for boards in SIZES for each in completion_rows(boards)]
    ordered = sorted(found, key=lambda each: "learned" in each.name)
    return [*ordered, *small_rows(), booking_row(), *random_rows()]
