"""``edgeyard ste``: runs, training, what is kept of them, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from edgeyard.plugins.scorers.learned import load_learned
from edgeyard.training.ste.training import new_model
from tests.builders.ste import HEURISTICS, SCENARIO, quick_policy_text


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


def test_a_model_of_ones_own_decides_with_the_others(file: Path, tmp_path: Path) -> None:
    models, policy = tmp_path / "models", tmp_path / "mine.toml"
    new_model("mine", models)
    policy.write_text(quick_policy_text(HEURISTICS + '[[scorers]]\nname = "mine"\nweight = 1.0\n'))
    options = ("--policy", policy, "--runs", tmp_path / "runs", "--rounds", 1)
    without = ste("run", file, *map(str, options))
    assert without.exit_code == 1
    assert "'mine'" in f"{without.stderr}{without.exception}"
    assert "--models DIR" in f"{without.stderr}{without.exception}"
    done = ste("run", file, *map(str, options), "--models", models, "--json")
    assert done.exit_code == 0, done.stderr
    (shown,) = json.loads(done.stdout)["rounds"]
    assert shown["steps"][9]["summary"].startswith("1 model by tensors")


@pytest.mark.slow
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
    assert [each["seed"] for each in json.loads(resumed.stdout)["episodes"]] == [3, 3]
    curve = tmp_path / "curve.png"
    assert ste("show", found["run_id"], "--runs", runs, "--plot", curve).exit_code == 0
    assert curve.read_bytes().startswith(b"\x89PNG")


EXECUTES = """
import sys, time
from pathlib import Path
from edgeyard.training.ste.runs import RunFolder
with RunFolder(Path(sys.argv[1])).executing(sys.argv[2]):
    print("executes", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_run_whose_process_was_killed_is_not_listed_as_running_and_is_resumed(
    file: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    done = ste("run", file, "--policy", "default", "--runs", runs, "--json")
    run_id = json.loads(done.stdout)["run_id"]
    record = runs / run_id / "run.json"
    cut_off = json.loads(record.read_text()) | {"state": "running", "episodes_wanted": 2}
    record.write_text(json.dumps(cut_off))

    def state() -> str:
        (listed,) = json.loads(ste("list", "--runs", runs, "--json").stdout)
        return str(listed["state"])

    command = [sys.executable, "-c", EXECUTES, str(runs), run_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"executes\n"
        assert state() == "running"
        refused = ste("run", "--resume", run_id, "--runs", runs)
        assert refused.exit_code == 1
        assert f"run {run_id} is being executed" in refused.stderr
        process.kill()
    assert state() == "cancelled"
    shown = json.loads(ste("show", run_id, "--runs", runs, "--json").stdout)
    assert shown["problem"] == "its process ended before the run did; the run can be resumed"
    resumed = ste("run", "--resume", run_id, "--runs", runs, "--json")
    assert resumed.exit_code == 0, resumed.stderr
    assert json.loads(resumed.stdout)["state"] == "completed"
    assert len(json.loads(resumed.stdout)["episodes"]) == 2


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


def test_a_model_is_trained_on_nodes_too(tmp_path: Path) -> None:
    file, models, runs = tmp_path / "nodes.toml", tmp_path / "models", tmp_path / "runs"
    file.write_text(
        'name = "nodes"\nworld = "nodes"\nduration_s = 30\n'
        "[nodes]\nnodes = [{ count = 2, cpu_cores = 10, memory_mb = 10 }]\n"
        "mix = { rate = 0.9, steps = 10 }\n"
    )
    options = ["--train", "mine", "--new", "--models", str(models), "--runs", str(runs)]
    done = ste("run", str(file), "--policy", "tetris", *options, "--judge", "0", "--json")
    assert done.exit_code == 0, done.stderr
    (episode,) = json.loads(done.stdout)["episodes"]
    assert episode["trained"]["reward"] == pytest.approx(-episode["figures"]["mean_turnaround_s"])
    assert load_learned(models / "mine.toml").name == "mine"


@pytest.mark.parametrize(
    ("words", "flag"),
    [(("scenarios", "--live"), "--live"), (("twin", "--config", "edgeyard.toml"), "--config")],
)
def test_options_of_the_live_twin_are_for_it_alone(words: tuple[str, ...], flag: str) -> None:
    done = ste("serve", *words)
    assert done.exit_code == 1
    assert f"{flag}:" in f"{done.stderr}{done.exception}"
    assert "ste serve twin --live" in f"{done.stderr}{done.exception}"


SCORER = """
import numpy as np


class Last:
    name = "last"
    objective = "the last board"
    unit = "preference"
    kind = "heuristic"

    def score(self, batch, pairs):
        if {crash}:
            raise RuntimeError("out of order")
        return (pairs.boards / max(int(pairs.boards.max(initial=0)), 1)).astype(np.float32)
"""


def own_policy(folder: Path, *, crash: bool = False) -> Path:
    scorer = folder / "scorers.py"
    scorer.write_text(SCORER.format(crash=crash))
    text = quick_policy_text(f'[[scorers]]\nname = "last"\nweight = 1.0\nfile = "{scorer}:Last"\n')
    policy = folder / "mine.toml"
    policy.write_text(text.replace('name = "default"', 'name = "mine"', 1))
    return policy


@pytest.mark.slow
def test_an_own_scorer_of_a_file_is_one_of_the_schedulers(file: Path, tmp_path: Path) -> None:
    policy = own_policy(tmp_path)
    done = ste("run", file, "--policy", policy, "--runs", tmp_path / "runs", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["policy"] == "mine"
    asked = {
        each["scheduler"]: each for each in found["rounds"][0]["steps"][8]["detail"]["schedulers"]
    }
    assert asked["last"]["answered"]
    assert "last" in found["episodes"][0]["weights"]
    assert found["episodes"][0]["faults"] == {}


@pytest.mark.slow
def test_an_own_scorer_that_crashes_is_reported(file: Path, tmp_path: Path) -> None:
    policy = own_policy(tmp_path, crash=True)
    arguments = ("--policy", policy, "--runs", tmp_path / "runs", "--rounds", "4", "--json")
    done = ste("run", file, *map(str, arguments))
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["episodes"][0]["faults"]["last"] > 0
    asked = {
        each["scheduler"]: each for each in found["rounds"][0]["steps"][8]["detail"]["schedulers"]
    }
    assert "out of order" in asked["last"]["problem"]
    assert asked["least_loaded"]["answered"]


def test_queue_policies_and_baselines_are_policies_as_in_sim_run(
    file: Path, tmp_path: Path
) -> None:
    for name in ("sjf", "shortest_first"):
        arguments = ("--policy", name, "--runs", tmp_path / "runs", "--rounds", "3", "--json")
        done = ste("run", file, *map(str, arguments))
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["policy"] == name
    done = ste("run", file, "--policy", "nonesuch", "--runs", tmp_path / "runs")
    assert "--policy: 'nonesuch' is neither a file" in done.stderr


def test_the_services_of_a_controller_have_their_own_policy(file: Path) -> None:
    done = ste("run", file, "--controller", "http://127.0.0.1:1", "--policy", "default")
    assert "--policy: the services of --controller have their own" in done.stderr


def test_episodes_are_stored_next_to_simulations(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_SCENARIO_DB", str(tmp_path / "scenarios.db"))
    arguments = ("--policy", "default", "--runs", tmp_path / "runs", "--episodes", "2", "--json")
    done = ste("run", file, *map(str, arguments))
    assert done.exit_code == 0, done.stderr
    run_id = json.loads(done.stdout)["run_id"]
    listed = CliRunner().invoke(app, ["sim", "list", "--kind", "ste", "--json"])
    rows = json.loads(listed.stdout)
    assert {each["run_id"] for each in rows} == {f"{run_id}-0", f"{run_id}-1"}
    assert {(each["policy"], each["seed"]) for each in rows} == {("default", 3), ("default", 4)}
    done = ste("run", file, "--policy", "default", "--runs", tmp_path / "runs", "--no-store")
    assert done.exit_code == 0, done.stderr
    assert len(json.loads(CliRunner().invoke(app, ["sim", "list", "--json"]).stdout)) == 2


NODES = """
name = "paper"
world = "nodes"
duration_s = 20
[nodes]
nodes = [{ count = 2, cpu_cores = 10, memory_mb = 10 }]
mix = { rate = 0.9, steps = 20 }
"""


def test_nodes_have_the_figures_of_sim_run(tmp_path: Path) -> None:
    file = tmp_path / "paper.toml"
    file.write_text(NODES)
    done = ste("run", file, "--policy", "tetris", "--runs", tmp_path / "runs", "--json")
    assert done.exit_code == 0, done.stderr
    (episode,) = json.loads(done.stdout)["episodes"]
    run = CliRunner().invoke(app, ["sim", "run", str(file), "--policy", "tetris", "--json"])
    (row,) = json.loads(run.stdout)["policies"]
    assert episode["figures"]["mean_wait_s"] == row["figures"]["wait_s"]["mean"]
    mean_turnaround_s = episode["figures"]["mean_turnaround_s"]
    assert mean_turnaround_s == row["figures"]["turnaround_s"]["mean"] > 0
    log = tmp_path / "log.toml"
    log.write_text(NODES.partition("mix")[0] + 'log = "some.swf"')
    refused = ste("run", log, "--policy", "tetris", "--runs", tmp_path / "runs")
    assert "nodes.log" in refused.stderr


def test_tables_show_all_ends_in_80_columns(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_COLUMNS", "80")
    done = ste("run", file, "--policy", "default", "--runs", tmp_path / "runs")
    lines = done.stdout.splitlines()
    heads = next(line for line in lines if "COMPLETED" in line)
    assert "EXPIRED" in heads
    assert "WAITING" in heads
    assert max(map(len, lines)) <= 80
