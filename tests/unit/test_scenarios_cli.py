"""``edgeyard scenarios``: a local ScenarioDB, and what it refuses."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from edgeyard.simulator.scenario import load_scenario
from tests.builders.cli import refusal

PAPER = """\
name = "paper"
world = "nodes"
duration_s = 50
tags = ["own"]

[[nodes.nodes]]
cpu_cores = 10

[nodes.mix]
rate = 0.8
"""
SMALL = {
    "name": "small",
    "world": "nodes",
    "duration_s": 50,
    "nodes": {"nodes": [{"cpu_cores": 10}], "mix": {}},
}


@pytest.fixture
def db(tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "scenarios.db"
    shutil.copy(sqlite_template, path)
    monkeypatch.setenv("EDGEYARD_SCENARIO_DB", str(path))
    monkeypatch.setenv("EDGEYARD_URL", "http://127.0.0.1:9")  # alone it names no server here
    return path


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    path = tmp_path / "paper.toml"
    path.write_text(PAPER)
    return path


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["scenarios", *map(str, words)])


def done(*words: str | Path) -> Result:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result


def listed(*options: str) -> list[dict[str, object]]:
    found = json.loads(done("list", "--json", *options).stdout)
    assert isinstance(found, list)
    return found


@pytest.mark.usefixtures("db")
def test_a_scenario_is_imported_listed_and_shown(paper: Path) -> None:
    assert "paper" in done("import", paper, "--tag", "more").stdout
    (row,) = listed()
    assert (row["name"], row["world"], row["jobs"]) == ("paper", "nodes", None)
    assert row["tags"] == ["more", "own"]
    assert row["source"] == "import paper.toml"
    shown = json.loads(done("show", str(row["sha256"])[:8], "--json").stdout)
    assert shown == row
    assert "drawn" in done("list").stdout
    assert "paper" in done("show", "paper").stdout
    assert listed("--world", "boards") == listed("--tag", "absent") == []
    assert listed("--tag", "own", "--name", "paper") == [row]


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize("form", ["toml", "json"])
def test_what_is_exported_is_the_same_scenario(paper: Path, tmp_path: Path, form: str) -> None:
    done("import", paper)
    out = tmp_path / f"out.{form}"
    done("export", "paper", "--out", out)
    assert load_scenario(out) == load_scenario(paper)
    assert done("export", "paper", "--form", form).stdout == out.read_text()
    done("import", out)
    assert len(listed()) == 1
    assert sorted(tmp_path.glob(".*.part")) == []


@pytest.mark.usefixtures("db")
def test_a_scenario_is_written_under_no_name_of_another_format(paper: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job_id,cpus_req,mem_req,time_run\n1,2,100,60\n")
    before = jobs.read_text()
    done("import", jobs, "--node", "1x4:1000")
    for words in (
        ("export", "jobs"),
        ("import", jobs, "--node", "1x4:1000"),
        ("generate", "paper"),
    ):
        refused = refusal(run(*words, "--out", jobs))
        assert "--out: jobs.csv is not a file name for a scenario" in refused
        assert "accepted: jobs.toml or .json" in refused
    assert jobs.read_text() == before
    converted = tmp_path / "converted.json"
    done("import", jobs, "--node", "1x4:1000", "--out", converted)
    assert load_scenario(converted).nodes
    done("export", "jobs", "--form", "json", "--out", tmp_path / "jobs.scenario")
    as_csv = refusal(CliRunner().invoke(app, ["-o", "csv", "scenarios", "export", "jobs"]))
    assert "-o: csv is not a format of scenarios (accepted: --form toml or json)" in as_csv


@pytest.mark.usefixtures("db")
def test_the_same_content_under_another_name_is_reported(paper: Path, tmp_path: Path) -> None:
    done("import", paper)
    other = tmp_path / "other.toml"
    other.write_text(PAPER.replace('"paper"', '"other"'))
    assert "stored already, as paper" in done("import", other).stderr
    assert [row["name"] for row in listed()] == ["paper"]


@pytest.mark.usefixtures("db")
def test_tags_change_and_a_scenario_is_removed(paper: Path) -> None:
    done("import", paper)
    done("tag", "paper", "a", "b", "--remove", "own")
    assert listed()[0]["tags"] == ["a", "b"]
    assert tomllib.loads(done("export", "paper").stdout)["tags"] == ["a", "b"]
    assert "TAG: is missing" in run("tag", "paper").stderr
    assert "'a b' is not a tag" in run("tag", "paper", "a b").stderr
    assert "removed" in done("remove", "paper").stderr
    assert listed() == []
    assert run("show", "paper").exit_code == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PAPER.replace("rate", "rat"), "there is no field 'rat'; did you mean rate?"),
        (PAPER.replace("0.8", "1.8"), "is 1.8"),
        (PAPER + "x", "is not valid TOML"),
        ("", "missing"),
    ],
    ids=["field", "value", "syntax", "empty"],
)
def test_a_wrong_file_stores_nothing(db: Path, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    refused = refusal(run("import", path))
    assert message in refused
    assert "wrong.toml" in refused
    assert listed() == []
    surrogate = tmp_path / "surrogate.json"
    surrogate.write_text(json.dumps({**SMALL, "description": "\ud800"}))
    assert "lone surrogate" in run("import", surrogate).stderr
    assert "there is no such file" in run("import", tmp_path / "absent.toml").stderr


def test_a_database_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("no database" * 1000)
    assert "--db: " in run("list", "--db", path).stderr
    assert path.read_text().startswith("no database")
    (tmp_path / "file").touch()
    assert "--db: can't be opened" in run("list", "--db", tmp_path / "file/x.db").stderr
    both = run("list", "--db", path, "--url", "http://127.0.0.1:9")
    assert "--db: is for local databases" in both.stderr
    to_nowhere = run("export", "x", "--db", path, "--out", tmp_path / "a/b")
    assert "--out: there is no folder" in to_nowhere.stderr
