"""The experiments with the paper's agent: configuration, figures, documented tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.a2c import (
    EXPERIMENTS,
    converged_at,
    experiments,
    markdown,
    run_variant,
    settings_of,
)
from edgeyard.scheduler.training.a2c.settings import NetworkKind
from edgeyard.scheduler.training.a2c.trainer import Point

PAGE = Path(__file__).parents[2] / "docs/models.md"


def test_all_experiments_have_valid_settings_and_five_seeds() -> None:
    known = experiments()
    assert {"rates", "networks", "returns", "resources"} <= set(known)
    for experiment in known.values():
        assert len(experiment["seeds"]) >= 5
        for variant in experiment["variants"]:
            assert settings_of({**experiment["all"], **variant}, 3).seed == 3
    rates = [settings_of(each, 1).mix.rate for each in known["rates"]["variants"]]
    assert rates == [0.6, 0.7, 0.8, 0.9]
    assert settings_of({"label": "m", "n_steps": 0}, 1).n_steps is None
    assert settings_of({"label": "d", "network": "dense"}, 1).network is NetworkKind.DENSE
    with pytest.raises(TypeError, match="speed"):
        settings_of({"label": "x", "speed": 1}, 1)


def curve(values: list[float]) -> list[Point]:
    return [
        Point(
            episodes=8 * (at + 1), steps=0, updates=0, cpu_s=0.0, mean_return=0.0,
            mean_slowdown=value, validation=None,
        )
        for at, value in enumerate(values)
    ]  # fmt: skip


def test_a_curve_has_converged_where_it_stays_near_its_lowest_values() -> None:
    # the mean of five generations is 4 from the 15th on; it is below 4.2 from the 15th on, too,
    # because one generation of 10 among five lifts the mean to 5.2
    assert converged_at(curve([10.0] * 10 + [4.0] * 40)) == 8 * 15
    assert converged_at(curve(np.linspace(10.0, 4.0, 50).tolist())) is None


@pytest.mark.slow
def test_a_variant_is_trained_judged_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.a2c.ROOT", tmp_path)
    options = {"label": "quick", "network": "dense", "episodes": 8, "arrival_steps": 10}
    found, curves = run_variant("x", options, [1, 2])
    assert [each["episodes"] for each in found["runs"]] == [8, 8]
    assert [len(each) for each in curves] == [1, 1]
    assert [row["policy"] for row in found["judged"]] == ["a2c", "sjf", "tetris", "random", "place"]
    again, _ = run_variant("x", options, [1, 2])
    assert again == found  # from the checkpoints, with their processor times
    assert "| quick | sjf |" in markdown({"variants": [found]})


@pytest.mark.parametrize(
    "path", sorted(EXPERIMENTS.parent.glob("a2c_*.json")), ids=lambda p: p.stem
)
def test_documented_tables_are_the_committed_figures(path: Path) -> None:
    found = json.loads(path.read_text("utf-8"))
    page = PAGE.read_text("utf-8")
    assert markdown(found) in page
    assert found["date"] in page
    labels = [each["label"] for each in experiments()[found["experiment"]]["variants"]]
    assert [each["label"] for each in found["variants"]] == labels
    assert all(len(each["runs"]) == len(found["seeds"]) for each in found["variants"])
