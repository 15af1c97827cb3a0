"""Soaks, callers at once and loads on a real board: submitted, followed, shown, drawn, refused."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from edgeyard import Client
from edgeyard.benchmark_api.cli import app
from tests.builders.networks import DEMO

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("server")]

BOARD = "emumid-0001-0001"
JOB: dict[str, Any] = {
    "model": DEMO / "digits.onnx",
    "runtime": "ort",
    "benchmark_type": "TYPE1",
    "target_uid": BOARD,
}


def test_a_soak_has_a_number_for_each_window_and_one_of_its_steady_part(
    client: Client, tmp_path: Path
) -> None:
    done = client.submit(
        **JOB, soak=3, soak_window=0.5, user_time="60 s", wait=True, progress=False
    )
    found = client.results(done)
    report: Any = found.report
    soak = report["soak"]
    count = len(soak["windows"])
    assert 2 <= count <= 6, "a busy machine may take longer than a window for a chunk"
    assert soak["duration_s"] >= 3
    assert 0 <= soak["overhead"] < 1
    numbers = np.load(found.download("soak.npz", tmp_path / "soak.npz"))
    medians = [float(np.median(numbers["ms"][numbers["window"] == each])) for each in range(count)]
    assert medians == pytest.approx([each["p50_ms"] for each in soak["windows"]])
    steady = soak["steady"]
    counted = numbers["ms"]
    if steady is not None:
        counted = counted[numbers["window"] >= count - steady["windows"]]
    assert report["inference_latency"]["p50"] == pytest.approx(float(np.median(counted)))
    codes = [each["code"] for each in report["verdict"]["reasons"]]
    assert ("not_steady" in codes) is (steady is None)
    assert found.answer.soak is not None
    shown = CliRunner().invoke(app, ["results", done.benchmark_id])
    assert "Windows of 0.5 s" in shown.output
    picture = tmp_path / "soak.svg"
    drawn = CliRunner().invoke(app, ["results", done.benchmark_id, "--plot", str(picture)])
    assert drawn.exit_code == 0, drawn.output
    ElementTree.parse(picture)


SUBMIT = (
    *("submit", "--model", str(DEMO / "digits.onnx"), "--runtime", "ort", "--type", "TYPE1"),
    *("--target-uid", BOARD, "--soak", "30m", "--dry-run"),
)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--user-time", "15m"), "no board runs a soak of 1800 s within 900 s"),
        (("--user-time", "30m"), "at least 1860 s"),
        (("--user-time", "31m", "--user-budget", "100"), "credits are too few"),
        (("--user-time", "31m", "--soak-window", "20m"), "at least 3600 s"),
    ],
)
def test_a_soak_that_is_longer_than_its_time_limit_is_refused(
    client: Client, flags: tuple[str, ...], words: str
) -> None:
    refused = CliRunner().invoke(app, [*SUBMIT, *flags])
    assert refused.exit_code == 1, refused.output
    assert words in " ".join(refused.output.split())


def test_a_soak_that_ends_in_its_time_limit_is_accepted(client: Client) -> None:
    accepted = CliRunner().invoke(app, [*SUBMIT, "--user-time", "31m"])
    assert accepted.exit_code == 0, accepted.output


def test_a_soak_that_states_no_time_limit_has_one_that_it_fits(client: Client) -> None:
    accepted = CliRunner().invoke(app, [*SUBMIT, "--json"])
    assert accepted.exit_code == 0, accepted.output
    made = client.submit(**JOB, soak="30 min", start_time="2099-01-01T00:00:00Z")
    assert client.benchmark(made).description["user_time"] == 1800.0 + 900.0
    client.cancel(made)


@pytest.mark.parametrize(
    ("callers", "words"),
    [
        ("64", "64 callers at once, and emumid-0001-0001 has"),
        ("1,16", "16 callers share"),
    ],
)
def test_more_callers_than_cores_are_refused_or_said(
    client: Client, callers: str, words: str
) -> None:
    flags = ("--concurrency", callers, "--dry-run")
    done = CliRunner().invoke(app, [*SUBMIT[:-3], *flags])
    assert done.exit_code == (1 if callers == "64" else 0), done.output
    assert words in " ".join(done.output.split())


def test_callers_at_once_have_throughput_and_latency_each_and_the_result_of_the_knee(
    client: Client, tmp_path: Path
) -> None:
    done = client.submit(**JOB, concurrency="4,1", user_time="60 s", wait=True, progress=False)
    found = client.results(done)
    report: Any = found.report
    curve = report["concurrency"]
    assert [each["callers"] for each in curve["levels"]] == [1, 4]
    assert curve["shared_model"] is True
    chosen = next(each for each in curve["levels"] if each["callers"] == curve["knee"])
    assert report["runs_per_s"] == chosen["runs_per_s"]
    assert report["inference_latency"]["p50"] == chosen["p50_ms"]
    numbers = np.load(found.download("latencies.npy", tmp_path / "latencies.npy"))
    assert float(np.median(numbers)) == pytest.approx(chosen["p50_ms"])
    assert len(numbers) == chosen["nb_inference"]
    for each in curve["levels"]:
        assert each["duration_s"] > 1
        assert each["nb_inference"] >= 20
    codes = [each["code"] for each in report["verdict"]["reasons"]]
    assert ("callers_exceed_cores" in codes) is (curve["cores"] < 4)
    row = found.answer.summary
    assert row is not None
    assert (row.primary_metric, row.primary_value) == ("runs_per_s", chosen["runs_per_s"])
    assert row.workload.load == "concurrency 1,4"
    shown = CliRunner().invoke(app, ["results", done.benchmark_id])
    assert "Callers at once" in shown.output
    assert "The knee is at" in shown.output
    picture = tmp_path / "curve.svg"
    drawn = CliRunner().invoke(app, ["results", done.benchmark_id, "--plot", str(picture)])
    assert drawn.exit_code == 0, drawn.output
    ElementTree.parse(picture)


def test_callers_of_an_engine_that_does_not_share_have_a_model_each(client: Client) -> None:
    job = {**JOB, "model": DEMO / "digits.tflite", "runtime": "tflite"}
    done = client.submit(**job, concurrency=2, user_time="60 s", wait=True, progress=False)
    curve: Any = client.results(done).report["concurrency"]
    assert (curve["shared_model"], curve["callers"], curve["knee"]) == (False, 2, None)


def test_more_numbers_of_callers_than_the_time_limit_allows_are_refused(client: Client) -> None:
    submit = ["submit", "--model", str(DEMO / "digits.onnx"), "--runtime", "ort", "--type", "TYPE1"]
    flags = ["--target-uid", BOARD, "--concurrency", "1,2,4", "--user-time", "5s", "--dry-run"]
    refused = CliRunner().invoke(app, [*submit, *flags])
    assert refused.exit_code == 1, refused.output
    assert "3 numbers of callers, one after another," in " ".join(refused.output.split())


def test_a_server_load_finds_the_largest_rate_that_keeps_its_bound(
    client: Client, tmp_path: Path
) -> None:
    done = client.submit(
        **JOB,
        load="server",
        load_bound="250 ms",
        load_percentile=90,
        load_duration=0.3,
        load_seed=3,
        user_time="60 s",
        wait=True,
        progress=False,
    )
    found = client.results(done)
    report: Any = found.report
    test = report["load_test"]
    assert (test["seed"], test["bound_ms"], test["percentile"]) == (3, 250, 90)
    assert test["result"]["rate"] == test["largest_rate"]
    assert test["result"]["p90_ms"] <= 250
    for each in test["trials"]:
        assert each["nb_inference"] >= 1
        assert each["queue_max"] >= 0
    numbers = np.load(found.download("latencies.npy", tmp_path / "latencies.npy"))
    assert len(numbers) == test["result"]["nb_inference"] >= 64
    row = found.answer.summary
    assert row is not None
    assert (row.primary_metric, row.primary_value) == ("load_rate", test["largest_rate"])
    assert found.answer.load_test is not None
    shown = CliRunner().invoke(app, ["results", done.benchmark_id])
    assert "Trials by LoadGen's rules" in shown.output
    assert "the largest rate that keeps 250 ms at the 90th percentile" in " ".join(
        shown.output.split()
    )
    picture = tmp_path / "load.svg"
    drawn = CliRunner().invoke(app, ["results", done.benchmark_id, "--plot", str(picture)])
    assert drawn.exit_code == 0, drawn.output


def test_a_bound_that_no_rate_keeps_fails_with_what_to_change(client: Client) -> None:
    job = {**JOB, "load": "server", "load_bound": 2e-6, "load_percentile": 90, "max_retries": 0}
    done = client.submit(**job, user_time="60 s", wait=False)
    ended = client.wait(done, progress=False, check=False)
    assert ended.failure is not None
    assert ended.failure.category == "user_input"
    assert "can't be kept at any rate" in ended.failure.sentence


def test_single_stream_states_the_percentile_that_counts(client: Client) -> None:
    done = client.submit(
        **JOB, load="single-stream", load_duration=0.3, user_time="60 s", wait=True, progress=False
    )
    found = client.results(done)
    report: Any = found.report
    assert report["primary_metric"] == "load_latency"
    assert report["load_test"]["latency_ms"] == pytest.approx(
        report["inference_latency"]["p90"], rel=1e-6
    )


def test_a_trial_that_is_longer_than_the_time_limit_is_refused(client: Client) -> None:
    submit = ["submit", "--model", str(DEMO / "digits.onnx"), "--runtime", "ort", "--type", "TYPE1"]
    flags = ["--target-uid", BOARD, "--load", "server", "--load-bound", "50ms", "--load-rate", "1"]
    refused = CliRunner().invoke(app, [*submit, *flags, "--user-time", "5m", "--dry-run"])
    assert refused.exit_code == 1, refused.output
    assert "no board runs a trial of 6" in " ".join(refused.output.split())


def test_a_soak_has_lines_of_csv_and_a_section_of_the_html_page(
    client: Client, tmp_path: Path
) -> None:
    done = client.submit(
        **JOB, soak=0.75, soak_window=0.25, user_time="60 s", wait=True, progress=False
    )
    report: Any = client.results(done).report
    windows = report["soak"]["windows"]
    shown = CliRunner().invoke(app, ["results", done.benchmark_id, "-o", "csv"])
    lines = list(csv.DictReader(io.StringIO(shown.stdout)))
    assert [float(each["window_p50_ms"]) for each in lines] == pytest.approx(
        [each["p50_ms"] for each in windows]
    )
    page = tmp_path / "page.html"
    written = CliRunner().invoke(app, ["results", done.benchmark_id, "--html", str(page)])
    assert written.exit_code == 0, written.output
    text = page.read_text("utf-8")
    assert "Load of digits.onnx" in text
    assert "<th class=n>p50, ms<" in text
    assert "Median latency" in text or "p50" in text
