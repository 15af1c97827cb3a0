"""Gangs in simulated labs: benchmarks that start in one cycle, each on a board of its own."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import pytest

from edgeyard.errors import InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.runs import CANCELLED, COMPLETED, EXPIRED, SimulatedRun
from edgeyard.simulator.scenario import (
    Arrivals,
    BoardGroup,
    JobKind,
    JobRow,
    LabScenario,
    PastFailure,
    Scenario,
    check_scenario,
)
from edgeyard.training.board_environment import BoardsEnv
from edgeyard.training.ste.lab import EpisodeLab
from tests.virtual_service.start import simulate_whole_service

MIXED = LabScenario(
    boards=(BoardGroup(family="rpi5", count=4), BoardGroup(family="jetson", count=2)),
    arrivals=Arrivals(
        rate_per_hour=40.0,
        mix=(
            JobKind(model="single", share=3.0, run_s=120.0, run_spread=0.3),
            JobKind(model="pair", run_s=200.0, run_spread=0.3, count=2),
            JobKind(model="trio", share=0.5, run_s=60.0, run_spread=0.3, count=3),
        ),
    ),
)


def scenario(lab: LabScenario, duration_s: float = 7200.0) -> Scenario:
    return Scenario(name="gangs", world="boards", duration_s=duration_s, lab=lab)


def stated(*jobs: JobRow, boards: int = 3) -> Scenario:
    return scenario(
        LabScenario(boards=(BoardGroup(family="rpi5", count=boards),), jobs=jobs), 600.0
    )


def job(job_id: str, **more: Any) -> JobRow:
    return JobRow(**{"job_id": job_id, "submit_s": 1.0, "run_s": 60.0, "family": "rpi5", **more})


def simulate(of: Scenario, depth: str, seed: int = 1) -> SimulatedRun:
    policy = load_policy("default")
    if depth == "service":
        return simulate_whole_service(of, policy, seed=seed)
    return simulate_lab(of, policy, registry(entry_points=False).resolve(policy), seed=seed)


def gangs_of(run: SimulatedRun) -> dict[str, list[int]]:
    """Rows of each gang that a mix made, by the name of its first benchmark."""
    found: dict[str, list[int]] = defaultdict(list)
    for row, name in enumerate(run.jobs.job.tolist()):
        found[name.partition("-")[0]].append(row)
    return {name: rows for name, rows in found.items() if len(rows) > 1}


@cache
def mixed(depth: str) -> SimulatedRun:
    return simulate(scenario(MIXED), depth)


@pytest.mark.parametrize("depth", ["decisions", pytest.param("service", marks=pytest.mark.slow)])
def test_a_gang_starts_in_one_cycle_on_boards_of_its_own(depth: str) -> None:
    run = mixed(depth)
    gangs = gangs_of(run)
    assert {len(rows) for rows in gangs.values()} == {2, 3}
    assert (run.jobs.status == COMPLETED).all()
    assert (run.jobs.attempts == 1).all()
    for rows in gangs.values():
        assert np.ptp(run.jobs.start_s[rows]) < 1.0
        assert len(set(run.jobs.board[rows].tolist())) == len(rows)
        assert len(set(run.jobs.end_s[rows].tolist())) == len(rows)  # run times are their own


@pytest.mark.slow
def test_both_depths_agree_on_the_waits_of_gangs() -> None:
    decisions, service = mixed("decisions"), mixed("service")
    assert service.jobs.job.tolist() == decisions.jobs.job.tolist()
    waits = [float(np.mean(run.jobs.start_s - run.jobs.submit_s)) for run in (decisions, service)]
    assert waits[0] > 5.0
    assert waits[1] == pytest.approx(waits[0], rel=0.1, abs=2.0)


@pytest.mark.parametrize("depth", ["decisions", "service"])
def test_one_of_a_gang_that_fails_is_tried_again_by_itself_on_another_board(depth: str) -> None:
    fault = PastFailure(category=FailureCategory.BOARD_FAULT, after_s=5.0)
    gang = [job("a", gang="g", failures=(fault,)), job("b", gang="g", run_s=500.0)]
    run = simulate(stated(*gang), depth)
    assert (run.jobs.status == COMPLETED).all()
    assert run.jobs.attempts.tolist() == [2, 1]
    assert len(set(run.occupancy.board.tolist())) == 3  # neither its own board nor the other's


@pytest.mark.parametrize("depth", ["decisions", "service"])
def test_a_gang_waits_for_as_many_boards_as_it_needs(depth: str) -> None:
    before = job("before", submit_s=0.0, run_s=100.0)
    gang = [job(name, gang="g") for name in "abc"]
    run = simulate(stated(before, *gang), depth)
    starts = dict(zip(run.jobs.job.tolist(), run.jobs.start_s.tolist(), strict=True))
    assert min(starts[name] for name in "abc") >= 100.0


@pytest.mark.parametrize("depth", ["decisions", "service"])
def test_who_cancels_one_of_a_gang_cancels_all(depth: str) -> None:
    gang = [job("a", gang="g", cancel_s=20.0), job("b", gang="g"), job("c", gang="g")]
    run = simulate(stated(*gang, job("other")), depth)
    status = dict(zip(run.jobs.job.tolist(), run.jobs.status.tolist(), strict=True))
    assert {status[name] for name in "abc"} == {CANCELLED}
    assert status["other"] == COMPLETED


@pytest.mark.parametrize("depth", ["decisions", "service"])
def test_a_gang_that_waits_too_long_expires_as_a_whole(depth: str) -> None:
    before = job("before", submit_s=0.0, run_s=500.0)
    gang = [job(name, gang="g", queue_timeout_s=50.0) for name in "abc"]
    run = simulate(stated(before, *gang), depth)
    status = dict(zip(run.jobs.job.tolist(), run.jobs.status.tolist(), strict=True))
    assert {status[name] for name in "abc"} == {EXPIRED}


def test_the_test_environment_starts_gangs_as_a_whole() -> None:
    lab = EpisodeLab(
        stated(*(job(name, gang="g") for name in "abc")), load_policy("default"), seed=1
    )
    assert lab.until_decision()
    waiting = [each for each in lab.state().jobs if each.status == "pending"]
    assert {(each.gang_id, each.gang_size) for each in waiting} == {("gang-g", 3)}


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (stated(*(job(name, gang="g") for name in "abcd")), "4 jobs, but 3 boards of rpi5"),
        (stated(job("a", gang="g"), job("b", gang="g"), boards=1), "but 1 board of .*no gang"),
        (
            scenario(
                LabScenario(
                    boards=(BoardGroup(family="rpi5", count=2),),
                    arrivals=Arrivals(rate_per_hour=9.0, mix=(JobKind(model="m", count=3),)),
                )
            ),
            "no family has 3 boards that can run 'm'",
        ),
    ],
)
def test_a_gang_that_can_never_start_is_refused(of: Scenario, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        simulate(of, "decisions")


@pytest.mark.parametrize(
    ("jobs", "key"),
    [
        ([job("a", gang="g")], r"lab\.jobs\[0\]\.gang: 'g' has 1 job "),
        ([job("a", gang="g"), job("b", gang="g", submit_s=2.0)], r"lab\.jobs\[1\]\.submit_s"),
        ([job("a", gang="g"), job("b", gang="g", deadline_s=99.0)], r"lab\.jobs\[1\]\.deadline_s"),
        (
            [job("a", gang="g"), job("b", gang="g", target_uid="rpi5-0001-0001")],
            r"lab\.jobs\[1\]\.target_uid",
        ),
        ([job(f"j{row}", gang="g") for row in range(65)], "2 to 64 jobs"),
    ],
)
def test_a_wrong_gang_names_its_field(jobs: list[JobRow], key: str) -> None:
    with pytest.raises(InvalidInput, match=key):
        check_scenario(stated(*jobs))


@pytest.mark.parametrize(
    ("kind", "key"),
    [({"count": 0}, "count"), ({"count": 65}, "count"), ({"count": 2, "pinned_share": 0.5}, "pin")],
)
def test_a_wrong_count_names_its_field(kind: dict[str, Any], key: str) -> None:
    mix = (JobKind(model="m", **kind),)
    lab = LabScenario(
        boards=(BoardGroup(family="rpi5", count=2),), arrivals=Arrivals(rate_per_hour=9.0, mix=mix)
    )
    with pytest.raises(InvalidInput, match=rf"lab\.arrivals\.mix\[0\]\.{key}"):
        check_scenario(scenario(lab))


def test_the_environment_of_boards_refuses_gangs() -> None:
    with pytest.raises(InvalidInput, match="has gangs"):
        BoardsEnv(known=registry(entry_points=False), scenario=scenario(MIXED))
