"""``infer`` and what ``results`` shows of it on the command line, against canned answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from tests.builders.answers import ID, results, row
from tests.fakes.api_server import FakeServer

ONE = f"/v1/benchmarks/{ID}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeServer]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with FakeServer() as running:
        monkeypatch.setenv("EDGEYARD_URL", running.url)
        yield running


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_throughput_is_shown_in_runs_and_in_rows(server: FakeServer) -> None:
    answer = results(verdict="suspect")
    answer["summary"] |= {"runs_per_s": 80.0, "rows_per_s": 640.0}
    server.on("GET", f"{ONE}/results", answer)
    assert "throughput 80 runs/s, 640 rows/s suspect" in " ".join(run("results", ID).stdout.split())
    rows = [row("a", runs_per_s=80.0, rows_per_s=640.0), row("b", rows_per_s=None)]
    server.on("GET", "/v1/results", {"items": rows})
    shown = run("results", "a", "b").stdout
    assert "RUNS/s  ROWS/s" in shown
    assert "640" in shown
