"""Fitted scenarios next to days of a lab with known parameters that they were not fitted to."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ks_2samp, norm
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.errors import InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.simulator.fitting.distances import Distance, distance
from edgeyard.simulator.fitting.validation import FIGURES, Validation, validate
from edgeyard.simulator.generators.labs import default_scenario
from edgeyard.simulator.importers.history import RecordedHistory, read_history
from edgeyard.simulator.scenario import BoardGroup
from tests.builders.cli import printed, run
from tests.builders.history import benchmark, board, outcome, write_export
from tests.builders.labs import lab_scenario, simulate
from tests.builders.simulated_history import write_simulated_history

pytestmark = pytest.mark.slow  # all tests here take some ten seconds together

MONDAY = datetime(2026, 5, 4, tzinfo=UTC)
DAY_S = 86400.0
WEEK = [1.25 if 8 <= hour < 20 else 0.75 for day in range(7) for hour in range(24)]
KNOWN = lab_scenario(
    boards=[{"family": "rpi5", "count": 3, "loading_s": 20.0, "loading_spread": 0.2}],
    duration_s=3 * DAY_S,
    faults={"task_rate": 0.02},
    arrivals={
        "process": "weekly",
        "week": WEEK,
        "rate_per_hour": 3.0,
        "batch_size": 2.0,
        "mix": [
            {"model": "squeezenet", "share": 3.0, "run_s": 2000.0, "run_spread": 0.2},
            {"model": "resnet50", "run_s": 4000.0, "run_spread": 0.4},
        ],
    },
)
"""Its boards are busy for 7 of 10 hours; in the default scenario for 1 of 10."""
LABS = range(3)
RUNS = 2


@cache
def recorded(seed: int) -> RecordedHistory:
    folder = Path(mkdtemp()) / "export"
    return read_history(
        write_simulated_history(folder, KNOWN, simulate(KNOWN, seed=100 + seed), MONDAY)
    )


def compared(
    history: RecordedHistory, days: int = 1, runs: int = RUNS, **options: Any
) -> Validation:
    policy = load_policy("default")
    plugins = registry(entry_points=False).resolve(policy)
    return validate(history, policy, plugins, days=days, runs=runs, **options)


@cache
def of_lab(seed: int) -> Validation:
    return compared(recorded(seed))


@pytest.mark.slow
def test_a_fitted_scenario_is_nearer_than_the_default_one() -> None:
    """In 3 labs of known parameters and with 3 figures: in 7 of 9 cases or more.

    A single day of a busy lab differs much from others: its waits may be nearer to no waits.
    """
    figures = [each for seed in LABS for each in of_lab(seed).figures]
    assert len(figures) == 9
    nearer = sum(each.fitted_distance.value < each.default_distance.value for each in figures)
    assert nearer >= 7, figures


@pytest.mark.slow
def test_the_days_that_are_compared_are_the_last_ones() -> None:
    found = of_lab(0)
    assert (found.until - found.since).total_seconds() == DAY_S
    assert found.began < found.since
    assert found.benchmarks < 2 * found.fitted_benchmarks < 4 * found.benchmarks
    assert [each.name for each in found.figures] == list(FIGURES)
    busy = found.figures[-1]
    assert busy.happened.count == 24
    assert busy.fitted.count == 24 * RUNS
    assert 0.0 <= busy.happened.quantiles[0] <= busy.happened.quantiles[-1] <= 1.0


@pytest.mark.slow
def test_the_compared_days_are_not_fitted() -> None:
    history, found = recorded(0), of_lab(0)
    failing = {
        name: [
            {**each, "failure_category": "thermal"} if each["placed_at"] >= found.since else each
            for each in its
        ]
        for name, its in history.attempts.items()
    }
    again = compared(replace(history, attempts=failing))
    assert [each.fitted for each in found.figures] == [each.fitted for each in again.figures]
    assert [each.default for each in found.figures] == [each.default for each in again.figures]


def ar(random: np.random.Generator, count: int, mean: float = 0.0) -> NDArray[np.float64]:
    """Values of a normal distribution, each of which depends on the one before."""
    found = np.empty(count)
    last = random.normal()
    for row in range(count):
        found[row] = last = 0.5 * last + math.sqrt(0.75) * random.normal()
    return found + mean


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 0.2, 1.0])
def test_intervals_contain_the_distance_as_often_as_they_state(shift: float) -> None:
    """30 times, neighbours depend on each other: intervals of 95 % contain it 27 times or more.

    Without a shift, what happened is from the scenario itself: it is within chance as often.
    """
    truth = 2.0 * norm.cdf(shift / 2.0) - 1.0
    hits = within = 0
    for seed in range(30):
        random = np.random.default_rng([7, seed])
        found = distance(ar(random, 400), [ar(random, 400, shift) for _ in range(20)], seed=seed)
        hits += found.low <= truth <= found.high
        within += found.is_within_chance
        assert found.low <= found.value <= found.high
    assert hits >= 27, hits
    if shift == 0.0:
        assert within >= 27, within
    if shift == 1.0:
        assert within == 0


def test_the_distance_is_that_of_kolmogorov_and_smirnov() -> None:
    random = np.random.default_rng(3)
    first = random.integers(0, 20, 150).astype(float)
    runs = [random.integers(0, 25, size).astype(float) for size in (80, 120)]
    found = distance(first, runs)
    assert found.value == pytest.approx(ks_2samp(first, np.concatenate(runs)).statistic)
    assert distance(np.zeros(3), [np.ones(2), np.ones(2)]).value == 1.0
    assert distance(np.ones(3), [np.ones(2), np.ones(9)]) == Distance(
        value=0.0, low=0.0, high=0.0, by_chance=0.0
    )


@pytest.mark.parametrize(
    ("happened", "simulated"),
    [([], [[1.0], [1.0]]), ([1.0], [[], []]), ([1.0], [[1.0], []])],
)
def test_without_values_there_is_no_distance(
    happened: list[float], simulated: list[list[float]]
) -> None:
    found = distance(np.array(happened), [np.array(each) for each in simulated])
    assert math.isnan(found.value)
    assert not found.is_within_chance


def test_the_default_scenario_runs_what_the_boards_offer() -> None:
    boards = BoardGroup(
        family="rk3588", count=1, uids=("rk3588-0001-0001",), hosts=("h",), loading_s=3.0
    )
    other = BoardGroup(family="rpi5", count=1, engines={"tflite": (BenchmarkType.TYPE1,)})
    lab = default_scenario([other], 4.0).lab
    assert lab is not None
    assert lab.arrivals is not None
    assert {kind.engine for kind in lab.arrivals.mix} == {"tflite"}
    assert lab.arrivals.rate_per_hour == 4.0
    kept = default_scenario([boards], 4.0).lab
    assert kept is not None
    assert kept.boards[0].uids == boards.uids
    assert kept.boards[0].loading_s == 0.0


def short(tmp_path: Path, count: int, spacing_s: float, **more: Any) -> Path:
    names = [f"b{row}" for row in range(count)]
    return write_export(
        tmp_path / "export",
        [
            benchmark(name, row * spacing_s, ended_s=row * spacing_s + 65)
            for row, name in enumerate(names)
        ],
        [
            outcome(name, row * spacing_s + 5, row * spacing_s + 65)
            for row, name in enumerate(names)
        ],
        **more,
    )


@pytest.mark.parametrize(
    ("count", "days", "pointer", "message"),
    [
        (60, 1, "--export", "the history has 0.4 days"),
        (
            200,
            5,
            "--days",
            "the last 5 days leave no time to fit the scenario to: the history has 1.4 days",
        ),
        (150, 1, "--export", "before the last 1 day: 6 runs with a result"),
    ],
)
def test_too_short_histories_are_refused_by_flag(
    tmp_path: Path, count: int, days: int, pointer: str, message: str
) -> None:
    spacing_s = {60: 600.0, 200: 600.0, 150: 604.0}[count]
    history = read_history(short(tmp_path, count, spacing_s), source="--export")
    with pytest.raises(InvalidInput) as error:
        compared(history, days)
    (found,) = error.value.errors
    assert found.pointer == pointer
    assert message in found.reason
    assert "--since" in found.accepted or "--days" in found.accepted


def test_days_in_which_little_happened_are_refused(tmp_path: Path) -> None:
    export = short(tmp_path, 60, 600.0, boards=[board("rpi5-0001-0001", at_s) for at_s in (0, 3e5)])
    with pytest.raises(InvalidInput, match="only 0 benchmarks in the last 1 day") as error:
        compared(read_history(export))
    assert error.value.errors[0].pointer == "--days"


def test_a_lab_of_one_board_is_compared_with_a_remark(tmp_path: Path) -> None:
    found = compared(read_history(short(tmp_path, 60, 3000.0)))
    assert any("one board" in each for each in found.comments)
    assert found.figures[0].happened.count == found.benchmarks


def test_boards_that_joined_later_are_named(tmp_path: Path) -> None:
    boards = [board("rpi5-0001-0001"), board("rpi5-0001-0002", 170_000.0)]
    found = compared(read_history(short(tmp_path, 60, 3000.0, boards=boards)))
    assert any("1 board joined the lab" in each for each in found.comments)


def test_what_had_not_ended_at_the_end_counts_with_the_time_until_then(tmp_path: Path) -> None:
    history = read_history(short(tmp_path, 60, 3000.0))
    until = history.benchmarks[56]["submit_time"]
    found = compared(history, until=until)
    assert found.until == until
    assert found.benchmarks == DAY_S // 3000.0
    assert found.figures[1].happened.quantiles[1] == pytest.approx(65.0)


def test_validate_prints_a_table_and_json(tmp_path: Path) -> None:
    words = ["sim", "validate", "--export", str(short(tmp_path, 60, 3000.0)), "--days", "1"]
    document = json.loads(printed(run(*words, "--runs", "2", "--json")))
    assert list(document["figures"]) == list(FIGURES)
    waits = document["figures"]["wait_s"]
    assert waits["happened"]["quantiles"]["0.5"] == 5.0
    assert set(waits["fitted"]["distance"]) == {
        "value",
        "low",
        "high",
        "by_chance",
        "within_chance",
    }
    shown = CliRunner().invoke(app, [*words, "--runs", "2"])
    assert "what happened" in shown.stdout
    assert "BY CHANCE" in shown.stdout
    assert "2 simulations of each" in shown.stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--days", "9"], "--days"),
        (["--policy", "nothing"], "--policy"),
        (["--since", "2026-05-01"], "--export"),
        (["--runs", "1"], "--runs"),
        (["--days", "0"], "--days"),
    ],
)
def test_wrong_flags_are_named(tmp_path: Path, more: list[str], message: str) -> None:
    export = str(short(tmp_path, 300, 600.0))
    found = CliRunner().invoke(app, ["sim", "validate", "--export", export, *more])
    assert found.exit_code in (1, 2)
    assert message in found.output


def test_a_lab_without_history_is_refused(tmp_path: Path) -> None:
    empty = write_export(tmp_path / "export", [], [])
    found = CliRunner().invoke(app, ["sim", "validate", "--export", str(empty)])
    assert found.exit_code == 1
    assert "no benchmark was submitted in the chosen time" in " ".join(found.output.split())
