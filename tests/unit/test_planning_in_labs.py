"""What plans gain in simulated labs: for faster boards, quiet hosts and cheap hours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgeyard.errors import InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.policy import Planner, ScorerChoice, load_policy
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import (
    Arrivals,
    BoardGroup,
    JobKind,
    JobRow,
    LabScenario,
    Scenario,
    scenario_from_json,
    scenario_to_json,
)

MIX = (JobKind(model="a", run_s=300.0, run_spread=0.2), JobKind(model="b", run_s=900.0))
FROM_THREE_ON = (4.0,) * 3 + (1.0,) * 21


def simulated(
    boards: tuple[BoardGroup, ...],
    rate_per_hour: float,
    planner: Planner | None = Planner.EXPECTED_COST,
    quiet_s: float = 0.0,
    credit_s: float = 0.0,
    tariff: tuple[float, ...] = (),
) -> SimulatedRun:
    """Six hours of a lab that knows its kinds of runs."""
    lab = LabScenario(
        boards=boards,
        arrivals=Arrivals(rate_per_hour=rate_per_hour, mix=MIX),
        history_jobs=100,
        tariff=tariff,
    )
    policy = replace(load_policy("default"), planner=planner, quiet_s=quiet_s, min_hold_gain=0.05)
    if credit_s:
        cheapest = ScorerChoice(name="cheapest", weight=credit_s)
        policy = replace(policy, scorers=(*policy.scorers, cheapest))
    scenario = Scenario(name="made", world="boards", duration_s=6 * 3600.0, lab=lab)
    return simulate_lab(scenario, policy, registry(entry_points=False).resolve(policy), seed=1)


def turnaround_s(run: SimulatedRun) -> float:
    return float(run.schedule.turnaround_s.mean())


@pytest.mark.slow
def test_waiting_for_a_faster_board_ends_runs_sooner() -> None:
    boards = (
        BoardGroup(family="rpi4b", count=2, speed=4.0),
        BoardGroup(family="rpi4b", count=2),
    )
    with_plan, without = (
        simulated(boards, 24.0, planner) for planner in (Planner.EXPECTED_COST, None)
    )
    assert turnaround_s(with_plan) < 0.9 * turnaround_s(without)
    assert np.quantile(with_plan.schedule.turnaround_s, 0.95) < np.quantile(
        without.schedule.turnaround_s, 0.95
    )


@pytest.mark.slow
def test_boards_that_are_equally_fast_are_used_as_without_a_plan() -> None:
    boards = (BoardGroup(family="rpi4b", count=4),)
    with_plan, without = (
        simulated(boards, 20.0, planner) for planner in (Planner.EXPECTED_COST, None)
    )
    assert abs(turnaround_s(with_plan) / turnaround_s(without) - 1.0) < 0.02


def test_nobody_waits_for_ever_for_a_board_that_others_take_again_and_again() -> None:
    """While each run on the fast board is under way, the next one comes that names it."""
    fast, every_s = "rpi4b-0001-0001", 30.0
    first = [
        JobRow(
            job_id=f"first-{row}",
            submit_s=max(0.0, row - 1.0) * every_s,
            run_s=120.0,
            family="rpi4b",
            model="short",
            user_priority=8,
            target_uid=fast,
        )
        for row in range(100)
    ]
    long = JobRow(job_id="long", submit_s=1000.0, run_s=800.0, family="rpi4b", model="long")
    mix = tuple(JobKind(model=each.model, run_s=each.run_s) for each in (first[0], long))
    lab = LabScenario(
        boards=tuple(BoardGroup(family="rpi4b", count=1, speed=each) for each in (4.0, 1.0)),
        jobs=(*first, long),
        arrivals=Arrivals(rate_per_hour=0.001, mix=mix),  # for the history
        history_jobs=100,
    )
    scenario = Scenario(name="made", world="boards", duration_s=3000.0, lab=lab)
    policy = replace(load_policy("default"), planner=Planner.EXPECTED_COST, explore_share=0.0)
    run = simulate_lab(scenario, policy, registry(entry_points=False).resolve(policy), seed=1)
    row = run.jobs.job.tolist().index("long")
    wait_s = float(run.jobs.start_s[row] - run.jobs.submit_s[row])
    assert 0.0 < wait_s < 800.0, "the slow board is free, and takes 800 s"


@pytest.mark.slow
def test_quiet_hosts_make_runs_comparable() -> None:
    boards = (BoardGroup(family="rpi4b", count=12, per_host=4, disturbance=0.05),)
    without = simulated(boards, 10.0)
    quiet = simulated(boards, 10.0, quiet_s=900.0)
    share = "comparable_share"
    assert without.meta.figures[share] < 0.8
    assert quiet.meta.figures[share] > without.meta.figures[share] + 0.1
    assert turnaround_s(quiet) < 1.3 * turnaround_s(without)


@pytest.mark.slow
def test_cheap_hours_save_credits() -> None:
    boards = (BoardGroup(family="rpi4b", count=12),)
    without = simulated(boards, 8.0, credit_s=10.0, planner=None, tariff=FROM_THREE_ON)
    planned = simulated(boards, 8.0, credit_s=10.0, tariff=FROM_THREE_ON)
    assert planned.meta.figures["credits"] < 0.9 * without.meta.figures["credits"]


def test_a_tariff_needs_a_factor_for_each_hour() -> None:
    lab = LabScenario(
        boards=(BoardGroup(family="rpi4b", count=1),),
        arrivals=Arrivals(rate_per_hour=1.0, mix=MIX),
        tariff=(1.0, 2.0),
    )
    scenario = Scenario(name="made", world="boards", duration_s=3600.0, lab=lab)
    with pytest.raises(InvalidInput, match=r"lab\.tariff: has 2 numbers"):
        scenario_from_json(scenario_to_json(scenario))
