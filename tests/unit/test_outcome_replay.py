"""The gate ``replay``: recorded days under a candidate and without it."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import NOW, board
from edgeyard.scheduler.framework.policy import ScorerChoice, load_policy
from edgeyard.scheduler.model.registered_models import ModelKind
from edgeyard.scheduler.outcomes.learning import learn_outcomes
from edgeyard.scheduler.outcomes.replay import (
    MAX_REPLAYED_RUNS,
    MIN_REPLAYED_RUNS,
    REPLAY_DAYS,
    RecordedDays,
    paired_difference,
    recorded_days,
    replay_gate,
)
from edgeyard.scheduler.outcomes.rows import read_outcome_rows
from edgeyard.scheduler.store import SqlStore
from edgeyard.simulator.scenario import Scenario
from tests.builders.labs import lab_scenario
from tests.builders.outcomes import BASES, add_past, slowed_by_load
from tests.builders.registered import active_run_times

pytestmark = pytest.mark.slow  # all tests here take some ten seconds together

KNOWN = registry(entry_points=False)
UIDS = [f"rpi5-{number:04}-0001" for number in range(1, 5)]
LOADS = (0.9, 0.1, 0.5, 0.7)


def days_of_a_lab() -> Scenario:
    """One benchmark at a time, on boards that differ in the load of their hosts alone."""
    times = {uid: 60.0 * math.exp(1.5 * load) for uid, load in zip(UIDS, LOADS, strict=True)}
    return lab_scenario(
        boards=[
            {"family": "rpi5", "count": 1, "uids": [uid], "hosts": [f"host-{uid}"]} for uid in UIDS
        ],
        jobs=[
            {"submit_s": 600.0 * row, "run_s": 60.0, "board_run_s": times, "model": "m"}
            for row in range(MIN_REPLAYED_RUNS)
        ],
        loads=[
            {"host": f"host-{uid}", "cpu": load, "memory": 0.5}
            for uid, load in zip(UIDS, LOADS, strict=True)
        ],
        past=[{"target_uid": uid, "ended_s": 60.0, "run_s": 60.0, "model": "m"} for uid in UIDS],
    )


def days() -> RecordedDays:
    policy = replace(
        load_policy("learned"),
        scorers=(ScorerChoice(name="run_time_model", weight=1.0),),
        aggregator="expected_cost",
        evaluator=None,
    )
    return RecordedDays(scenario=days_of_a_lab(), policy=policy)


@pytest.mark.slow
def test_an_honest_model_passes_and_one_made_worse_fails() -> None:
    honest, worse = active_run_times(by_load=1.5), active_run_times(by_load=-1.5)
    passed = replay_gate(days(), KNOWN, [honest], [])
    assert passed.passed
    assert passed.figure is not None
    assert passed.high is not None
    assert passed.high < 0.0
    assert "against past runs alone, in 30 runs" in passed.sentence
    failed = replay_gate(days(), KNOWN, [worse], [honest])
    assert not failed.passed
    assert failed.low is not None
    assert failed.low > 0.0
    assert "against run_time/1" in failed.sentence


def test_the_same_model_makes_no_difference() -> None:
    model = active_run_times(by_load=1.5)
    gate = replay_gate(days(), KNOWN, [model], [model])
    assert (gate.passed, gate.figure, gate.low, gate.high) == (True, 0.0, 0.0, 0.0)


def test_without_enough_runs_the_gate_does_not_hold_and_says_so() -> None:
    gate = replay_gate(None, KNOWN, [], [])
    assert (gate.passed, gate.figure) == (False, None)
    assert "fewer than 30 runs of recorded days" in gate.sentence
    nobody = np.full(40, "")
    assert paired_difference(np.zeros(40), np.full(40, np.nan), nobody) is None


def test_one_users_many_runs_do_not_outvote_the_others() -> None:
    """Who submits hundreds of runs can't have a model pass that delays everybody else."""
    users = np.array([["ada", "ben", "cy"][row // 10 % 3] for row in range(30)] + ["dan"] * 270)
    later = np.where(users == "dan", -10.0, 100.0)
    order = np.random.default_rng(0).permutation(len(users))
    found = paired_difference(later[order], np.zeros(len(users)), users[order])
    assert found is not None
    assert found.mean == pytest.approx((3 * 100.0 - 10.0) / 4)
    assert found.low > 0.0


@pytest.fixture(name="store", scope="module")
def a_lab_that_load_slows(tmp_path_factory: pytest.TempPathFactory) -> SqlStore:
    store = SqlStore(f"sqlite:///{tmp_path_factory.mktemp('lab')}/edgeyard.db")
    add_past(store, 60, end=lambda run: (slowed_by_load(run)[0], None))
    return store


def test_the_newest_days_are_lived_as_they_were_recorded(store: SqlStore) -> None:
    """Bounded in days and runs; each run has its recorded time on the board that ran it."""
    rows = read_outcome_rows(store)
    found = recorded_days(store, rows)
    assert found is not None
    lab = found.scenario.lab
    assert lab is not None
    newest = rows.decided_s >= rows.decided_s.max() - REPLAY_DAYS * 86400.0
    assert found.runs == min(int(newest.sum()), MAX_REPLAYED_RUNS)
    run_s = dict(zip(rows.benchmarks.tolist(), rows.run_s.tolist(), strict=True))
    board_of = dict(zip(rows.benchmarks.tolist(), rows.boards.tolist(), strict=True))
    for job in lab.jobs:
        assert job.board_run_s[board_of[job.job_id]] == pytest.approx(run_s[job.job_id])
        assert len(job.board_run_s) == 8
        assert job.model in BASES
    assert lab.loads
    assert recorded_days(store, rows.only(np.arange(MIN_REPLAYED_RUNS - 1))) is None


def lab_with(tmp_path: Path) -> SqlStore:
    return SqlStore(f"sqlite:///{tmp_path}/edgeyard.db")


@pytest.mark.parametrize("run_s", [-5.0, 1.8e9])
def test_a_past_run_of_a_host_whose_clock_was_set_is_left_out(tmp_path: Path, run_s: float) -> None:
    """It would keep the gate from being measured for as long as it is among the newest."""
    store = lab_with(tmp_path)
    add_past(store, 80, end=lambda run: (run_s if run.number == 3 else 20.0, None))
    found = recorded_days(store, read_outcome_rows(store))
    assert found is not None
    lab = found.scenario.lab
    assert lab is not None
    assert lab.past
    assert all(each.run_s == 20.0 for each in lab.past)


def test_runs_that_no_board_can_run_any_more_are_left_out(tmp_path: Path) -> None:
    """A board that lost an engine keeps nothing else from being replayed."""
    store = lab_with(tmp_path)
    runs = add_past(store, 2, boards=1, family="rpi5")
    changed = board("rpi5-0001-0001", engines={"tflite": ("TYPE1",)})
    add_past(store, 10, begin=NOW + timedelta(hours=2), first=runs, idle=(changed,))
    found = recorded_days(store, read_outcome_rows(store))
    assert found is not None
    lab = found.scenario.lab
    assert lab is not None
    assert {each.family for each in lab.jobs} == {"rpi4b"}
    gate = replay_gate(found, KNOWN, [], [])
    assert gate.figure == 0.0, gate.sentence


def test_days_are_lived_by_their_time_where_a_clock_was_set_back(tmp_path: Path) -> None:
    store = lab_with(tmp_path)
    runs = add_past(store, 5, begin=NOW + timedelta(hours=30))
    add_past(store, 5, first=runs)
    found = recorded_days(store, read_outcome_rows(store))
    assert found is not None
    lab = found.scenario.lab
    assert lab is not None
    assert max(each.submit_s for each in lab.jobs) == 34 * 3600.0


@pytest.mark.slow
def test_a_training_measures_the_gate_of_an_honest_model(store: SqlStore) -> None:
    said: list[str] = []
    (found,) = learn_outcomes(
        store,
        read_outcome_rows(store),
        NOW,
        kinds=[ModelKind.RUN_TIME],
        registry=KNOWN,
        report=said.append,
    )
    assert found.registered is not None, found.refusal
    (gate,) = [each for each in found.registered.gates if each.name == "replay"]
    assert gate.passed, gate.sentence
    assert gate.high is not None
    assert "mean completion" in gate.sentence
    assert "run_time: replaying recorded days" in said
    assert f"| replay | yes | {gate.sentence} |" in found.registered.card
