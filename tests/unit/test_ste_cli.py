"""``edgeyard ste``: runs, training, what is kept of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from edgeyard.plugins.scorers.learned import load_learned
from tests.builders.ste import SCENARIO


def ste(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["ste", *map(str, arguments)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SCENARIO.format(duration_s=120.0))
    return path


def test_a_run_shows_its_thirteen_steps_and_is_kept(file: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    done = ste("run", file, "--policy", "default", "--runs", runs, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert [each["step"] for each in found["rounds"][0]["steps"]] == list(range(1, 14))
    assert found["state"] == "completed"
    assert found["episodes"][0]["figures"]["completed"] > 0
    (listed,) = json.loads(ste("list", "--runs", runs, "--json").stdout)
    assert listed["run_id"] == found["run_id"]
    shown = ste("show", found["run_id"], "--runs", runs)
    assert "completed" in shown.stdout
    table = ste("run", file, "--policy", "default", "--runs", runs)
    assert "final decisions by the aggregator" in table.stdout


def test_training_goes_on_where_it_was_cancelled(file: Path, tmp_path: Path) -> None:
    runs, models = tmp_path / "runs", tmp_path / "models"
    options = ("--policy", "default", "--runs", runs, "--models", models, "--judge", 1, "--json")
    done = ste("run", file, "--train", "mine", "--new", *map(str, options))
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["model_version"] == 2
    assert len(found["judgement"]["trained"]) == 1
    assert load_learned(models / "mine.toml").name == "mine"
    assert len(list(models.glob("*.onnx"))) == 1
    record = runs / found["run_id"] / "run.json"
    cancelled = json.loads(record.read_text()) | {"state": "cancelled", "episodes_wanted": 2}
    record.write_text(json.dumps(cancelled))
    resumed = ste("run", "--resume", found["run_id"], "--runs", runs, "--judge", "0", "--json")
    assert resumed.exit_code == 0, resumed.stderr
    assert [each["seed"] for each in json.loads(resumed.stdout)["episodes"]] == [3, 4]
    curve = tmp_path / "curve.png"
    assert ste("show", found["run_id"], "--runs", runs, "--plot", curve).exit_code == 0
    assert curve.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "SCENARIO"),
        (["missing.toml"], "missing.toml"),
        (["FILE", "--new"], "--train"),
        (["FILE", "--train", "mine"], "--models"),
        (["FILE", "--train", "mine", "--models", "."], "no model 'mine'"),
        (["--resume", "../secret"], "no run"),
    ],
)
def test_wrong_input_is_refused_and_leaves_no_run(
    arguments: list[str], reason: str, file: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    named = [str(file) if each == "FILE" else each for each in arguments]
    done = ste("run", *named, "--policy", "default", "--runs", runs)
    assert done.exit_code != 0
    assert reason in f"{done.stderr}{done.exception}"
    assert not list(runs.glob("*"))


def test_a_service_that_others_reach_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEYARD_STE_TOKEN", raising=False)
    done = ste("serve", "twin", "--port", "8081", "--host", "0.0.0.0")
    assert done.exit_code != 0
    assert "EDGEYARD_STE_TOKEN" in f"{done.stderr}{done.exception}"
