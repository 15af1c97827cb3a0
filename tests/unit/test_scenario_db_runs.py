"""Scenarios of the ScenarioDB in simulations, and their runs in it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from edgeyard.errors import InvalidInput
from edgeyard.simulator.scenario import scenario_to_toml
from edgeyard.simulator.scenario_db import opened_db, runs_folder, scenario_named
from tests.builders.cli import refusal
from tests.builders.labs import lab_scenario

LAB = lab_scenario(
    boards=[{"family": "rpi5", "count": 2}],
    jobs=[{"run_s": run_s} for run_s in (30.0, 20.0, 10.0)],
    duration_s=10.0,
)


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def done(*words: str | Path) -> Result:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def db(tmp_path: Path, sqlite_template: Path) -> Path:
    """Return a ScenarioDB with one scenario, ``small``, whose file is gone."""
    path, file = tmp_path / "scenarios.db", tmp_path / "own.toml"
    shutil.copy(sqlite_template, path)
    file.write_text(scenario_to_toml(LAB))
    done("scenarios", "import", file, "--db", path)
    file.unlink()
    return path


def test_a_stored_scenario_is_simulated_and_its_runs_are_found_again(
    db: Path, tmp_path: Path
) -> None:
    policies = ("--policy", "fcfs", "--policy", "sjf")
    found = json.loads(done("sim", "run", "small", "--db", db, *policies, "--json").stdout)
    rows = json.loads(done("sim", "list", "--db", db, "--json").stdout)
    assert sorted(row["run_id"] for row in rows) == sorted(found["stored"])
    assert {(row["scenario_name"], row["policy"]) for row in rows} == {
        ("small", "fcfs"),
        ("small", "sjf"),
    }
    report = json.loads(done("sim", "report", *found["stored"], "--db", db, "--json").stdout)
    assert {row["policy"] for row in report["runs"]} == {"fcfs", "sjf"}
    done("sim", "show", found["stored"][0], "--db", db)
    assert all(re.fullmatch(r"[-0-9]{10}T[:.0-9]+Z", row["created_at"]) for row in rows)
    again = json.loads(done("sim", "run", "small", "--db", db, *policies, "--json").stdout)
    assert again["stored"] == found["stored"]
    assert len(json.loads(done("sim", "list", "--db", db, "--json").stdout)) == 2
    assert sorted(path.name for path in runs_folder(str(db)).iterdir()) == sorted(
        f"{run_id}.npz" for run_id in found["stored"]
    )


def test_runs_are_stored_where_the_environment_names_a_database_unless_not_wanted(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_SCENARIO_DB", str(db))
    assert "stored:" not in done("sim", "run", "small", "--no-store").stderr
    assert json.loads(done("sim", "list", "--json").stdout) == []
    out = tmp_path / "out"
    assert "stored:" in done("sim", "run", "small", "--out", out).stderr
    (row,) = json.loads(done("sim", "list", "--json").stdout)
    assert Path(row["columns_file"]).parent == out
    Path(row["columns_file"]).unlink()
    assert "was removed, or is on another machine" in refusal(run("sim", "report", row["run_id"]))


@pytest.mark.slow
def test_a_sweep_takes_a_stored_scenario(db: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("sim", "sweep", "small", "--policy", "fcfs", "--out", out, "--db", db, "--jobs", "1")
    assert json.loads(done(*words, "--json").stdout)["runs"][0]["scenario"] == "small"


def test_the_environment_of_boards_takes_a_stored_scenario(db: Path) -> None:
    pytest.importorskip("gymnasium")
    from edgeyard.training.environments import BoardsEnv

    environment = BoardsEnv(scenario="small", db=str(db))
    observation, _ = environment.reset(seed=1)
    assert observation["boards"].shape[0] == 2


def test_an_unknown_scenario_is_one_clear_error_and_makes_no_database(
    db: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=r"did you mean small\?"):
        scenario_named("smal", str(db))
    absent = tmp_path / "none" / "scenarios.db"
    with pytest.raises(InvalidInput, match="no such scenario in the ScenarioDB"):
        scenario_named("smal", str(absent))
    assert not absent.parent.exists()


def test_a_database_that_cannot_be_opened_is_reported_before_the_simulation(
    tmp_path: Path,
) -> None:
    assert refusal(run("sim", "run", "steady", "--db", tmp_path)).startswith("edgeyard: --db: ")


@pytest.mark.slow
@pytest.mark.parametrize("words", [("sim", "list"), ("sim", "show", "x"), ("scenarios", "list")])
def test_commands_on_the_local_database_do_not_import_the_server(
    db: Path, words: tuple[str, ...]
) -> None:
    program = (
        "import sys\n"
        "from edgeyard.benchmark_api.cli import app\n"
        f"app([*{list(words)!r}, '--db', {str(db)!r}], standalone_mode=False)\n"
        "print(*sorted(sys.modules), file=sys.stderr)\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = set(found.stderr.splitlines()[-1].split())
    assert "edgeyard.simulator.scenario_db" in loaded, found.stderr
    heavy = {
        *("fastapi", "starlette", "uvicorn", "httpx", "numba", "onnx", "pydantic_settings"),
        *("edgeyard.benchmark_api.bootstrap", "edgeyard.scheduler.engine", "alembic"),
    }
    assert loaded & heavy == set()


def test_the_database_can_be_read_by_what_opens_it(db: Path) -> None:
    with opened_db(str(db)) as store, store.read() as uow:
        assert uow.scenarios.get("small").name == "small"


def test_the_last_migration_is_found_without_alembic() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    from edgeyard.scheduler.store import migrate

    config = Config()
    config.set_main_option("script_location", str(migrate.MIGRATIONS).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    known = frozenset(script.revision for script in scripts.walk_revisions())
    found, head = migrate.revisions()
    assert (found, head) == (known, str(scripts.get_current_head()))
