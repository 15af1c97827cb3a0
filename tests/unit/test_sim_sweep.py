"""``edgeyard sim sweep``: cells, loads, resuming, failures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from edgeyard.errors import ClusterUnreachable, InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.baselines import BASELINES
from edgeyard.scheduler.framework.named import policy_named
from edgeyard.scheduler.framework.policy import load_policy, parse_policy, read_policy
from edgeyard.simulator.cli.sim_labs import swept_policy
from edgeyard.simulator.cli.sim_processes import simulate
from edgeyard.simulator.runs import load_run, save_run
from edgeyard.simulator.scenario import Scenario, scenario_from_json, scenario_from_toml
from edgeyard.simulator.sweep import (
    SweptPolicy,
    as_of_policy,
    cell_from_text,
    cell_to_text,
    digest_of_files,
    sweep_cells,
    with_load,
)
from edgeyard.training.batches import BatchCluster, BatchState, BatchStatus, BatchTask
from edgeyard.training.cli.sim_batches import MAX_SUBMISSIONS
from edgeyard.training.cli.sim_sweep import parse_loads, parse_seeds
from edgeyard.training.ste.training import load_trainable, new_model, write_model
from tests.builders.cli import printed, refusal, run
from tests.builders.cluster import eventually
from tests.builders.runs import random_run

SMALL = """
name = "small"
world = "boards"
duration_s = 600
[[lab.boards]]
family = "rpi5"
count = 2
[lab.arrivals]
rate_per_hour = 60
[[lab.arrivals.mix]]
model = "squeezenet"
run_s = 60
"""
NODES = """
name = "nodes"
world = "nodes"
duration_s = 100
[[nodes.nodes]]
count = 2
cpu_cores = 10
memory_mb = 1000
[nodes.mix]
rate = 0.5
steps = 40
"""
SLOW_SCORER = """
import time
import numpy as np
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit

class Slow:
    name, objective, kind, unit = "slow", "test", ScorerKind.HEURISTIC, ScoreUnit.PREFERENCE

    def score(self, batch, pairs):
        time.sleep(0.01)
        return np.full(len(pairs), 0.5, dtype=np.float32)
