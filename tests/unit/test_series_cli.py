"""`edgeyard series`, and what a submission states for its series."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from edgeyard.benchmark_api.figures.results import history_figure
from edgeyard.benchmark_api.sdk import Client
from edgeyard.devices.metrics import Metric
from tests.builders.answers import (
    benchmark,
    row,
    series_change,
    series_point,
    series_points,
    workload,
)
from tests.builders.cli import printed, refusal, run
from tests.fakes.api_server import Answer, FakeServer

SUBMIT = ("submit", "-m", "https://example.org/net.onnx", "-r", "ort", "-t", "TYPE1")
COMMIT = "a" * 40


@pytest.fixture(autouse=True)
def no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the variables of the CI that these tests may run in."""
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "CI_JOB_URL", "BUILD_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


def stated(server: FakeServer, *words: str) -> dict[str, object]:
    """What a submission with these flags states for its series."""
    accepted: dict[str, object] = {
        "benchmark_id": "a",
        "status": "pending",
        "forecast": None,
        "links": {},
    }
    server.on("POST", "/v1/benchmarks", Answer({**accepted, "warnings": []}, 202))
    server.on("GET", "/v1/benchmarks/a", benchmark("a"))
    run(*SUBMIT, "--target", "rpi4b", *words)
    body: Any = server.of("POST", "/v1/benchmarks")[-1].json
    return {name: body[name] for name in ("series", "git_commit", "link") if name in body}


def test_a_submission_states_its_series_commit_and_link(server: FakeServer) -> None:
    words = ("--series", "detector", "--git-commit", COMMIT, "--link", "https://ci.example/7")
    assert stated(server, *words) == {
        "series": "detector",
        "git_commit": COMMIT,
        "link": "https://ci.example/7",
    }
    assert stated(server) == {}


