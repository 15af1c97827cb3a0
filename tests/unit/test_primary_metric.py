"""Benchmarks whose engine declares a primary metric of which higher is better, everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from edgeyard.benchmark_api.sdk import Client
from edgeyard.devices.metrics import Metric, measured_metrics, primary_metric
from tests.builders.answers import (
    ID,
    UID,
    benchmark,
    check_pair,
    problem,
    report,
    results,
    row,
    series_point,
    series_points,
    stored_check,
    workload,
)
from tests.builders.cli import printed, refusal, run
from tests.fakes.api_server import Answer, FakeServer

TOKENS = Metric("tokens_per_s", "decoded tokens per second", "1/s", "higher")
WORK = workload(benchmark_type="TYPE4", engine="chat", metric=TOKENS.sentence)


def decoded(benchmark_id: str, tokens_per_s: float | None, **changes: object) -> dict[str, Any]:
    """A row of a benchmark whose primary metric is known to 0.1 %."""
    value = tokens_per_s
    return row(
        benchmark_id,
        benchmark_type="TYPE4",
        runtime="chat",
        workload=WORK,
        primary_metric=TOKENS.name,
        primary_title=TOKENS.title,
        primary_unit=TOKENS.unit,
        primary_better=TOKENS.better,
        primary_value=value,
        primary_low=None if value is None else 0.999 * value,
        primary_high=None if value is None else 1.001 * value,
    ) | dict(changes)


def lines_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_comparison_is_relative_to_the_highest_number(server: FakeServer) -> None:
    rows = [decoded("a", 50.0), decoded("b", 100.0), decoded("c", 400.0, verdict="invalid")]
    server.on("GET", "/v1/results", {"items": rows})
    found = json.loads(printed(run("results", "a", "b", "c", "--json")))
    assert [(each["benchmark_id"], each["ratio"]) for each in found] == [
        ("c", None),
        ("b", 1.0),
        ("a", 0.5),
    ]
    low, high = found[2]["ratio_low"], found[2]["ratio_high"]
    assert 0.49 < low < 0.5 < high < 0.51
    shown = printed(run("results", "a", "b", "c"))
    assert "TOKENS/s" in shown
    assert "tokens_per_s in 1/s, higher is better" in shown
    assert "0.50× (0.50-0.50)" in shown
    assert "400!" in shown
    assert "P90" not in shown, "the p90 of the latency says nothing next to tokens per second"


def test_numbers_of_several_metrics_are_shown_with_their_units_and_never_compared(
    server: FakeServer,
) -> None:
    server.on("GET", "/v1/results", {"items": [decoded("a", 50.0), row("b", p50_ms=12.3)]})
    shown = printed(run("results", "a", "b"))
    assert "RESULT" in shown
    assert "50 tokens/s" in shown
    assert "12.3 ms" in shown
    assert "p50 in ms, lower is better" in shown
    found = json.loads(printed(run("results", "a", "b", "--json")))
    assert {each["ratio"] for each in found} == {None}
    refused = refusal(run("results", "a", "b", "--plot", "all.svg"))
    assert "no common axis" in refused
    assert "--html" in refused, "which draws each"
    for each in ("a", "b"):
        server.on("GET", f"/v1/benchmarks/{each}/results", results(each))
    refusal(run("results", "a", "b", "--plot", "all.svg", "--html", "all.html"))
    assert "<svg" in Path("all.html").read_text()


def test_an_interval_whose_ends_are_not_known_is_said_to_be_so(server: FakeServer) -> None:
    unknown = {"primary_low": None, "primary_high": None, "primary_degrees": 1.0}
    rows = [decoded("a", 5954.0, **unknown), decoded("b", 9000.0, verdict="suspect")]
    server.on("GET", "/v1/results", {"items": rows})
    lines = printed(run("results", "a", "b")).splitlines()
    assert "not known" in next(line for line in lines if "5954" in line)
    shown = results("a")
    shown["summary"] = rows[0]
    shown["reports"][0]["report"] = declared_report()
    server.on("GET", "/v1/benchmarks/a/results", shown)
    assert "5954 1/s (95 %: not known)" in printed(run("results", "a"))


def test_the_report_page_has_a_figure_of_each_metric_with_its_direction(server: FakeServer) -> None:
    rows = [decoded("a", 50.0), decoded("b", 100.0), row("c")]
    server.on("GET", "/v1/results", {"items": rows})
    for name in "ab":
        server.on("GET", f"/v1/benchmarks/{name}/results", results(name))
    assert run("results", "a", "b", "c", "--html", "all.html").exit_code == 0
    text = Path("all.html").read_text()
    assert "decoded tokens per second (higher is better); 2 values" in text
    assert "median latency, ms (lower is better); 1 value" in text
    assert "100 tokens/s" in text
    server.on("GET", "/v1/results", {"items": rows[:2]})
    assert run("results", "a", "b", "--html", "all.html").exit_code == 0
    assert "<th class=n>tokens_per_s, 1/s" in Path("all.html").read_text()


def test_a_plot_is_of_the_primary_metric(server: FakeServer) -> None:
    pytest.importorskip("matplotlib")
    server.on("GET", "/v1/results", {"items": [decoded("a", 50.0), decoded("b", 100.0)]})
    for name in "ab":
        shown = results(name)
        shown["summary"] = decoded(name, 50.0 if name == "a" else 100.0)
        server.on("GET", f"/v1/benchmarks/{name}/results", shown)
    assert run("results", "a", "b", "--plot", "tokens.svg").exit_code == 0
    assert Path("tokens.svg").read_text().count("<svg") == 1


def test_the_list_has_the_primary_metric_of_completed_benchmarks(server: FakeServer) -> None:
    listed = [benchmark("a"), benchmark("b"), benchmark("c", "running")]
    server.on("GET", "/v1/benchmarks", {"items": listed, "next_cursor": None})
    rows = [decoded("a", 50.0, verdict="suspect"), row("b", p50_ms=12.3)]
    server.on("GET", "/v1/results", {"items": rows})
    header, first, second, third = lines_of(printed(run("list")))
    assert "RESULT" in header
    assert (first[0], " ".join(first[-2:])) == ("a", "50 tokens/s?")
    assert (second[0], " ".join(second[-2:])) == ("b", "12.3 ms")
    assert server.of("GET", "/v1/results")[0].query["benchmark_id"] == ["a", "b"]
    assert "ms" not in third
    server.on("GET", "/v1/results", Answer(problem(404, "not_found", "deleted"), 404))
    assert "RESULT" not in printed(run("list"))


def test_the_list_tells_a_median_from_what_a_load_is_about(server: FakeServer) -> None:
    listed = [benchmark(each) for each in "abcd"]
    server.on("GET", "/v1/benchmarks", {"items": listed, "next_cursor": None})
    at_p90 = workload(load="single-stream by LoadGen's rules: p90, 0.5 s")
    latency = {"primary_metric": "load_latency", "primary_value": 0.00848, "workload": at_p90}
    rate = {"primary_metric": "load_rate", "primary_unit": "1/s", "primary_value": 25200.0}
    callers = {"primary_metric": "runs_per_s", "primary_unit": "1/s", "primary_value": 74996.0}
    rows = [row("a", **latency), row("b", **rate), row("c", **callers), row("d")]
    server.on("GET", "/v1/results", {"items": rows})
    found = [" ".join(line[-3:]) for line in lines_of(printed(run("list")))[1:]]
    shown = ["0.00848 ms p90", "25200 queries/s", "74996 runs/s", "12.3 ms"]
    assert all(line.endswith(end) for line, end in zip(found, shown, strict=True)), found


@pytest.mark.parametrize("name", ["load_rate", "runs_per_s"])
def test_the_runs_of_a_second_stand_beside_no_primary_rate(server: FakeServer, name: str) -> None:
    """Of several callers they are the primary number, and queries of a load arrive by chance."""
    rate = {"primary_metric": name, "primary_unit": "1/s", "primary_value": 25200.0}
    rows = [row(each, runs_per_s=25330.0, **rate) for each in "ab"]
    server.on("GET", "/v1/results", {"items": rows})
    server.on("GET", "/v1/benchmarks/a/results", {**results("a"), "summary": rows[0]})
    for shown in (printed(run("results", "a", "b")), printed(run("results", "a"))):
        assert "25200" in shown
        assert "25330" not in shown


def test_language_models_are_compared_by_their_first_token_and_prefill(server: FakeServer) -> None:
    numbers = {"time_to_first_token_ms": 21.5, "prefill_tokens_per_s": 3300.0, "runs_per_s": None}
    tokens = {"primary_metric": "decode_tokens_per_s", "primary_unit": "1/s"}
    rows = [
        decoded("a", 50.0, **numbers, **tokens),
        decoded("b", 100.0, **numbers, **tokens, verdict="invalid"),
    ]
    server.on("GET", "/v1/results", {"items": rows})
    shown = printed(run("results", "a", "b"))
    assert "FIRST TOKEN ms" in shown
    assert "PREFILL TOKENS/s" in shown
    assert "21.5!" in shown
    assert "3300" in shown
    assert "RUNS/s" not in shown
    prefill = {**tokens, "primary_metric": "prefill_tokens_per_s"}
    server.on("GET", "/v1/results", {"items": [row | prefill for row in rows]})
    assert printed(run("results", "a", "b")).count("PREFILL TOKENS/s") == 1


def test_the_end_of_a_benchmark_shows_its_primary_metric(server: FakeServer) -> None:
    server.on("GET", "/v1/benchmarks/a", benchmark("a"))
    server.on("GET", "/v1/results", {"items": [decoded("a", 50.0)]})
    assert "TOKENS/s" in printed(run("wait", "a"))
    assert "primary_value" in printed(run("wait", "a", "-o", "csv"))


def test_a_series_compares_each_number_with_the_one_before(server: FakeServer) -> None:
    pytest.importorskip("matplotlib")
    ended = [f"2026-11-2{day}T08:00:00Z" for day in range(3)]
    points = [
        series_point(decoded(name, tokens, ended_at=at))
        for name, tokens, at in zip("abc", (100.0, 50.0, 60.0), ended, strict=True)
    ]
    server.on("GET", "/v1/series/points", series_points(*points))
    shown = printed(run("series", "show", "net.onnx", "--plot", "series.svg"))
    assert "TOKENS/s" in shown
    assert "higher is better" in shown
    assert "0.50× (0.50-0.50)" in shown
    assert "1.20×" in shown
    assert Path("series.svg").is_file()


def test_a_check_shows_the_metric_that_it_judges(server: FakeServer) -> None:
    pairs = [
        check_pair(number, 0.9, baseline_value=100.0, candidate_value=90.0, slowdown=0.1)
        for number in range(3)
    ]
    metric = {name: getattr(TOKENS, name) for name in ("name", "title", "unit", "better")}
    about = {"metric": metric, "slowdown": 0.1, "low": 0.09, "high": 0.11}
    ended = stored_check("failed", *pairs, reason="the slowdown is more than 3.00%", **about)
    server.on("GET", "/v1/benchmarks/base", benchmark("base", target_uid=UID))
    server.on("POST", "/v1/checks", Answer(ended, 202))
    server.on("GET", "/v1/checks/check-1", ended)
    files = ("--markdown", "check.md", "--junit", "check.xml")
    done = run("check", "--baseline", "base", "--parameter", "threads=1", *files)
    assert done.exit_code == 2
    assert "failed: +10.0" in done.stdout
    assert "pair 1: baseline 100 1/s, candidate 90 1/s (+10.00%)" in done.stderr
    assert "| baseline | tokens_per_s, 1/s | candidate |" in Path("check.md").read_text()
    assert ElementTree.parse("check.xml").getroot().get("failures") == "1"


def declared_report(**changes: Any) -> dict[str, Any]:
    tokens: dict[str, Any] = {
        "value": 50.0,
        "unit": "1/s",
        "title": TOKENS.title,
        "better": "higher",
        "ci95": [49.5, 50.5],
        "ci95_degrees": 3.0,
    }
    values = {TOKENS.name: tokens, "joules": {"value": 3.5, "unit": "J"}, "text": {"value": "no"}}
    stated = {"benchmark_type": "TYPE4", "primary_metric": TOKENS.name, "results": values}
    return report(**{**stated, **changes})


def test_one_result_shows_the_primary_metric_first_and_what_is_declared(server: FakeServer) -> None:
    shown = results()
    shown["summary"] = decoded(ID, 50.0, primary_repeat_low=48.0, primary_repeat_high=52.0)
    shown["reports"][0]["report"] = declared_report()
    server.on("GET", f"/v1/benchmarks/{ID}/results", shown)
    output = [" ".join(line) for line in lines_of(printed(run("results", ID)))]
    text = "\n".join(output)
    stated = "tokens_per_s 50 1/s (95 %: 50 to 50); decoded tokens per second, higher is better"
    assert text.count("tokens_per_s 50 1/s") == 1
    assert stated in text
    assert "repeated tokens_per_s 95 %: 48 to 52 1/s" in text
    assert "p50 12.3 ms" in text, "the latency stays"
    assert text.index("tokens_per_s 50") < text.index("p50 12.3")
    assert "joules 3.5 J" in text
    with Client() as client:
        found = client.results(ID)
    assert found.primary is not None
    assert (found.primary.metric, found.primary.value) == (TOKENS, 50.0)
    assert found.primary.metric.title == TOKENS.title
    assert (found.values["tokens_per_s"].better, found.values["tokens_per_s"].low) == (
        "higher",
        49.5,
    )
    assert found.metrics["joules"].metric.better == ""
    assert found.metrics["p90"].metric.better == "lower"
    assert "tokens_per_s 50 1/s (95 %: 49.5 to 50.5 1/s)" in repr(found)


def test_a_data_frame_has_the_primary_metric(server: FakeServer) -> None:
    pytest.importorskip("pandas")
    server.on("GET", "/v1/results", {"items": [decoded("a", 50.0), decoded("b", 100.0)]})
    with Client() as client:
        frame = client.results_frame(["a", "b"])
    assert list(frame.index) == ["b", "a"]
    assert frame["primary_value"].tolist() == [100.0, 50.0]
    assert frame["ratio"].tolist() == [1.0, 0.5]
    assert frame["primary_better"].tolist() == ["higher", "higher"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, TOKENS.name),
        ({"primary_metric": "p50"}, "p50"),
        ({"primary_metric": None}, "p50"),
        ({"primary_metric": "joules"}, None),  # its direction is not known
        ({"primary_metric": "text"}, None),
        ({"primary_metric": "unknown"}, None),
        ({"results": {"tokens_per_s": {"value": 10**400, "better": "higher"}}}, None),
        ({"inference_latency": None, "primary_metric": None}, None),
    ],
)
def test_a_number_without_a_direction_is_never_primary(
    changes: dict[str, Any], name: str | None
) -> None:
    found = primary_metric(declared_report(**changes))
    assert (None if found is None else found.metric.name) == name


def test_an_accuracy_that_only_its_runner_knows_is_shown_without_a_direction() -> None:
    accuracy = {"metric": "bleu", "name": "BLEU", "value": 0.3}
    found = {
        each.metric.name: each
        for each in measured_metrics(report(benchmark_type="TYPE2", accuracy=accuracy))
    }
    assert next(iter(found)) == "p50"
    assert (found["BLEU"].value, found["BLEU"].metric.direction) == (0.3, "")