"""
FIFO = SweptPolicy(name="fifo", text="name = 'fifo'")
OTHER = SweptPolicy(name="other", text="name = 'other'")


def sweep(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["sim", "sweep", *map(str, arguments)])


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def small() -> Scenario:
    return scenario_from_toml(SMALL)


def test_cells_are_all_combinations_and_their_files_differ() -> None:
    cells = sweep_cells([small()], [FIFO, OTHER], [1, 2, 3], [1.0, 2.0])
    assert len(cells) == 12
    assert len({cell.file_name for cell in cells}) == 12
    assert [cell.label for cell in cells[:3]] == [
        "small, fifo, seed 1",
        "small, other, seed 1",
        "small, fifo, seed 2",
    ]


def test_a_changed_scenario_or_policy_is_another_cell() -> None:
    (cell,) = sweep_cells([small()], [OTHER], [1])
    (same,) = sweep_cells([small()], [OTHER], [1])
    changed = scenario_from_toml(SMALL.replace("count = 2", "count = 3"))
    others = [
        *sweep_cells([changed], [OTHER], [1]),
        *sweep_cells([small()], [replace(OTHER, text="name = 'other' # 2")], [1]),
        *sweep_cells([small()], [OTHER], [2]),
        *sweep_cells([small()], [OTHER], [1], [1.5]),
    ]
    assert same.key == cell.key
    assert len({cell.key, *(each.key for each in others)}) == 5


def test_a_changed_file_of_a_scorer_or_a_model_is_another_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer, models = tmp_path / "mine.py", tmp_path / "models"
    monkeypatch.setenv("EDGEYARD_MODELS_DIR", str(models))
    new_model("learned_here", models)
    scorers = f'''
        [[scorers]]
        name = "mine"
        weight = 1.0
        file = "{scorer}:Mine"
        [[scorers]]
        name = "learned_here"
        weight = 1.0
    '''
    policy = parse_policy(read_policy("default").replace("[priority]", f"{scorers}[priority]", 1))

    def key() -> str:
        swept = SweptPolicy(name="p", text="t", files=digest_of_files(policy, models))
        (cell,) = sweep_cells([small()], [swept], [1])
        assert cell_from_text(cell_to_text(cell)).key == cell.key
        return cell.key

    scorer.write_text("one")
    first = key()
    assert key() == first
    scorer.write_text("another")
    second = key()
    manifest, network = load_trainable(models / "learned_here.toml")
    network.weights[next(iter(network.weights))][:] += 1.0
    write_model(models / "learned_here.toml", manifest, network)
    assert len({first, second, key()}) == 3
    scorer.unlink()
    with pytest.raises(InvalidInput, match=r"--policy default: .*mine.py can't be read"):
        key()


@pytest.mark.slow
def test_sim_run_in_processes_gives_the_same_runs(scenario: Path, tmp_path: Path) -> None:
    found = []
    for jobs in ("1", "2"):
        out = tmp_path / jobs
        options = ("--policy", "sjf", "--policy", "default", "--seed", "1", "--seed", "2")
        words = ["sim", "run", str(scenario), *options, "--jobs", jobs, "--out", str(out), "--json"]
        document = json.loads(printed(CliRunner().invoke(app, words)))
        assert document["policies"][0]["policy"] == "sjf"
        runs = [load_run(path) for path in sorted(out.iterdir())]
        found.append([(each.meta.policy, each.meta.seed, each.meta.events_sha256) for each in runs])
    assert found[0] == found[1]
    assert len(found[0]) == 4


@pytest.mark.slow
def test_sim_run_in_processes_reports_what_one_process_reports(tmp_path: Path) -> None:
    outage = '[[lab.outages]]\nwhat = "board"\nname = "none"\nfrom_s = 1\nto_s = 2\n'
    text = SMALL.replace("[lab.arrivals]", outage + "[lab.arrivals]", 1)
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    errors = [
        CliRunner().invoke(app, ["sim", "run", str(path), "--seed", "1", "--jobs", jobs]).stderr
        for jobs in ("1", "2")
    ]
    assert errors[0] == errors[1] != ""


@pytest.mark.parametrize("name", ["fcfs", "easy", "min_min", "wfp3", "default"])
def test_policies_are_those_of_sim_run(name: str) -> None:
    known = registry(entry_points=False)
    found = swept_policy(name, known)
    policy = policy_named(name, known)
    assert found.name == policy.name
    if found.text:
        assert parse_policy(found.text) == policy
    if name in BASELINES:
        assert policy == load_policy(name)


def test_a_changed_log_is_another_cell(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    document = {
        "name": "log",
        "world": "nodes",
        "duration_s": 1.0,
        "nodes": {"nodes": [{"cpu_cores": 4}], "log": str(log)},
    }
    keys = set()
    for text in ("one", "another"):
        log.write_text(text)
        keys.add(sweep_cells([scenario_from_json(document)], [FIFO], [1])[0].key)
    assert len(keys) == 2
    log.unlink()
    with pytest.raises(InvalidInput, match="can't be read"):
        sweep_cells([scenario_from_json(document)], [FIFO], [1])


def test_a_load_multiplies_rates_and_compresses_stated_arrivals() -> None:
    scenario = with_load(small(), 2.0)
    assert scenario.lab is not None
    assert scenario.lab.arrivals is not None
    assert (scenario.name, scenario.lab.arrivals.rate_per_hour) == ("small-load2", 120)
    row = {"job_id": "a", "submit_s": 100.0, "run_s": 9.0, "family": "rpi5", "deadline_s": 150.0}
    stated = scenario_from_json(
        {
            "name": "stated",
            "world": "boards",
            "duration_s": 200.0,
            "lab": {"boards": [{"family": "rpi5", "count": 1}], "jobs": [row]},
        }
    )
    lab = with_load(stated, 4.0).lab
    assert lab is not None
    assert (lab.jobs[0].submit_s, lab.jobs[0].run_s, lab.jobs[0].deadline_s) == (25.0, 9.0, 75.0)
    assert with_load(stated, 1.0) is stated
    with pytest.raises(InvalidInput, match=r"--load.*3 can't be applied"):
        with_load(scenario_from_toml(NODES), 3.0)  # a probability above 1


def test_a_cell_travels_as_text() -> None:
    (cell,) = sweep_cells([small()], [OTHER], [7], [0.5])
    text = cell_to_text(cell)
    assert text.isascii()
    assert "{" not in text
    found = cell_from_text(text)
    assert (found.key, found.scenario, found.load) == (cell.key, cell.scenario, 0.5)
    for wrong in ("", "no base64!", text[:40], "aGVsbG8="):
        with pytest.raises(InvalidInput, match="is not a cell of a sweep"):
            cell_from_text(wrong)


def test_a_broken_file_is_no_finished_cell(tmp_path: Path) -> None:
    (cell,) = sweep_cells([small()], [FIFO], [1])
    assert cell.finished(tmp_path) is None
    (tmp_path / cell.file_name).write_bytes(b"half")
    assert cell.finished(tmp_path) is None
    save_run(random_run("fifo", 1), tmp_path / cell.file_name)
    assert cell.finished(tmp_path) is not None


@pytest.mark.parametrize(
    ("text", "found"), [("1-4", [1, 2, 3, 4]), ("7", [7]), ("1,5,7-8,5", [1, 5, 7, 8])]
)
def test_seeds_are_numbers_and_ranges(text: str, found: list[int]) -> None:
    assert parse_seeds(text) == found


@pytest.mark.parametrize(
    "text", ["", "a", "3-1", "-1", "1-", "1-999999999", "1;2", "99999999999999999999"]
)
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="--seeds"):
        parse_seeds(text)


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "x", "1,,2"])
def test_other_loads_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="--load"):
        parse_loads(text)


@pytest.mark.slow
def test_wrong_arguments_make_no_folder(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for arguments, text in (
        (("none.toml", "--policy", "default"), "none.toml"),
        ((scenario, "--policy", "none"), "--policy"),
        ((scenario, scenario, "--policy", "default"), "two scenarios have the name 'small'"),
        ((scenario, "--policy", "default", "--policy", "default"), "two policies"),
        ((scenario, "--policy", "default", "--seeds", "x"), "--seeds"),
        ((scenario, "--policy", "default", "--load", "0"), "--load"),
        ((scenario, "--policy", "default", "--seeds", "1-100000", "--load", "1,2"), "--seeds"),
        ((scenario, "--policy", "default", "--driver", "docker"), "--image"),
    ):
        assert text in refusal(sweep(*arguments, "--out", out))
        assert not out.exists()


class ForgetfulCluster:
    """Runs a cell when its job is submitted, and forgets the first jobs of each cell."""

    def __init__(self, folder: Path, lost: int) -> None:
        self.submitted: list[str] = []
        self._folder, self._lost = folder, lost

    def submit(self, task: BatchTask) -> None:
        cell = cell_from_text(task.input)
        save_run(as_of_policy(simulate(cell), cell), self._folder / task.job_id)
        self.submitted.append(task.job_id)

    def status(self, job_ids: Sequence[str]) -> Mapping[str, BatchStatus]:
        return {
            job_id: BatchStatus(state=BatchState.COMPLETED, run_id=job_id)
            for job_id in job_ids
            if self.submitted.count(job_id) > self._lost
        }

    def result(self, run_id: str, name: str) -> bytes:
        return (self._folder / run_id).read_bytes()

    def log_end(self, run_id: str) -> str:
        return ""

    def remove(self, job_id: str) -> None:
        (self._folder / job_id).unlink()

    def close(self) -> None:
        pass


if TYPE_CHECKING:
    _: BatchCluster = ForgetfulCluster(Path(), 0)


def sweep_on(cluster: BatchCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    nodes = folder / "nodes.toml"
    nodes.write_text(NODES)
    monkeypatch.setattr("edgeyard.training.cli.sim_batches.open_batches", lambda _: cluster)
    monkeypatch.setattr("edgeyard.training.cli.sim_batches.CHECK_S", 0.0)
    return sweep(nodes, "--policy", "fcfs", "--out", folder / "out", "--on", "nomad", "--json")


@pytest.mark.slow
def test_a_job_that_nomad_has_forgotten_is_submitted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ForgetfulCluster(tmp_path, lost=MAX_SUBMISSIONS - 1)
    found = sweep_on(cluster, tmp_path, monkeypatch)
    assert found.exit_code == 0, found.stderr
    assert len(json.loads(found.stdout)["runs"]) == 1
    assert len(cluster.submitted) == MAX_SUBMISSIONS
    assert len(set(cluster.submitted)) == 1
    assert "it is submitted again" in found.stderr


def test_a_job_that_nomad_forgets_again_and_again_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ForgetfulCluster(tmp_path, lost=99)
    found = refusal(sweep_on(cluster, tmp_path, monkeypatch))
    assert len(cluster.submitted) == MAX_SUBMISSIONS
    assert f"nodes, fcfs, seed 1: Nomad lost its job {cluster.submitted[0]} 3 times" in found
    assert "run the same command again" in found


class InterruptedCluster(ForgetfulCluster):
    """Runs each job once, and does not answer some of the calls after the first submission.

    Attributes:
        silent: Which calls are not answered: names of methods.
    """

    def __init__(self, folder: Path, *silent: str) -> None:
        super().__init__(folder, lost=0)
        self.silent = set(silent)
        self.removed: list[str] = []

    def _answer(self, call: str) -> None:
        if call in self.silent:
            raise ClusterUnreachable("no answer")

    def submit(self, task: BatchTask) -> None:
        if task.job_id not in self.submitted:  # create-only
            super().submit(task)

    def status(self, job_ids: Sequence[str]) -> Mapping[str, BatchStatus]:
        self._answer("status")
        found = super().status(job_ids)
        return {name: each for name, each in found.items() if name not in self.removed}

    def result(self, run_id: str, name: str) -> bytes:
        self._answer("result")
        return super().result(run_id, name)

    def remove(self, job_id: str) -> None:
        if job_id not in self.removed:
            self.removed.append(job_id)
            self._answer("remove")


def test_an_agent_that_goes_away_ends_the_sweep_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = InterruptedCluster(tmp_path, "status")
    with monkeypatch.context() as patched:
        patched.setattr("edgeyard.training.cli.sim_batches.MAX_OUTAGE_S", 0.0)
        found = sweep_on(cluster, tmp_path, patched)
    assert found.exit_code == 1
    assert found.stdout == ""
    assert "has not been available for 0 s: no answer; its jobs may go on (1 " in found.stderr
    assert "the same command takes them over" in found.stderr
    cluster.silent.clear()
    assert len(json.loads(printed(sweep_on(cluster, tmp_path, monkeypatch)))["runs"]) == 1
    assert len(cluster.submitted) == len(cluster.removed) == 1


def test_a_result_whose_node_does_not_answer_is_left_for_the_next_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = InterruptedCluster(tmp_path, "result")
    with monkeypatch.context() as patched:
        patched.setattr("edgeyard.training.cli.sim_batches.MAX_OUTAGE_S", 0.0)
        found = sweep_on(cluster, tmp_path, patched)
    assert found.exit_code == 1
    assert "its result can't be read: no answer; the same command reads it" in found.stderr
    assert cluster.removed == []
    cluster.silent.clear()
    assert sweep_on(cluster, tmp_path, monkeypatch).exit_code == 0
    assert len(cluster.submitted) == len(cluster.removed) == 1


def test_an_outage_that_ends_does_not_repeat_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = InterruptedCluster(tmp_path, "remove")  # it takes effect, and no answer arrives
    found = sweep_on(cluster, tmp_path, monkeypatch)
    assert found.exit_code == 0, found.stderr
    assert "is not available: no answer; the sweep waits for up to 600 s" in found.stderr
    assert "is available again" in found.stderr
    assert len(cluster.submitted) == 1


class FailingNodes(ForgetfulCluster):
    """Gives up the node of the first jobs of each cell, and keeps what it knows of them."""

    def __init__(self, folder: Path, lost: int) -> None:
        super().__init__(folder, lost=lost)
        self.removed: list[str] = []

    def status(self, job_ids: Sequence[str]) -> Mapping[str, BatchStatus]:
        lost = dict.fromkeys(job_ids, BatchStatus(state=BatchState.LOST))
        return {**lost, **super().status(job_ids)}

    def remove(self, job_id: str) -> None:
        self.removed.append(job_id)


def test_a_job_whose_node_is_given_up_is_removed_and_submitted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FailingNodes(tmp_path, lost=1)
    found = sweep_on(cluster, tmp_path, monkeypatch)
    assert len(json.loads(printed(found))["runs"]) == 1
    assert len(cluster.submitted) == 2
    assert cluster.removed == [cluster.submitted[0]] * 2  # the second time with its result
    assert f"Nomad has given up the node of its job {cluster.submitted[0]}" in found.stderr


class BrokenResults(ForgetfulCluster):
    """Its files are not what runs have written."""

    def result(self, run_id: str, name: str) -> bytes:
        return super().result(run_id, name)[:-100]


def test_a_broken_result_is_a_failure_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = refusal(sweep_on(BrokenResults(tmp_path, lost=0), tmp_path, monkeypatch))
    assert "its result can't be read" in found
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["nodes.toml"]


def _any_in_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_sweep_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    scenario, out = tmp_path / "nodes.toml", tmp_path / "out"
    scenario.write_text(NODES)
    command = ["sim", "sweep", str(scenario), "--policy", "sjf", "--policy", "fcfs"]
    command += ["--seeds", "1-2", "--jobs", "1", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "edgeyard", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    eventually(lambda: len(list(out.glob("*.npz"))) >= 1, "a run is stored")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    eventually(lambda: not _any_in_group(process.pid), "its workers end, too")
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.npz")}
    found = CliRunner().invoke(app, [*command, "--json"])
    assert found.exit_code == 0, found.stderr
    assert f"{len(before)} of 4 runs are there already" in found.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    document = json.loads(found.stdout)
    assert {(each["policy"], each["seed"]) for each in document["runs"]} == {
        (policy, seed) for policy in ("sjf", "fcfs") for seed in (1, 2)
    }
    assert document["failures"] == []
    suffixes = sorted(path.suffix for path in out.iterdir() if path.name[0] != ".")
    assert suffixes == [".npz"] * 4 + [".toml"]
    again = CliRunner().invoke(app, command)
    assert "4 of 4 runs are there already" in again.stderr
    assert "nodes" in again.stdout


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_the_others_are_made(tmp_path: Path) -> None:
    large = tmp_path / "large.toml"
    job = "[[nodes.jobs]]\njob_id = 'a'\nsubmit_s = 0\nrun_s = 1\ncpus = 99\n"
    large.write_text(
        NODES.replace('"nodes"', '"large"', 1).replace("[nodes.mix]", job + "[nodes.mix]")
    )
    nodes = tmp_path / "nodes.toml"
    nodes.write_text(NODES)
    out = tmp_path / "out"
    found = sweep(large, nodes, "--policy", "fcfs", "--out", out, "--jobs", "1", "--json")
    assert found.exit_code == 1
    document = json.loads(found.stdout)
    assert [each["run"] for each in document["failures"]] == ["large, fcfs, seed 1"]
    assert [each["scenario"] for each in document["runs"]] == ["nodes"]
    (path,) = out.glob("*.npz")
    assert load_run(path).meta.policy == "fcfs"


@pytest.mark.slow
def test_a_scorer_that_is_slower_than_its_budget_fails_no_simulation(tmp_path: Path) -> None:
    """On a busy machine any scorer in a process of its own is, now and then."""
    (tmp_path / "slow.py").write_text(SLOW_SCORER)
    scorer = "[[scorers]]\nname = 'slow'\nweight = 1.0\nbudget_s = 0.001\n"
    scorer += f"file = '{tmp_path}/slow.py:Slow'\n"
    policy = tmp_path / "slow.toml"
    policy.write_text(read_policy("default").replace("[priority]", f"{scorer}[priority]", 1))
    nodes = tmp_path / "nodes.toml"
    nodes.write_text(NODES)
    found = printed(run("sim", "run", str(nodes), "--policy", str(policy), "--json"))
    assert json.loads(found)["runs"]


@pytest.mark.slow
def test_stored_runs_are_listed_and_shown(tmp_path: Path) -> None:
    path, db, out = tmp_path / "nodes.toml", tmp_path / "scenarios.db", tmp_path / "out"
    path.write_text(NODES)
    found = sweep(path, "--policy", "sjf", "--jobs", "1", "--db", db, "--out", out)
    assert found.exit_code == 0, found.stderr
    again = sweep(path, "--policy", "sjf", "--jobs", "1", "--db", db, "--out", out)
    assert again.exit_code == 0, again.stderr  # stored twice, listed once

    def run(*arguments: object) -> Result:
        command = ["sim", *map(str, arguments), "--db", str(db)]
        return CliRunner().invoke(app, command)

    listed = printed(run("list"))
    (row,) = json.loads(run("list", "--scenario", "nodes", "--policy", "sjf", "--json").stdout)
    assert row["run_id"] in listed
    assert (row["scenario_name"], row["policy"], row["seed"]) == ("nodes", "sjf", 1)
    assert row["state"] == "completed"
    assert Path(row["columns_file"]).parent == out
    assert json.loads(run("list", "--policy", "other", "--json").stdout) == []
    shown = run("show", row["run_id"])
    assert "mean_bounded_slowdown" in shown.stdout
    document = json.loads(run("show", row["run_id"], "--json").stdout)
    assert document["metrics"]["completed"] == document["metrics"]["jobs"] > 0
    assert "none" in refusal(run("show", "none"))
