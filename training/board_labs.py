"""Draws small labs from which policies for boards learn.

Each has one or two families of boards that differ in speed and reliability, two to four kinds of
benchmarks, some with deadlines, and a load of 40 % to 120 % of the family that has the least boards
for its work. In some a group of boards joins half-way, or boards are drained for a while.
"""

from __future__ import annotations

import numpy as np

from edgeyard.simulator.scenario import (
    Arrivals,
    BoardGroup,
    Change,
    Faults,
    JobKind,
    LabScenario,
    Scenario,
)

_FAMILIES = ("rpi4b", "rpi5")
_LOADS = (0.4, 1.2)
_RUNS_S = (60.0, 900.0)
_SPEED_SPREAD = 0.6
"""Standard deviation of the logarithm of the speed of groups of boards."""
_MAX_RUN_S = 4 * 3600.0
"""Time limit of runs, above all run times, so that no run is ended by it."""
_HISTORY = 5
"""Earlier runs for each board."""


def draw_labs(seed: int, count: int, jobs: int) -> list[Scenario]:
    """Return labs that are different for each seed; the first ones are the same for any count.

    Args:
        seed: Of all draws.
        count: How many.
        jobs: Mean number of benchmarks in each.
    """
    return [
        _lab(np.random.default_rng([seed, row]), seed * 1000 + row, jobs) for row in range(count)
    ]


def _lab(rng: np.random.Generator, seed: int, jobs: int) -> Scenario:
    families = _FAMILIES[: int(rng.integers(1, 3))]
    groups = [_group(rng, family) for family in families for _ in range(int(rng.integers(2, 5)))]
    shares = rng.dirichlet(np.full(int(rng.integers(2, 5)), 2.0)) + 0.05
    low, high = np.log(_RUNS_S)
    runs_s = np.exp(rng.uniform(low, high, len(shares)))
    work_s = float((shares * runs_s).sum() / shares.sum())
    min_speed = min(
        sum(each.count * each.speed for each in groups if each.family == family)
        for family in families
    )
    rate = float(rng.uniform(*_LOADS)) * len(families) * min_speed / work_s
    duration_s = jobs / rate
    mix = tuple(
        JobKind(
            model=f"model{row}",
            share=float(share),
            run_s=float(run_s),
            run_spread=0.2,
            deadline_s=float(run_s * rng.uniform(2.0, 6.0)),
            deadline_share=float(rng.choice([0.0, 0.3, 0.6])),
        )
        for row, (share, run_s) in enumerate(zip(shares, runs_s, strict=True))
    )
    return Scenario(
        name=f"lab {seed}",
        world="boards",
        seed=seed,
        duration_s=duration_s,
        lab=LabScenario(
            boards=tuple(groups),
            arrivals=Arrivals(rate_per_hour=rate * 3600.0, mix=mix),
            changes=_changes(rng, families[0], duration_s),
            max_run_s=_MAX_RUN_S,
            history_jobs=_HISTORY * sum(each.count for each in groups),
        ),
    )


def _group(rng: np.random.Generator, family: str) -> BoardGroup:
    return BoardGroup(
        family=family,
        count=int(rng.integers(1, 4)),
        per_host=2,
        speed=float(np.exp(rng.normal(0.0, _SPEED_SPREAD))),
        speed_spread=0.05,
        faults=Faults(task_rate=float(rng.choice([0.0, 0.02, 0.2], p=[0.6, 0.25, 0.15]))),
    )


def _changes(rng: np.random.Generator, family: str, duration_s: float) -> tuple[Change, ...]:
    half_s = duration_s / 2.0
    match int(rng.integers(4)):
        case 0:
            return (Change(at_s=half_s, what="boards_join", group=_group(rng, family)),)
        case 1:
            uid = f"{family}-0001-0001"
            return (
                Change(at_s=half_s / 2.0, what="drain", target_uid=uid),
                Change(at_s=half_s, what="resume", target_uid=uid),
            )
        case _:
            return ()
