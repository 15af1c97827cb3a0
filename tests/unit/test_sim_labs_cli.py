"""``edgeyard sim run`` as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.simulator.runs import load_run
from edgeyard.simulator.scenario import scenario_to_toml
from tests.builders.cli import printed, run
from tests.builders.history import benchmark, outcome, write_export
from tests.builders.labs import lab_scenario

LAB = lab_scenario(
    boards=[{"family": "rpi5", "count": 1}],
    jobs=[
        {"run_s": run_s, "user_time_s": 2 * run_s, "model": f"m{run_s:.0f}"}
        for run_s in (300.0, 200.0, 100.0, 50.0)
    ],
    duration_s=10.0,
)


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "lab.toml"
    file.write_text(scenario_to_toml(LAB))
    return str(file)


def test_run_compares_policies_and_writes_the_runs(scenario: str, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    arguments = ["sim", "run", scenario, "--policy", "fifo", "--policy", "sjf", "--seed", "1"]
    document = json.loads(printed(run(*arguments, "--out", str(out), "--json")))
    assert {each["first"] for each in document["comparisons"]} == {"sjf"}
    files = sorted(path.name for path in out.iterdir())
    assert files == ["small-fifo-seed1.npz", "small-sjf-seed1.npz"]
    fifo, sjf = (load_run(out / name) for name in files)
    assert (fifo.meta.policy, sjf.meta.policy) == ("fifo", "sjf")
    assert fifo.jobs.start_s.tolist() == [0, 300, 500, 600]
    assert sjf.jobs.start_s[3] == 0  # later ones are predicted from this one run


def test_run_shows_a_table(scenario: str) -> None:
    found = printed(run("sim", "run", scenario))
    assert "POLICY" in found
    assert "default" in found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "there is no such file, and no such scenario in the ScenarioDB"),
        (["stedy"], "did you mean steady?"),
        (["SCENARIO", "--policy", "nothing"], "is neither a file nor the name of a policy"),
        (["SCENARIO", "--policy", "fifo", "--policy", "fifo"], "the same value is given twice"),
        (["SCENARIO", "--out", "SCENARIO"], "is not a folder"),
    ],
)
def test_wrong_input_is_one_clear_error(
    scenario: str, tmp_path: Path, arguments: list[str], message: str
) -> None:
    given = [scenario if each == "SCENARIO" else each for each in arguments]
    found = CliRunner().invoke(app, ["sim", "run", *given])
    assert found.exit_code == 1
    assert message in " ".join(found.output.split())
    assert [path.name for path in tmp_path.iterdir()] == ["lab.toml"]


def test_a_folder_in_place_of_a_scenario_is_refused_in_plain_words(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["sim", "run", str(tmp_path)])
    assert found.exit_code == 1
    assert "can't be read: Is a directory" in " ".join(found.output.split())
    assert "Errno" not in found.output


def test_a_recorded_history_is_lived_under_another_policy(tmp_path: Path) -> None:
    lasted = {"b0": 300.0, "b1": 200.0, "b2": 50.0}
    folder = write_export(
        tmp_path / "export",
        [benchmark(each, row) for row, each in enumerate(lasted)],
        [outcome(each, 1000, 1000 + run_s) for each, run_s in lasted.items()],
    )
    out, saved = tmp_path / "runs", tmp_path / "history.toml"
    found = CliRunner().invoke(
        app,
        [
            *("sim", "from-history", "--export", str(folder), "--policy", "fifo", "--json"),
            *("--out", str(out), "--save", str(saved)),
        ],
    )
    assert found.exit_code == 0, found.output
    (file,) = out.iterdir()
    run = load_run(file)
    assert run.jobs.start_s.tolist() == [0, 300, 500]
    again = CliRunner().invoke(app, ["sim", "run", str(saved), "--json"])
    assert again.exit_code == 0, again.output


def test_from_history_reads_the_servers_database(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["sim", "from-history", "--data-dir", str(tmp_path / "none")])
    assert found.exit_code in (1, 2)
    assert "none" in found.output


def test_a_history_without_benchmarks_names_the_export_and_saves_nothing(tmp_path: Path) -> None:
    folder = write_export(tmp_path / "export", [], [])
    saved = tmp_path / "history.toml"
    found = CliRunner().invoke(
        app, ["sim", "from-history", "--export", str(folder), "--save", str(saved)]
    )
    assert found.exit_code == 1
    assert f"--export {folder}: no benchmark was submitted" in " ".join(found.output.split())
    assert not saved.exists()
