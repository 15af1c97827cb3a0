"""Random small labs: how much of what is known about run times a policy makes count.

Each lab is drawn from its number: one to four families of one to nine boards, boards of speeds 0.2
to 6, two to five kinds of benchmarks of 2 s to 20 min, a load of 0.15 to 0.9, and in a third of the
labs some benchmarks that ask for one board. Nothing of it is chosen by how a policy does there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.registry import Registry
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.simulator.comparison import outcomes_of
from edgeyard.simulator.lab.boards import Boards
from edgeyard.simulator.lab.jobs import draw_jobs
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.scenario import Arrivals, BoardGroup, JobKind, LabScenario, Scenario

Floats = NDArray[np.float64]

LABS = 200
JOBS = 60
"""Expected number of benchmarks of each lab."""

FAMILIES = ("rpi4b", "rpi5", "jetsonorinnano", "x86")
MAX_BOARDS, MAX_SPEEDS = 9, 3
"""Of a family; in each second lab all boards of a family are equally fast."""

SPEEDS = (0.2, 6.0)
RUNS_S = (2.0, 1200.0)
LOADS = (0.15, 0.9)
PINNED_LABS, PINNED_SHARES = 1.0 / 3.0, (0.05, 0.3)

FLOOR_S = 1.0
"""Added to waits of which ratios are taken: a wait of less than a cycle is none."""

_DRAWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LabFigures:
    """What a policy did in each lab; shape (labs,) each.

    Attributes:
        turnaround_s: Mean time from submission to end.
        p99_wait_s: 99th percentile of waiting.
        long_wait_s: Mean wait of the benchmarks of the longest kind that came.
        completed: Benchmarks that led to a result.
    """

    turnaround_s: Floats
    p99_wait_s: Floats
    long_wait_s: Floats
    completed: NDArray[np.int64]


def random_lab(number: int) -> Scenario:
    """Draw a lab.

    The load is that of the whole lab: the work that arrives over what all boards could do. Each
    benchmark asks for one family, so that there may be a queue for some while others stand idle.
    """
    random = stream(number, "random labs")
    names = FAMILIES[: int(random.integers(1, len(FAMILIES) + 1))]
    groups: list[BoardGroup] = []
    max_speeds = 1 if number % 2 else MAX_SPEEDS
    for family in names:
        count = int(random.integers(1, MAX_BOARDS + 1))
        parts = random.multinomial(count, np.full(max_speeds, 1.0 / max_speeds)).tolist()
        groups += [
            BoardGroup(family=family, count=part, speed=float(_log_uniform(random, SPEEDS)))
            for part in parts
            if part
        ]
    pinned = random.random() < PINNED_LABS
    pinned_share = float(random.uniform(*PINNED_SHARES)) if pinned else 0.0
    mix = tuple(
        JobKind(
            model=f"model{row}",
            share=float(random.uniform(0.2, 1.0)),
            run_s=float(_log_uniform(random, RUNS_S)),
            run_spread=float(random.uniform(0.05, 0.4)),
            families=_some(random, names),
            pinned_share=pinned_share,
        )
        for row in range(int(random.integers(2, 6)))
    )
    work_s = sum(kind.share * kind.run_s for kind in mix) / sum(kind.share for kind in mix)
    speed = sum(group.count * group.speed for group in groups)
    rate = float(random.uniform(*LOADS)) * speed / work_s
    return Scenario(
        name=f"random lab {number}",
        world="boards",
        duration_s=JOBS / rate,
        seed=number,
        lab=LabScenario(
            boards=tuple(groups),
            arrivals=Arrivals(rate_per_hour=3600.0 * rate, mix=mix),
            max_run_s=24 * 3600.0,
            history_jobs=5 * sum(group.count for group in groups),
        ),
    )


def _log_uniform(random: np.random.Generator, between: tuple[float, float]) -> float:
    return float(np.exp(random.uniform(*np.log(between))))


def _some(random: np.random.Generator, families: Sequence[str]) -> tuple[str, ...]:
    """Return one or more of the families."""
    count = int(random.integers(1, len(families) + 1))
    return tuple(sorted(random.permutation(families)[:count].tolist()))


def simulate_labs(policy: Policy, known: Registry, labs: Sequence[int]) -> LabFigures:
    """Simulate labs under a policy; all policies meet the same arrivals and run times."""
    found = [_figures(random_lab(number), policy, known) for number in labs]
    turnarounds, waits, long_waits, completed = zip(*found, strict=True)
    return LabFigures(
        turnaround_s=np.array(turnarounds),
        p99_wait_s=np.array(waits),
        long_wait_s=np.array(long_waits),
        completed=np.array(completed, dtype=np.int64),
    )


def _figures(
    scenario: Scenario, policy: Policy, known: Registry
) -> tuple[float, float, float, int]:
    lab = scenario.lab
    assert lab is not None
    jobs = outcomes_of(simulate_lab(scenario, policy, known.resolve(policy)))
    waits_s, turnaround_s = jobs.start_s - jobs.submit_s, jobs.end_s - jobs.submit_s
    drawn = draw_jobs(scenario, lab, Boards(lab, scenario.seed), scenario.seed)
    max_run_s = max(job.description.run_s for job in drawn)
    long_ = np.array([job.description.run_s == max_run_s for job in drawn])
    return (
        float(turnaround_s.mean()),
        float(np.quantile(waits_s, 0.99)),
        float(waits_s[long_].mean()),
        int((jobs.status == "completed").sum()),
    )


def geometric_mean(ours: Floats, peer: Floats) -> tuple[float, float, float]:
    """Return the geometric mean of the labs' ratios, and its 95 % interval over drawn labs.

    Args:
        ours: A figure of each lab, above 0.
        peer: The same of the peer.
    """
    logs = np.log(ours / peer)
    drawn = np.random.default_rng(0).integers(0, len(logs), (_DRAWS, len(logs)))
    low, high = np.quantile(logs[drawn].mean(axis=1), [0.025, 0.975])
    return float(np.exp(logs.mean())), float(np.exp(low)), float(np.exp(high))
