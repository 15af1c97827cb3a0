"""The experiments with the paper's agent: configuration, figures, documented tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks import a2c_actors
from benchmarks.a2c import (
    EXPERIMENTS,
    converged_at,
    experiments,
    learning_lines,
    markdown,
    run_variant,
    same_return,
    variant_settings,
)
from benchmarks.a2c_trace import window_of
from edgeyard.errors import InvalidInput
from edgeyard.training.a2c.judgement import mean_slowdown
from edgeyard.training.a2c.settings import NetworkKind
from edgeyard.training.a2c.trainer import Point

pytestmark = pytest.mark.slow  # all tests here take some ten seconds together

PAGE = Path(__file__).parents[2] / "docs/experiments/papers-agent.md"


def test_all_experiments_have_valid_settings_and_five_seeds() -> None:
    known = experiments()
    assert {"rates", "networks", "returns", "resources", "trace"} <= set(known)
    for name, experiment in known.items():
        assert len(experiment["seeds"]) >= 5 or name == "choice"
        for variant in experiment["variants"]:
            assert variant_settings({**experiment["all"], **variant}, 3).seed == 3
    returns = known["returns"]
    traced = [variant_settings({**returns["all"], **each}, 1) for each in returns["variants"]]
    assert [each.trace for each in traced] == [1.0, 1.0, 1.0, 0.97, 1.0]
    assert {each.mix.rate for each in traced} == {0.6}, "a return is no log"
    rates = [variant_settings(each, 1).mix.rate for each in known["rates"]["variants"]]
    assert rates == [0.6, 0.7, 0.8, 0.9]
    assert variant_settings({"label": "m", "n_steps": 0}, 1).n_steps == 0
    assert variant_settings({"label": "d", "network": "dense"}, 1).network is NetworkKind.DENSE
    with pytest.raises(InvalidInput, match="speed: is unknown"):
        variant_settings({"label": "x", "speed": 1}, 1)


def curve(
    values: Sequence[float], returns: Sequence[float] = (), cpu_s: float = 0.0
) -> list[Point]:
    """Generations of 8 episodes with these slowdowns and, if given, returns."""
    return [
        Point(
            episodes=8 * (at + 1), steps=0, updates=0, cpu_s=cpu_s * (at + 1),
            mean_return=returns[at] if len(returns) else 0.0, mean_slowdown=value, validation=None,
        )
        for at, value in enumerate(values)
    ]  # fmt: skip


def test_a_curve_has_converged_where_its_running_mean_stays_near_its_last_one() -> None:
    # with two generations of 10 among the last 20, the mean is 4.6, more than 10 % above 4
    settled = [10.0] * 10 + [4.0] * 40
    assert converged_at([curve(settled)]) == 8 * (10 + 19)
    falling = np.linspace(20.0, 4.0, 63).tolist()
    assert converged_at([curve(falling)]) is None
    assert converged_at([curve([5.0] * 12)]) == 8 * 12  # fewer than 20


def test_a_rule_that_learns_nothing_has_converged_from_the_beginning() -> None:
    drawn = np.random.default_rng(0).normal(6.0, 1.2, (200, 5, 63))
    found = [converged_at([curve(seed) for seed in seeds]) for seeds in drawn.tolist()]
    assert found.count(8 * 20) > 190


def test_the_same_return_is_one_that_all_variants_reach() -> None:
    late, early = [-10.0] * 20 + [-2.0] * 40, [-10.0] * 5 + [-1.0] * 55
    found = same_return(
        {
            "late": [curve([1.0] * 60, late, 2.0)] * 3,
            "early": [curve([1.0] * 60, early, 4.0), curve([1.0] * 60, early, 6.0)],
        }
    )
    assert found["return"] == pytest.approx(-2.0)
    late_found, early_found = found["variants"]["late"], found["variants"]["early"]
    assert late_found["episodes"] == {"mean": 8.0 * 40, "low": 8.0 * 40, "high": 8.0 * 40}
    assert late_found["cpu_s"]["mean"] == pytest.approx(2.0 * 40)
    # of the last 20, 2 may still be -10: (2 * -10 + 18 * -1) / 20 = -1.9
    assert early_found["episodes"]["mean"] == 8.0 * 23
    assert early_found["cpu_s"] == {
        "mean": pytest.approx(5.0 * 23), "low": 4.0 * 23, "high": 6.0 * 23
    }  # fmt: skip
    rows = learning_lines(
        {
            "variants": [
                {"label": "late", "converged_after_episodes": None},
                {"label": "early", "converged_after_episodes": 160},
            ],
            "same_return": found,
        }
    )
    assert rows[2] == "| late | not | 320 (320-320) | 80 (80-80) |"
    assert learning_lines({"variants": []}) == []


@pytest.mark.slow
def test_a_variant_is_trained_judged_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.a2c.ROOT", tmp_path)
    options = {"label": "quick", "network": "dense", "episodes": 8, "arrival_steps": 10}
    found, curves = run_variant("x", options, [1, 2])
    assert all(each["episodes"] >= 8 for each in found["runs"])
    assert [len(each) for each in curves] == [1, 1]
    assert found["learning_rates"] == {}
    policies = [row["policy"] for row in found["judged"]]
    assert policies == ["a2c", "sjf", "tetris", "random", "place", "hold"]
    again, _ = run_variant("x", options, [1, 2])
    assert again == found  # from the checkpoints, with their processor times
    agent, *rules = found["judged"]
    of_rules = {row["policy"]: f"{row['slowdown']['mean']:.2f}" for row in rules}
    (line,) = markdown({"variants": [found]}).splitlines()[2:]
    assert line.startswith(f"| quick | {agent['slowdown']['mean']:.2f} (")
    assert f"| {of_rules['hold']}, {of_rules['sjf']}, {of_rules['place']} |" in line


def test_a_sweep_takes_the_learning_rate_that_was_best_on_validation_sequences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.a2c.ROOT", tmp_path)
    options = {"label": "quick", "network": "dense", "episodes": 8, "arrival_steps": 10}
    found, _ = run_variant("x", options, [1], {"rates": [1e-9, 0.3], "episodes": 8})
    tried = found["learning_rates"]
    assert list(tried) == ["1e-09", "0.3"]
    best = min(tried, key=lambda each: tried[each])
    kept = tmp_path / "build/a2c/x/quick-1/checkpoint.npz"
    with np.load(kept) as file:
        assert json.loads(str(file["header"]))["settings"]["actor_rate"] == float(best)
    assert f"| {best} |" in markdown({"variants": [found]})


def test_documented_tables_are_the_committed_figures() -> None:
    for path in sorted(EXPERIMENTS.parent.glob("a2c_*.json")):
        found = json.loads(path.read_text("utf-8"))
        page = PAGE.read_text("utf-8")
        assert markdown(found) in page
        assert "\n".join(learning_lines(found)) in page
        assert found["date"] in page
        if "best_schedule" in found:
            best = found["best_schedule"]
            assert f"has a mean slowdown of {best['slowdown']:.2f};" in page
            assert f"no schedule is below {best['lower_bound']:.2f}" in page
        labels = [each["label"] for each in experiments()[found["experiment"]]["variants"]]
        assert [each["label"] for each in found["variants"]] == labels
        assert all(len(each["runs"]) == len(found["seeds"]) for each in found["variants"])


def test_jobs_of_a_window_keep_order_sizes_and_distances() -> None:
    # runs of 10 to 150 s become 1 to 15 steps, 24 of 240 processors 1 unit: the work of 61 jobs of
    # 15 steps and 1 unit is 915, which takes 915 / 13 = 70.4 steps of ten units at 1.3
    count = 61
    submit = np.arange(count, dtype=np.float64) * 100.0
    run = np.full(count, 150.0)
    procs = np.full(count, 24)
    found = window_of(submit, run, procs, 80)
    assert found is not None
    lengths, sizes = found
    at = np.flatnonzero(lengths)
    assert len(at) == count
    assert lengths[at].tolist() == [15] * count
    assert sizes[at, 0].tolist() == [1] * count
    assert at[0] == 1
    assert at[-1] == 1 + int(915 / 13 - 1)
    assert window_of(submit, run, procs, 60) is None  # the last job would come later
    assert window_of(submit, run / run, procs // 24, 80) is not None  # the longest is 15 steps
    runs = np.array([150.0, *[10.0] * (count - 1)])
    assert window_of(submit, runs, procs, 80) is None  # work of 75 is too little for 61 steps
    burst = window_of(np.zeros(count), run, procs, 80)
    assert burst is not None
    assert np.flatnonzero(burst[0]).tolist() == list(range(1, count + 1))


@pytest.mark.slow
@pytest.mark.parametrize("rate", a2c_actors.RATES)
def test_a_shipped_actor_gives_the_stated_slowdown_and_places_all_jobs(rate: float) -> None:
    actors = a2c_actors.header()["actors"]
    assert set(actors) == {f"{each:g}" for each in a2c_actors.RATES}
    stated = actors[f"{rate:g}"]
    judged = a2c_actors.judged(rate)
    agent = judged["a2c"]
    assert agent.unplaced.sum() == 0
    value = mean_slowdown(agent)
    assert value == pytest.approx(stated["slowdown"], abs=0.05)  # weights in half precision
    for rule in ("sjf", "tetris", "place"):
        assert value < mean_slowdown(judged[rule])
    assert a2c_actors.ACTORS.stat().st_size < 300_000
