"""``sim run`` and ``sim from-history`` killed at each step: runs are whole or missing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.simulator.runs import load_run
from edgeyard.simulator.scenario import scenario_to_toml
from edgeyard.simulator.scenario_db import opened_db
from tests.builders.history import benchmark, outcome, write_export
from tests.builders.labs import lab_scenario

# The command is killed at step 1, 2, … in a process of its own each time, forked so that Python
# starts once. Steps are those of the database, and of files before they get their name.
_COMMANDS = """
import itertools, os, sys
from pathlib import Path
import pyarrow.parquet
from edgeyard import failpoints
from edgeyard.benchmark_api import bootstrap
from edgeyard.benchmark_api.cli import app
from edgeyard.simulator.cli import sim_documents
from edgeyard.simulator.cli import sim_stored
from edgeyard.simulator.importers import history
from edgeyard.simulator.lab import world
from edgeyard.scheduler import store

folder, *command = sys.argv[1:]

def step(event, arguments):
    if event in ("open", "os.rename") and str(arguments[0]).endswith(".part"):
        failpoints.failpoint(f"part:{event}")

for number in itertools.count(1):
    here = Path(folder, str(number))
    here.mkdir()
    child = os.fork()
    if not child:
        for stream, name in ((1, "shown"), (2, "fired")):
            os.dup2(os.open(here / name, os.O_WRONLY | os.O_CREAT), stream)
        sys.addaudithook(step)
        failpoints.arm(number)
        code = 1
        try:
            app([each.replace("HERE", str(here)) for each in command])
        except SystemExit as error:
            code = error.code or 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 137:
        sys.exit(code)
"""
LAB = lab_scenario(
    boards=[{"family": "rpi5", "count": 1}],
    jobs=[{"run_s": run_s, "model": f"m{run_s:.0f}"} for run_s in (300.0, 200.0, 100.0)],
    duration_s=10.0,
)
OPTIONS = ("--policy", "fifo", "--policy", "sjf", "--out", "HERE/out", "--db", "HERE/runs.db")


def prepared(command: str, folder: Path) -> list[str]:
    """The command, for what the folder then has."""
    if command == "run":
        scenario = folder / "lab.toml"
        scenario.write_text(scenario_to_toml(LAB))
        return ["sim", "run", str(scenario), *OPTIONS]
    pytest.importorskip("pyarrow")
    rows = [benchmark(name, at_s) for name, at_s in (("a", 0), ("b", 5), ("c", 9))]
    ended = [outcome("a", 0, 60), outcome("b", 60, 90), outcome("c", 90, 130)]
    export = write_export(folder / "export", rows, ended)
    return ["sim", "from-history", "--export", str(export), *OPTIONS]


def check(here: Path) -> tuple[int, int]:
    """Return how many whole runs there are in files, and how many in the database."""
    files = [path for path in (here / "out").glob("*") if not path.name.startswith(".")]
    for path in files:
        assert load_run(path).jobs.job.size == 3
    database = here / "runs.db"
    if not database.exists():
        return len(files), 0
    with sqlite3.connect(database) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    raw.close()
    with opened_db(str(database)) as store, store.read() as uow:
        stored, _ = uow.simulations.runs(limit=9, cursor=None)
        for each in stored:
            assert uow.scenarios.get(each.scenario).sha256 == each.scenario
            assert Path(each.columns_file or "") in files
            assert each.metrics["mean_wait_s"] is not None
    return len(files), len(stored)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "from-history"])
def test_a_kill_at_any_step_leaves_no_half_written_run(command: str, tmp_path: Path) -> None:
    words = prepared(command, tmp_path)
    killed = tmp_path / "killed"
    killed.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _COMMANDS, str(killed), *words],
        env={**os.environ, "PYTHONPATH": "src:."},
        capture_output=True,
        text=True,
        check=False,
    )
    folders = sorted(killed.iterdir(), key=lambda folder: int(folder.name))
    texts = [(folder / "fired").read_text() for folder in folders]
    assert done.returncode == 0, done.stderr + texts[-1]
    found = [check(folder) for folder in folders]
    assert found[0] == (0, 0)
    assert found[-1] == (2, 2)
    assert found == sorted(found)  # a later kill never leaves less
    assert (1, 0) in found  # one of two runs is written, and is not stored yet
    fired = {text.split("fired: ")[1].strip() for text in texts[:-1]}
    assert fired >= {"part:open", "part:os.rename", "commit:before", "commit:after"}
    for folder in folders[:-1:4]:
        again = CliRunner().invoke(app, [each.replace("HERE", str(folder)) for each in words])
        assert again.exit_code == 0, again.output
        assert check(folder) == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [[], ["--dense"]])
def test_the_soak_of_fault_schedules_counts_what_it_ran(kind: list[str]) -> None:
    """The program of ``make soak-sim``, with a single schedule."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.sim_soak", "--schedules", "1", "--seed", "7", *kind],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "seed 7: 1 schedules" in ended.stdout
    assert "nothing is wrong" in ended.stdout
