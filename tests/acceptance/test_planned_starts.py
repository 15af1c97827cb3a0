"""A server whose policy plans: a benchmark waits for a quiet host, and says so at all doors."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deploy.process import Server, edgeyard
from edgeyard import Client
from edgeyard.scheduler.framework.policy import read_policy
from tests.acceptance.test_main_path import description

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RUNS, WAITS = "emumid-0001-0001", "emumid-0001-0002"
CHANGES = {
    'name = "default"': 'name = "quiet"',
    "quiet_s = 0.0": "quiet_s = 10000.0",
}


def test_a_benchmark_waits_for_a_quiet_host_with_its_planned_start_shown(
    tmp_path: Path, squeezenet: Path
) -> None:
    text = read_policy("default")
    for before, after in CHANGES.items():
        assert before in text
        text = text.replace(before, after)
    policy = tmp_path / "quiet.toml"
    policy.write_text(text)
    with (
        edgeyard(tmp_path / "data", {"EDGEYARD_POLICY": str(policy)}) as server,
        Client(server.url, server.token) as client,
    ):
        stored = server.upload(squeezenet)

        def submit(uid: str, runs: int) -> str:
            body = description(str(stored["name"]), nb_inference=runs, target_uid=uid)
            made = server.call("POST", "/v1/benchmarks", body | {"target": None})
            return str(made["benchmark_id"])

        first = submit(RUNS, 3000)
        server.wait(first, ("running",))
        second = submit(WAITS, 3)
        shown = _held(server, second)
        planned = shown["planned"]
        assert shown["waiting_reason"]["code"] == "quiet_host", shown
        assert (planned["target_uid"], planned["reason"]) == (WAITS, "quiet_host")
        assert planned["gain_s"] > 0.0
        start = datetime.fromisoformat(planned["start"])
        forecast = shown["forecast"]
        assert abs(datetime.fromisoformat(forecast["start"]) - start) < timedelta(seconds=60)
        listed: Any = server.call("GET", "/v1/queue")
        [row] = [each for each in listed["items"] if each["benchmark_id"] == second]
        assert row["planned"]["target_uid"] == WAITS
        of_sdk = client.benchmark(second).planned
        assert of_sdk is not None
        assert of_sdk.target_uid == WAITS
        explained: Any = server.call("GET", f"/v1/benchmarks/{second}/explanation")
        assert explained["planned"]["reason"] == "quiet_host"
        server.call("POST", f"/v1/benchmarks/{first}/cancel")
        ended = server.wait(second)
        assert ended["status"] == "completed", ended
        assert str(ended["started_at"]) >= str(server.show(first)["ended_at"])


def _held(server: Server, benchmark_id: str) -> dict[str, Any]:
    """Return a benchmark as it is shown once it is held back by a plan."""
    limit = time.monotonic() + 60.0
    while True:
        shown = server.show(benchmark_id)
        if shown.get("planned") and shown.get("waiting_reason") and shown.get("forecast"):
            return shown
        assert time.monotonic() < limit, json.dumps(shown)
        time.sleep(0.1)
