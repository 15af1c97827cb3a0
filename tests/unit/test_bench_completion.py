"""The records of jobs on a real Nomad: what is read from them, and what is submitted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.completion import scenario as scenarios
from benchmarks.completion.recorder import due, policy_text
from benchmarks.completion.records import (
    Job,
    Record,
    Run,
    compare,
    completion_s,
    path_of,
    queueing_s,
    read_record,
    write_record,
)
from benchmarks.completion.rows import row, rows, rows_of
from benchmarks.completion.scenario import LEARNED, NATIVE, SCENARIOS, TRAINED, Scenario
from benchmarks.completion.simulated import scenario as simulated
from edgeyard.devices.inventory import with_shared_cores
from edgeyard.devices.model import BoardEngine
from edgeyard.scheduler.framework.policy import load_policy, parse_policy

ABOUT = {"boards": "8 emulated boards"}


def job(submitted_s: float, wait_s: float, run_s: float, status: str = "completed") -> Job:
    started_s = submitted_s + wait_s
    board = "emuany-0001-0001"
    ended_s = started_s + run_s
    return Job("squeezenet", "emuany", board, submitted_s, started_s, ended_s, status, 1)


def run(block: int, arm: str, jobs: Sequence[Job]) -> Run:
    return Run(block, arm, "2026-11-27T21:00:00+00:00", 1.5, "", (), tuple(jobs))


def record() -> Record:
    """Completion 10 and 14 s under the peer, 5 and 9 s under ours; a third block has one run."""
    return Record(
        ABOUT,
        (
            run(0, "native", [job(0.0, 500.0, 500.0)]),
            run(1, "native", [job(0.0, 4.0, 4.0), job(1.0, 6.0, 6.0)]),
            run(1, "learned", [job(0.5, 1.0, 3.0), job(1.0, 2.0, 4.0)]),
            run(2, "learned", [job(0.0, 3.0, 6.0)]),
            run(2, "native", [job(0.0, 5.0, 9.0)]),
            run(3, "learned", [job(0.0, 100.0, 100.0)]),
        ),
    )


def test_arms_are_compared_over_the_blocks_that_have_a_run_of_each() -> None:
    completion = compare(record(), "learned", completion_s)
    assert (completion.blocks, completion.ours, completion.peer) == (2, 7.0, 12.0)
    assert completion.ratio[0] == pytest.approx(7.0 / 12.0)
    assert completion.block_ratio[0] == pytest.approx((0.5 * 9.0 / 14.0) ** 0.5)
    # Both differences are -5 s, so that the interval is that number.
    assert completion.difference == pytest.approx((-5.0, -5.0, -5.0))
    queueing = compare(record(), "learned", queueing_s)
    assert (queueing.ours, queueing.peer) == (2.25, 5.0)
    mean, low, high = queueing.difference  # of -3.5 and -2 s; t of one degree is 12.706
    assert (mean, high - low) == pytest.approx((-2.75, 2 * 12.706 * 0.75), rel=1e-3)


def test_one_block_has_no_interval() -> None:
    runs = [each for each in record().runs if each.block < 2]
    with pytest.raises(ValueError, match="1 blocks"):
        compare(Record(ABOUT, tuple(runs)), "learned", completion_s)


def test_a_record_reads_as_it_was_written_and_a_job_that_never_ran_waited_all_the_time(
    tmp_path: Path,
) -> None:
    never = replace(job(1.0, 0.0, 20.0, "cancelled"), board="", started_s=math.nan)
    path = tmp_path / "record.json"
    first = record()
    write_record(path, Record(ABOUT, (*first.runs, run(4, "native", [never]))))
    read = read_record(path)
    assert read.about == ABOUT
    assert read.runs[:-1] == first.runs
    (found,) = read.runs[-1].jobs
    assert math.isnan(found.started_s)
    assert queueing_s(found) == completion_s(found) == 20.0
    assert len(path.read_text().splitlines()) < 40


def test_the_row_names_the_emulation_and_the_jobs_that_were_not_completed() -> None:
    runs = list(record().runs)
    runs[4] = run(2, "native", [job(0.0, 5.0, 9.0, "failed")])
    found = row("completion", Record(ABOUT, tuple(runs)), "learned")
    assert (found.value, found.peer) == (7.0, 12.0)
    assert "8 emulated boards" in found.note
    assert "2 blocks, 6 jobs, 1 not completed" in found.note


def test_what_learning_adds_is_the_trained_arm_against_the_same_policy_without_models() -> None:
    arms = {"native": 8.0, "native affinity": 6.0, "default": 4.0, "default trained": 3.0}
    runs = [
        run(block, arm, [job(0.0, block, block * (run_s - 1.0))])
        for block in (1, 2)
        for arm, run_s in arms.items()
    ]
    found = {each.name: each for each in rows_of(SCENARIOS["high"], Record(ABOUT, tuple(runs)))}
    assert list(found) == [
        "completion 0.8 native affinity",
        "completion 0.8 default",
        "completion 0.8 default trained",
        "completion 0.8 learning",
    ]
    learning = found["completion 0.8 learning"]
    assert (learning.value, learning.peer) == (4.5, 6.0)
    assert "default trained over default" in learning.note


def names_of_rows(scenario: Scenario) -> list[str]:
    if len(scenario.arms) == 2:
        return [scenario.row]
    others = ("native affinity", "default", "default trained", "learning")
    return [f"{scenario.row} {each}" for each in others]


def test_the_committed_records_lead_to_the_rows() -> None:
    committed = [each for each in SCENARIOS.values() if path_of(each).is_file()]
    assert [each.name for each in rows()] == [
        name for scenario in committed for name in names_of_rows(scenario)
    ]
    for scenario in committed:
        for each in read_record(path_of(scenario)).runs:
            wanted = scenarios.submissions(scenario, each.block)
            assert [(one.model, one.family) for one in each.jobs] == [
                (one.kind.model, one.family) for one in wanted
            ]


def test_a_recording_goes_on_with_the_runs_that_are_missing() -> None:
    two = SCENARIOS["fixed"]
    everything = due(two, [], 2)
    history = [each for each in everything if each[0] < 1]
    assert {arm for _, arm in history} == {NATIVE}
    assert everything[len(history) :] == [(1, NATIVE), (1, LEARNED), (2, LEARNED), (2, NATIVE)]
    done = [run(block, arm.name, []) for block, arm in everything[:-2]]
    assert due(two, done, 2) == everything[-2:]


@pytest.mark.parametrize("name", ["low", "high", "families"])
def test_in_eight_blocks_each_arm_has_each_place_twice_and_none_always_follows_the_same(
    name: str,
) -> None:
    scenario = SCENARIOS[name]
    orders = [scenarios.order(scenario, block) for block in range(1, scenario.blocks + 1)]
    for place in range(len(scenario.arms)):
        assert all([each[place] for each in orders].count(arm) == 2 for arm in scenario.arms)
    for arm in scenario.arms:
        before = {each[each.index(arm) - 1].name for each in orders if each.index(arm) > 0}
        assert len(before) > 1


def test_the_trained_arm_is_the_default_policy_with_the_scorers_of_models() -> None:
    default, trained = load_policy("default"), parse_policy(policy_text(TRAINED))
    instead = {"fastest": "run_time_model", "reliable": "failure_model"}
    assert [each.name for each in trained.scorers] == [
        instead.get(each.name, each.name) for each in default.scorers
    ]
    assert replace(trained, name="default", scorers=default.scorers) == default
    assert policy_text(NATIVE) == ""


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda each: each.name)
def test_the_boards_share_no_cores_and_each_submission_has_boards(scenario: Scenario) -> None:
    hosts = scenarios.boards(scenario, [0, 1], BoardEngine("ort", "1", frozenset({"TYPE1"})))
    boards = with_shared_cores([board for host in hosts for board in host])
    assert len(hosts) >= 2
    assert len({board.target_uid for board in boards}) == 8
    assert not any(board.shares_with for board in boards)
    duty_cycles = [board.local.duty_cycle for board in boards if board.local is not None]
    assert sum(duty_cycles) < 1.2
    assert duty_cycles == [
        scenarios.speed_of(board.target_uid) * scenarios.FULL_DUTY_CYCLE for board in boards
    ]
    wanted = scenarios.submissions(scenario, 1)
    assert len(wanted) == scenario.jobs
    assert scenarios.submissions(scenario, 1) == wanted
    assert scenarios.submissions(scenario, 2) != wanted
    assert {each.family for each in wanted} <= {board.family for board in boards}


@pytest.mark.parametrize(("boards", "counts"), [(10, [4, 3, 3]), (100, [26, 37, 37])])
def test_a_simulated_lab_has_the_records_shares_of_speeds(boards: int, counts: list[int]) -> None:
    lab = simulated(SCENARIOS["fixed"], boards).lab
    assert lab is not None
    assert lab.arrivals is not None
    assert [group.count for group in lab.boards] == counts
    assert sum(each.share for each in lab.arrivals.mix) == pytest.approx(2.0)