def test_commit_and_link_come_from_the_variables_of_a_ci(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI_COMMIT_SHA", COMMIT)
    monkeypatch.setenv("CI_JOB_URL", "https://gitlab.example/j/1")
    assert stated(server) == {"git_commit": COMMIT, "link": "https://gitlab.example/j/1"}
    monkeypatch.setenv("GITHUB_SHA", "b" * 40)
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("GITHUB_RUN_ID", "12")
    link = "https://github.example/o/r/actions/runs/12"
    assert stated(server) == {"git_commit": "b" * 40, "link": link}
    assert stated(server, "--git-commit", COMMIT)["git_commit"] == COMMIT
    monkeypatch.setenv("GITHUB_SHA", "no commit; rm -rf")
    assert stated(server)["git_commit"] == COMMIT  # the other variable's


def test_series_are_listed_by_pages(server: FakeServer) -> None:
    one = {
        "series_id": "series-1",
        "lineage": "detector",
        "user_id": "alice",
        "target_uid": "rpi4b-0001-0001",
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "measures": "threads=2 · soak of 60 s",
        "points": 12,
        "first_at": "2026-11-01T00:00:00Z",
        "last_at": "2026-11-12T00:00:00Z",
        "threshold": 0.0,
        "alert_id": None,
    }
    first = {"items": [one, {**one, "series_id": "series-2"}], "next_cursor": "next"}
    last = {"items": [{**one, "series_id": "series-3"}], "next_cursor": None}
    server.on("GET", "/v1/series", first, last)
    listed = json.loads(run("series", "list", "--json").stdout)
    assert [each["series_id"] for each in listed] == ["series-1", "series-2", "series-3"]
    server.on("GET", "/v1/series", first)
    shown = run("series", "list", "--limit", "1", "--board", "rpi4b-0001-0001")
    assert "detector" in shown.stdout
    assert "threads=2 · soak of 60 s" in shown.stdout
    assert "the first 1 series; --limit shows more" in shown.stderr
    assert server.of("GET", "/v1/series")[-1].query["target_uid"] == ["rpi4b-0001-0001"]


ID = "0123456789abcdef"


@pytest.mark.parametrize("alert_id", [None, f"alert-{ID}"])
def test_series_fit_in_80_columns(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, alert_id: str | None
) -> None:
    monkeypatch.setenv("EDGEYARD_COLUMNS", "80")
    found = {
        "series_id": f"series-{ID}",
        "lineage": "object-detector-nightly-of-the-main-branch",
        "user_id": "alice",
        "target_uid": "emumid-0001-0002",
        "runtime": "openvino",
        "benchmark_type": "TYPE1",
        "measures": "",
        "points": 120,
        "first_at": "2026-11-01T03:00:00Z",
        "last_at": "2026-11-21T03:00:00Z",
        "threshold": 0.051,
        "alert_id": alert_id,
    }
    server.on("GET", "/v1/series", {"items": [found], "next_cursor": None})
    header, line = printed(run("series", "list")).splitlines()
    assert max(map(len, (header, line))) <= 80
    assert line.startswith("object-d")
    assert line.split()[1:5] == ["emumid-0001-0002", "openvino", "TYPE1", "120"]
    assert line.endswith(alert_id or "03:00:00")


def test_a_history_with_changes_fits_in_80_columns(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_COLUMNS", "80")
    old = row("old", p50_ms=10.0, ended_at="2026-11-01T00:00:00Z")
    new = row("new", p50_ms=12.0, ended_at="2026-11-02T00:00:00Z")
    suspected = {"size": 0.12, "low": 0.1, "high": 0.14}
    points = series_points(series_point(old), series_point(new, suspected=suspected))
    change = series_change(change_id=f"alert-{ID}", lineage="object-detector-nightly")
    server.on("GET", "/v1/series/points", {**points, "changes": [change]})
    lines = printed(run("series", "show", "detector")).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(each.startswith("2026-11-02 00:00:00") for each in lines)
    assert any(each.startswith(f"alert-{ID}") and "object-d" in each for each in lines)


def test_alerts_fit_in_80_columns(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEYARD_COLUMNS", "80")
    sizes = {"size": 0.112, "low": 0.101, "high": -0.123}
    found = series_change(
        "unconfirmed",
        change_id=f"alert-{ID}",
        lineage="object-detector-nightly",
        target_uid="emumid-0001-0002",
        **sizes,
    )
    server.on("GET", "/v1/alerts", {"items": [found], "next_cursor": None})
    header, line = printed(run("alerts", "list")).splitlines()
    assert max(map(len, (header, line))) <= 80
    assert "SERIES" in header
    assert "object-d" in line
    monkeypatch.setenv("EDGEYARD_COLUMNS", "100")
    (_, line) = printed(run("alerts", "list")).splitlines()
    assert "emumid-0001-0002" in line


@pytest.mark.slow
def test_a_series_compares_each_result_with_the_one_before(server: FakeServer) -> None:
    newer = workload(model_sha256="f" * 64, engine_version="9.9")
    old = row("old", p50_ms=10.0, ended_at="2026-11-01T00:00:00Z")
    new = row("new", p50_ms=12.0, ended_at="2026-11-02T00:00:00Z", workload=newer)
    points = series_points(series_point(old), series_point(new, git_commit=COMMIT))
    server.on("GET", "/v1/series/points", points)
    words = ["series", "show", "detector", "--board", "rpi4b-0001-0001", "--since", "30 d"]
    shown = printed(run(*words))
    query = server.of("GET", "/v1/series/points")[0].query
    assert (query["series"], query["target_uid"]) == (["detector"], ["rpi4b-0001-0001"])
    assert query["submitted_from"]
    assert "1.20×" in shown
    assert COMMIT[:10] in shown
    listed = json.loads(run(*words, "--json").stdout)["items"]
    assert [each["ratio"] for each in listed] == [None, 1.2]
    assert listed[1]["changes"] == ["model ffffffff", "ort version 9.9"]
    (_, second) = csv.DictReader(io.StringIO(run(*words, "-o", "csv").stdout))
    assert (second["changes"], second["governor"]) == (
        "model ffffffff; ort version 9.9",
        "performance",
    )
    assert run(*words, "--plot", "series.svg").exit_code == 0
    assert "<svg" in Path("series.svg").read_text()
    with Client() as client:
        found = client.series_points("detector")
    assert [each.benchmark_id for each in found.items] == ["old", "new"]


def test_other_inputs_under_one_lineage_are_two_series_and_it_says_so(server: FakeServer) -> None:
    batches = [{"name": "x", "shape": [32, 64], "dtype": "float32"}]
    other = row(
        "b", p50_ms=90.0, ended_at="2026-11-02T00:00:00Z", workload=workload(inputs=batches)
    )
    points = (
        series_point(row("a", ended_at="2026-11-01T00:00:00Z")),
        series_point(other, series_id="series-2"),
    )
    server.on("GET", "/v1/series/points", series_points(*points))
    shown = printed(run("series", "show", "detector"))
    assert "are 2 series, because they differ in inputs" in shown
    listed = json.loads(run("series", "show", "x", "--json").stdout)["items"]
    assert [each["ratio"] for each in listed] == [None, None]


def test_a_suspected_change_has_a_column_and_a_mark(server: FakeServer) -> None:
    first = series_point(row("a", ended_at="2026-11-01T00:00:00Z"))
    change = {"size": 0.051, "low": 0.04, "high": 0.062}
    second = series_point(row("b", ended_at="2026-11-02T00:00:00Z"), suspected=change)
    server.on("GET", "/v1/series/points", series_points(first, second))
    assert "+5.1 % (+4.0 to +6.2)" in printed(run("series", "show", "x", "--plot", "series.svg"))
    (_, shown) = csv.DictReader(io.StringIO(run("series", "show", "x", "-o", "csv").stdout))
    assert (shown["suspected"], shown["suspected_high"]) == ("0.051", "0.062")
    (mark,) = history_figure(
        series_points(first, second)["items"], Metric("p50", "p50", "ms", "lower")
    ).marks
    assert mark.text.startswith("+5.1 % (+4.0 to +6.2) suspected")


@pytest.mark.parametrize(
    ("status", "shown"),
    [("confirmed", "confirmed"), ("noise", "noise"), ("confirming", "being confirmed")],
)
def test_a_mark_states_what_became_of_a_suspected_change(status: str, shown: str) -> None:
    first = series_point(row("a", ended_at="2026-11-01T00:00:00Z"))
    suspected = {"size": 0.08, "low": 0.06, "high": 0.1}
    second = series_point(row("b-9", ended_at="2026-11-02T00:00:00Z"), suspected=suspected)
    items = series_points(first, second)["items"]
    metric = Metric("p50", "p50", "ms", "lower")
    (mark,) = history_figure(items, metric, changes=[series_change(status)]).marks
    assert mark.text == f"+8.0 % (+6.0 to +10.0) {shown}"


def test_runs_that_failed_are_counted_and_drawn_without_a_value(server: FakeServer) -> None:
    point = series_point(row("a", ended_at="2026-11-01T00:00:00Z"))
    failed = {
        **{name: point[name] for name in ("target_uid", "runtime", "benchmark_type")},
        "benchmark_id": "b",
        "ended_at": "2026-11-02T00:00:00Z",
        "failure": {"category": "out_of_memory", "sentence": "It needs 5 GiB."},
    }
    server.on("GET", "/v1/series/points", {**series_points(point), "failed": [failed]})
    drawn = run("series", "show", "x", "--plot", "series.svg")
    assert "1 failed in this time" in drawn.stderr
    assert "left out" not in drawn.stderr
    server.on("GET", "/v1/series/points", {**series_points(point), "left_out": 2})
    with_left_out = run("series", "show", "x")
    assert "2 completed without a number, or with 0, are left out" in with_left_out.stderr
    assert "cross: failed" in Path("series.svg").read_text()


def test_a_series_without_points_is_refused(server: FakeServer) -> None:
    server.on("GET", "/v1/series/points", series_points())
    refused = refusal(run("series", "show", "absent"))
    assert "no completed benchmark of 'absent' has a number other than 0" in refused
    refused = refusal(run("series", "show", "absent", "--since", "2030-01-01"))
    assert "no completed benchmark of 'absent' since 2030-01-01 has a number" in refused
    assert "--plot: can't draw 'series.txt'" in refusal(
        run("series", "show", "absent", "--plot", "series.txt")
    )


def test_what_became_of_changes_is_below_the_series_with_its_threshold(server: FakeServer) -> None:
    point = series_point(row("b-9", value=10.8))
    changes = [series_change(), series_change("noise", change_id="alert-0", lineage="detector")]
    watched = {
        **{name: changes[0][name] for name in ("series_id", "lineage", "user_id", "target_uid")},
        **{"runtime": "ort", "benchmark_type": "TYPE1", "alert_unconfirmed": False},
        **{"threshold": 0.05, "threshold_at": "2026-11-21T08:00:00Z", "looked_at": None},
    }
    found = {**series_points(point), "changes": changes, "watched": [watched]}
    server.on("GET", "/v1/series/points", found)
    text = printed(run("series", "show", "detector"))
    assert "alert-1" in text
    assert "noise" in text
    assert "+8.0 % (+6.0 to +10.0)" in text
    assert "threshold 5.0 %" in text
