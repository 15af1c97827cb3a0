"""Baselines in a simulated lab: none beats the optimum, and waiting for a faster board can pay."""

from __future__ import annotations

import numpy as np
import pytest

from edgeyard.errors import InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.baselines import BASELINES
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import (
    Arrivals,
    BoardGroup,
    JobKind,
    JobRow,
    LabScenario,
    Scenario,
)
from edgeyard.training.worlds.bounds import lower_bound
from tests.fakes.optimum import optimum_on_boards

SPEEDS = (4.0, 1.0)
JOBS = ((0.0, 400.0), (1.0, 100.0), (2.0, 900.0), (3.0, 50.0), (200.0, 300.0), (201.0, 80.0))


def simulated(lab: LabScenario, policy: str, seed: int = 1) -> SimulatedRun:
    scenario = Scenario(name="made", world="boards", duration_s=3600.0, lab=lab)
    found = load_policy(policy)
    plugins = registry(entry_points=False).resolve(found)
    return simulate_lab(scenario, found, plugins, seed=seed)


def boards(*speeds: float) -> tuple[BoardGroup, ...]:
    return tuple(BoardGroup(family="rpi4b", count=1, speed=speed) for speed in speeds)


IN_LABS = [name for name, each in BASELINES.items() if each.backfill == "none"]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_backfilling_is_refused_in_a_lab_where_it_makes_no_difference(policy: str) -> None:
    with pytest.raises(InvalidInput, match=f"--policy {policy}: .* makes no difference in a lab"):
        simulated(LabScenario(boards=boards(1.0), jobs=()), policy)


@pytest.mark.parametrize("policy", IN_LABS)
def test_no_baseline_beats_the_optimum(policy: str) -> None:
    jobs = tuple(
        JobRow(job_id=f"b-{row}", submit_s=at, run_s=run_s, family="rpi4b")
        for row, (at, run_s) in enumerate(JOBS)
    )
    run = simulated(LabScenario(boards=boards(*SPEEDS), jobs=jobs), policy)
    submit, work = np.array(JOBS).T
    run_s = work[:, None] / np.array(SPEEDS)
    optimum_s = optimum_on_boards(submit, run_s)
    assert len(run.schedule.end) == len(JOBS)
    assert optimum_s <= run.schedule.turnaround_s.mean() + 1e-6
    bound = lower_bound(submit, run_s.min(axis=1), np.full(len(JOBS), 0.5))
    assert bound.mean_turnaround_s <= optimum_s + 1e-6


def test_waiting_for_a_much_faster_board_pays() -> None:
    """Known run times; with MCT nobody takes a board that is thirty times slower."""
    lab = LabScenario(
        boards=boards(30.0, 1.0),
        arrivals=Arrivals(rate_per_hour=60.0, mix=(JobKind(model="m", run_s=900.0),)),
        history_jobs=60,
    )
    turnaround_s = {
        policy: simulated(lab, policy).schedule.turnaround_s.mean() for policy in ("fcfs", "mct")
    }
    assert turnaround_s["mct"] < 0.7 * turnaround_s["fcfs"]
