"""A soak on a real board: submitted, followed, shown, drawn, refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from deploy.process import Server
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


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("EDGEYARD_URL", server.url)
    monkeypatch.setenv("EDGEYARD_TOKEN", server.token)
    with Client() as made:
        yield made


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
        ((), "no board runs a soak of 1800 s within 900 s"),
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
