"""Scenarios that are fitted to the history of a lab whose parameters are known."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.simulator import runs
from edgeyard.simulator.fitting.arrivals import batches, fit_week, hour_of_week
from edgeyard.simulator.fitting.estimates import beta_strength, rate_interval, share_interval
from edgeyard.simulator.fitting.run_times import fit_run_times
from edgeyard.simulator.fitting.scenario import FittedScenario, before, fit_scenario
from edgeyard.simulator.importers.history import read_history
from edgeyard.simulator.lab.boards import Boards
from edgeyard.simulator.lab.jobs import draw_attempt, draw_jobs
from edgeyard.simulator.scenario import (
    Scenario,
    scenario_from_json,
    scenario_from_toml,
    scenario_to_json,
    scenario_to_toml,
)
from tests.builders.cli import printed, run
from tests.builders.history import at, benchmark, board, load, outcome, write_export
from tests.builders.labs import lab_scenario, simulate
from tests.builders.simulated_history import write_simulated_history

MONDAY = datetime(2026, 5, 4, tzinfo=UTC)
DAY_S = 86400.0
OFFICE = [3.0 if day < 5 and 8 <= hour < 18 else 0.3 for day in range(7) for hour in range(24)]
WEEK = [factor / (sum(OFFICE) / 168) for factor in OFFICE]
UIDS = [f"rpi5-0001-{number:04d}" for number in range(1, 7)]
SLOW, FAULTY = UIDS[0], UIDS[1]
KNOWN = lab_scenario(
    boards=[
        {
            "family": "rpi5",
            "count": len(UIDS),
            "uids": UIDS,
            "loading_s": 8.0,
            "loading_spread": 0.2,
            "overhead_s": 3.0,
            "overhead_spread": 0.3,
            "task_rates": {FAULTY: 0.3},
        },
        {"family": "rpi4b", "count": 2},
    ],
    duration_s=14 * DAY_S,
    faults={"task_rate": 0.02, "model_rate": 0.05},
    arrivals={
        "process": "weekly",
        "week": WEEK,
        "rate_per_hour": 5.0,
        "batch_size": 2.0,
        "users": [{"name": "ada", "weight": 3.0}, {"name": "grace"}],
        "mix": [
            {
                "model": "squeezenet",
                "share": 3.0,
                "run_s": 60.0,
                "run_spread": 0.2,
                "families": ["rpi5"],
                "board_run_s": {SLOW: 120.0},
            },
            {
                "model": "resnet50",
                "run_s": 300.0,
                "run_spread": 0.4,
                "families": ["rpi5"],
                "benchmark_type": "TYPE2",
                "pinned_share": 0.25,
                "deadline_s": 86400.0,
                "deadline_share": 0.5,
                "board_run_s": {SLOW: 600.0},
            },
            {"model": "tiny", "share": 1.0, "run_s": 20.0, "families": ["rpi4b"]},
        ],
    },
    outages=[
        {
            "what": "board",
            "name": UIDS[2 + number % 4],
            "from_s": day * DAY_S,
            "to_s": day * DAY_S + 3600,
        }
        for number, day in enumerate(range(1, 14))
    ],
)


@cache
def recorded() -> Path:
    run = simulate(KNOWN, seed=5)
    return write_simulated_history(Path(mkdtemp()) / "export", KNOWN, run, MONDAY)


@cache
def fitted() -> FittedScenario:
    return fit_scenario(read_history(recorded()))


def within(name: str, truth: float) -> None:
    (found,) = [each for each in fitted().estimates if each.name == name]
    assert found.low <= truth <= found.high, found
    assert found.low <= found.value <= found.high


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "truth"),
    [
        ("rate_per_hour", 5.0),
        (
            "run_s of squeezenet (ort, TYPE1, rpi5)",
            60.0 * 2 ** (1 / 6),
        ),  # one of 6 takes twice as long
        ("run_s of tiny (ort, TYPE1, rpi4b)", 20.0),
        ("loading_s of rpi5", 8.0),
        ("overhead_s of rpi5", 3.0),
        ("model_rate", 0.05),
        ("board_mean_between_s", 14 * DAY_S * 8 / 13),
        ("board_mean_repair_s", 3600.0),
    ],
)
def test_known_parameters_are_within_the_stated_intervals(name: str, truth: float) -> None:
    within(name, truth)


@pytest.mark.slow
def test_boards_have_their_own_run_times_and_rates_of_faults() -> None:
    lab = fitted().scenario.lab
    assert lab is not None
    assert lab.arrivals is not None
    kinds = {kind.model: kind for kind in lab.arrivals.mix}
    assert kinds["squeezenet"].board_run_s[SLOW] == pytest.approx(120.0, rel=0.15)
    assert kinds["resnet50"].board_run_s[SLOW] == pytest.approx(600.0, rel=0.15)
    assert kinds["squeezenet"].run_spread == pytest.approx(0.2, rel=0.15)
    assert kinds["resnet50"].run_spread == pytest.approx(0.4, rel=0.15)
    (group,) = [each for each in lab.boards if each.family == "rpi5"]
    assert max(group.task_rates, key=lambda uid: group.task_rates[uid]) == FAULTY
    assert group.task_rates[FAULTY] == pytest.approx(0.3, rel=0.4)
    assert group.loading_spread == pytest.approx(0.2, rel=0.2)
    assert {each.loading_s for each in lab.boards if each.family == "rpi4b"} == {0.0}


@pytest.mark.slow
def test_the_mix_is_recovered() -> None:
    lab = fitted().scenario.lab
    assert lab is not None
    assert lab.arrivals is not None
    kinds = {kind.model: kind for kind in lab.arrivals.mix}
    total = sum(kind.share for kind in lab.arrivals.mix)
    assert kinds["squeezenet"].share / total == pytest.approx(0.6, abs=0.06)
    resnet = kinds["resnet50"]
    assert resnet.pinned_share == pytest.approx(0.25, abs=0.1)
    assert resnet.deadline_s == pytest.approx(86400.0)
    assert resnet.deadline_share == pytest.approx(0.5, abs=0.12)
    assert (resnet.benchmark_type, resnet.families) == ("TYPE2", ("rpi5",))
    weights = {user.name: user.weight for user in lab.arrivals.users}
    assert weights["ada"] / sum(weights.values()) == pytest.approx(0.75, abs=0.06)


@pytest.mark.slow
def test_the_hours_of_the_week_are_recovered() -> None:
    lab = fitted().scenario.lab
    assert lab is not None
    assert lab.arrivals is not None
    found, truth = np.array(lab.arrivals.week), np.array(WEEK)
    assert found.mean() == pytest.approx(1.0, abs=0.01)
    assert np.corrcoef(found, truth)[0, 1] > 0.9
    weekend = np.arange(168) >= 120
    night = truth < 1
    assert found[night & ~weekend].mean() == pytest.approx(truth[night].mean(), abs=0.15)


@pytest.mark.slow
def test_a_fitted_file_states_intervals_and_can_be_simulated() -> None:
    text = fitted().to_toml()
    assert "# Fitted values with 95 % intervals" in text
    assert "#   rate_per_hour = " in text
    assert scenario_from_toml(text) == fitted().scenario
    scenario = scenario_from_json({**scenario_to_json(fitted().scenario), "duration_s": 86400.0})
    run = simulate(scenario)
    assert (run.jobs.status != runs.PENDING).all()


def test_a_kind_without_runs_is_wide_and_takes_the_family() -> None:
    rng = np.random.default_rng(1)
    log_s = np.log(60.0) + rng.normal(0.0, 0.1, 200)
    kind = np.zeros(200, dtype=np.int64)
    found = fit_run_times(kind, kind, log_s, np.array([0, 0]), 1)
    assert found.mean[1] == pytest.approx(math.log(60.0), abs=0.05)
    assert found.error[1] > 0.5 > 10 * found.error[0]
    assert found.spread[1] > 5 * found.spread[0]


def test_few_runs_are_shrunk_and_have_wide_intervals() -> None:
    rng = np.random.default_rng(2)
    of_kind = [200, 200, 2]
    kind = np.repeat(np.arange(3), of_kind)
    log_s = np.repeat([4.0, 4.1, 5.0], of_kind) + rng.normal(0.0, 0.3, 402)
    found = fit_run_times(
        kind, np.zeros(402, dtype=np.int64), log_s, np.zeros(3, dtype=np.int64), 1
    )
    assert 4.0 < found.mean[2] < log_s[kind == 2].mean()
    assert found.error[2] > 5 * found.error[0]


def test_chance_alone_makes_no_board_faulty() -> None:
    of = np.full(20, 100.0)
    assert math.isinf(beta_strength(np.full(20, 5.0), of))
    assert beta_strength(np.where(np.arange(20) == 0, 60.0, 2.0), of) < 20


def test_intervals_of_nothing_have_an_upper_bound() -> None:
    assert rate_interval(0, 10.0) == pytest.approx((0.0, 0.3689), abs=1e-3)
    assert share_interval(0, 10) == pytest.approx((0.0, 0.3085), abs=1e-3)


def test_a_steady_week_stays_steady() -> None:
    times_s = np.sort(np.random.default_rng(3).uniform(0.0, 14 * DAY_S, 2000))
    week = fit_week(times_s, 30.0, 14 * DAY_S)
    assert week.per_hour == pytest.approx(2000 / (14 * 24), rel=0.01)
    assert np.abs(week.factors - 1.0).max() < 0.3
    assert week.hours == 168


def test_hours_that_were_never_observed_have_the_rate_of_their_hour_of_the_day() -> None:
    times_s = np.concatenate([np.linspace(day * DAY_S, day * DAY_S + 3599, 100) for day in (0, 1)])
    week = fit_week(times_s, 0.0, 2 * DAY_S)
    assert week.hours == 48
    assert week.factors[24 * 5] == pytest.approx(week.factors[0], rel=0.1)
    assert week.factors[0] > 10 * week.factors[24 * 5 + 3]


def test_monday_is_the_beginning_of_the_week() -> None:
    assert hour_of_week(MONDAY) == 0.0
    assert hour_of_week(datetime(2026, 5, 10, 23, tzinfo=UTC)) == 167.0


def test_batches_are_of_one_user() -> None:
    found = batches(np.array([0.0, 1.0, 1.5, 2.5, 9.0]), np.array([0, 0, 1, 0, 0]), 2.0)
    assert found.tolist() == [0, 0, 1, 0, 2]


@pytest.mark.slow
def test_intervals_of_arrivals_contain_the_truth_as_often_as_they_state(tmp_path: Path) -> None:
    """20 labs of 10 days: intervals of 95 % contain the rate and the mean batch about 19 times."""
    truth = {"rate_per_hour": 1.5, "batch_size": 2.0}
    hits = dict.fromkeys(truth, 0)
    for seed in range(20):
        scenario = week(rate_per_hour=1.5, batch_size=2.0)
        scenario = scenario_from_json({**scenario_to_json(scenario), "duration_s": 10 * DAY_S})
        assert scenario.lab is not None
        jobs = draw_jobs(scenario, scenario.lab, Boards(scenario.lab, seed), seed)
        folder = write_export(
            tmp_path / str(seed),
            [benchmark(job.job_id, job.submit_s) for job in jobs],
            [outcome(job.job_id, job.submit_s, job.submit_s + 60) for job in jobs],
        )
        found = {each.name: each for each in fit_scenario(read_history(folder)).estimates}
        for name, value in truth.items():
            hits[name] += found[name].low <= value <= found[name].high
    assert min(hits.values()) >= 17, hits


def short(
    count: int = 30, spacing_s: float = 600.0, **asked: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    names = [f"b{row}" for row in range(count)]
    submitted = [benchmark(name, row * spacing_s, **asked) for row, name in enumerate(names)]
    ended = [
        outcome(name, row * spacing_s + 5, row * spacing_s + 65) for row, name in enumerate(names)
    ]
    return submitted, ended


@pytest.mark.parametrize(
    ("count", "spacing_s", "message"),
    [
        (3, 600.0, "3 runs with a result, which is too few to fit a scenario"),
        (30, 1.0, "minutes long, too short to fit arrivals"),
        (30, 60 * DAY_S, "did a clock jump?"),
    ],
)
def test_short_histories_and_jumps_of_clocks_are_refused(
    tmp_path: Path, count: int, spacing_s: float, message: str
) -> None:
    folder = write_export(tmp_path / "export", *short(count, spacing_s))
    with pytest.raises(InvalidInput, match="--since") as error:
        fit_scenario(read_history(folder))
    assert message in str(error.value)


def test_impossible_attempts_are_left_out_and_counted(tmp_path: Path) -> None:
    submitted, ended = short(40)
    ended[0]["run_s"] = math.nan
    ended[1]["run_s"] = -5.0
    ended[2]["run_s"] = 1e9
    ended[3]["ended_at"] = at(-1e6)
    folder = write_export(tmp_path / "export", submitted, ended)
    found = fit_scenario(read_history(folder))
    assert "4 attempt(s) with impossible times were left out." in found.comments
    lab = found.scenario.lab
    assert lab is not None
    assert lab.arrivals is not None
    (kind,) = lab.arrivals.mix
    assert kind.run_s == pytest.approx(60.0, rel=0.01)


def test_rare_models_are_one_kind_and_gangs_arrive_once(tmp_path: Path) -> None:
    submitted, ended = short(30)
    more = [benchmark(f"r{row}", 100.0 + row, model=f"rare{row}.onnx") for row in range(3)]
    gang = [benchmark(f"g{row}", 200.0, count=2, campaign_id="c1") for row in range(2)]
    boards = [board("rpi5-0001-0001"), board("rpi5-0001-0002")]
    folder = write_export(tmp_path / "export", [*submitted, *more, *gang], ended, boards)
    lab = fit_scenario(read_history(folder)).scenario.lab
    assert lab is not None
    assert lab.arrivals is not None
    kinds = {(kind.model, kind.count): kind.share for kind in lab.arrivals.mix}
    assert kinds == {("m.onnx", 1): 30.0, ("other-models", 1): 3.0, ("m.onnx", 2): 1.0}


def test_failures_count_by_cause_unless_an_outage_or_a_decision_explains_them(
    tmp_path: Path,
) -> None:
    submitted, ended = short(40)
    for row, category in ((1, "thermal"), (2, "preempted"), (3, "user_model")):
        ended[row]["failure_category"] = category
    ended[10]["failure_category"] = "board_fault"  # just as its board fails, below
    boards = [
        board("rpi5-0001-0001"),
        board("rpi5-0001-0001", 6060.0, healthy=False),
        board("rpi5-0001-0001", 6360.0),
    ]
    lab = fit_scenario(
        read_history(write_export(tmp_path / "export", submitted, ended, boards))
    ).scenario.lab
    assert lab is not None
    assert lab.faults.task_causes == {"thermal": 1.0}
    assert lab.faults.model_causes == {"user_model": 1.0}
    assert lab.faults.task_rate == pytest.approx(1 / 37)
    assert lab.faults.model_rate == pytest.approx(1 / 37)
    assert lab.faults.board_mean_repair_s == pytest.approx(300.0)


def test_hostile_names_do_not_leave_the_comments(tmp_path: Path) -> None:
    submitted, ended = short(30, model='m"\n[lab]\nx = 1\x1b[2J.onnx')
    folder = write_export(tmp_path / "export", submitted, ended)
    found = fit_scenario(read_history(folder))
    assert scenario_from_toml(found.to_toml()) == found.scenario
    assert "\x1b" not in found.to_toml()


def test_boards_that_left_are_not_there(tmp_path: Path) -> None:
    boards = [
        board("rpi5-0001-0001"),
        board("rpi5-0001-0002"),
        board("rpi5-0001-0002", 100.0, known=False),
    ]
    folder = write_export(tmp_path / "export", *short(), boards)
    found = fit_scenario(read_history(folder))
    assert found.scenario.lab is not None
    assert [group.uids for group in found.scenario.lab.boards] == [("rpi5-0001-0001",)]
    gone = write_export(tmp_path / "gone", *short(), [board("rpi5-0001-0001", known=False)])
    with pytest.raises(InvalidInput, match="no board is left"):
        fit_scenario(read_history(gone))


def test_what_models_read_is_fitted(tmp_path: Path) -> None:
    """The usual size of a kind's model, cores, and the mean load of a host that reports one."""
    submitted, ended = short(30)
    for row, each in enumerate(submitted):
        each["model_bytes"] = 9_000 if row < 5 else 5_000
    boards = [board("rpi5-0001-0001", cpu_cores=4.0, max_run_s=5000.0)]
    last_s = (max(each["ended_at"] for each in ended) - at(0.0)).total_seconds()
    loads = [
        load("h1", 0.0, 0.2, 0.5),
        load("h1", last_s / 2 + 1.0, None, None, after_s=last_s / 2 - 1.0),
        load("h1", last_s * 0.75, 0.8, 0.5, after_s=last_s * 0.75),
    ]
    folder = write_export(tmp_path / "export", submitted, ended, boards, loads=loads)
    lab = fit_scenario(read_history(folder)).scenario.lab
    assert lab is not None
    assert lab.arrivals is not None
    assert [kind.model_bytes for kind in lab.arrivals.mix] == [5_000]
    assert ([group.cpu_cores for group in lab.boards], lab.max_run_s) == ([4.0], 5000.0)
    (mean,) = lab.loads  # for two thirds of the time 0.2, for one third 0.8
    assert (mean.host, mean.at_s, mean.cpu, mean.memory) == ("h1", 0.0, 0.4, 0.5)


def test_only_what_was_known_before_a_time_is_fitted(tmp_path: Path) -> None:
    history = read_history(write_export(tmp_path / "export", *short()))
    kept = before(history, at(6000.0))
    assert [each["benchmark_id"] for each in kept.benchmarks] == [f"b{row}" for row in range(10)]
    assert max(its[-1]["ended_at"] for its in kept.attempts.values()) < at(6000.0)
    with pytest.raises(InvalidInput, match="before"):
        before(history, at(-1.0))


def test_causes_of_failures_are_drawn_by_their_weights() -> None:
    scenario = lab_scenario(
        faults={"task_rate": 0.5, "task_causes": {"thermal": 3.0, "upload": 1.0}},
        jobs=[{} for _ in range(400)],
    )
    assert scenario.lab is not None
    boards = Boards(scenario.lab, 1)
    drawn = [
        draw_attempt(job, boards.rows[0], 1, 3600.0, 1).failure
        for job in draw_jobs(scenario, scenario.lab, boards, 1)
    ]
    thermal, upload = (drawn.count(FailureCategory(each)) for each in ("thermal", "upload"))
    assert thermal + upload == pytest.approx(200, abs=40)
    assert thermal / (thermal + upload) == pytest.approx(0.75, abs=0.1)


def week(**changes: object) -> Scenario:
    arrivals = {
        "process": "weekly",
        "rate_per_hour": 1.0,
        "week": [1.0] * 168,
        "mix": [{"model": "m"}],
        **changes,
    }
    return lab_scenario(arrivals=arrivals)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"week": [1.0]}, "lab.arrivals.week"),
        ({"week": [0.0] * 168}, "no factor above 0"),
        ({"week": [-1.0] * 168}, "lab.arrivals.week"),
        ({"first_hour": 168.0}, "first_hour"),
        ({"batch_size": 0.5}, "batch_size"),
        ({"mix": [{"model": "m", "board_run_s": {"nothing": 1.0}}]}, "board_run_s"),
    ],
)
def test_wrong_fields_are_refused_by_name(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        week(**changes)
    assert message in str(error.value)
    assert scenario_from_toml(scenario_to_toml(week())) == week()


@pytest.mark.slow
def test_fit_writes_a_file_that_sim_run_takes(tmp_path: Path) -> None:
    folder = write_export(tmp_path / "export", *short())
    file = tmp_path / "lab.toml"
    words = ["sim", "fit", "--export", str(folder), "-o", str(file)]
    document = json.loads(printed(run(*words, "--json")))
    names = [each["name"] for each in document["estimates"]]
    assert names[:3] == ["rate_per_hour", "batch_size", "run_s of m.onnx (ort, TYPE1, rpi5)"]
    again = CliRunner().invoke(app, ["sim", "run", str(file), "--json"])
    assert again.exit_code == 0, again.output
    shown = CliRunner().invoke(app, words)
    assert "ESTIMATE" in shown.stdout


def test_fit_refuses_what_it_can_not_write_or_read(tmp_path: Path) -> None:
    folder = write_export(tmp_path / "export", *short(3))
    words = ["sim", "fit", "--export", str(folder)]
    json_file = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "lab.json")])
    assert (json_file.exit_code, "is not the name of a TOML file" in json_file.output) == (1, True)
    few = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "lab.toml")])
    assert few.exit_code == 1
    assert f"--export {folder}: 3 runs with a result" in " ".join(few.output.split())
    assert not (tmp_path / "lab.toml").exists()
