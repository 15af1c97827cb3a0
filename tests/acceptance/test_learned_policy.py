"""A server whose policy learns: solvers answer, runs that end are weighed, replays agree."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deploy.process import Server, edgeyard
from edgeyard.scheduler.framework.policy import read_policy
from tests.acceptance.test_main_path import description

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCORERS = {
    "run_time_model", "failure_model", "measurement_model", "ilp_completion", "ilp_deadlines",
    "least_loaded",
}  # fmt: skip
RUNS = 6


def test_the_policy_learned_places_learns_and_decides_the_same_again(
    tmp_path: Path, squeezenet: Path
) -> None:
    data = tmp_path / "data"
    policy = tmp_path / "patient.toml"
    policy.write_text(with_a_minute_an_answer(read_policy("learned")))
    with edgeyard(data, {"EDGEYARD_POLICY": str(policy)}) as server:
        model = str(server.upload(squeezenet)["name"])
        deadline = (datetime.now(UTC) + timedelta(hours=6)).isoformat()

        def submit() -> str:
            body = description(model, nb_inference=5, deadline=deadline)
            made = server.call("POST", "/v1/benchmarks", body)
            return str(made["benchmark_id"])

        first = submit()
        assert server.wait(first)["status"] == "completed"
        later = [submit() for _ in range(RUNS - 1)]
        for benchmark_id in later:
            ended = server.wait(benchmark_id)
            assert ended["status"] == "completed", ended["failure"]
        explained: Any = server.call("GET", f"/v1/benchmarks/{later[-1]}/explanation")
        answered = {each["scorer"]: each for each in explained["scorers"]}
        assert answered.keys() == SCORERS, explained
        rated = _rated(server)
        assert rated.keys() == SCORERS
        assert all(each["faults"] == 0 for each in rated.values()), rated
    replayed = subprocess.run(
        [sys.executable, "-m", "edgeyard", "replay", "--data-dir", str(data)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def with_a_minute_an_answer(policy: str) -> str:
    """Return a policy in which no answer comes too late, however busy the machine is."""
    changes = {
        "\n[[scorers]]\n": "\n[[scorers]]\nbudget_s = 60.0\n",
        "without one\nweight = 1.0\noptions = { window = 50 }": "\nweight = 1.0\n"
        "options = { window = 50, time_s = 30.0 }",
    }
    for before, after in changes.items():
        assert before in policy
        policy = policy.replace(before, after)
    return policy


def _rated(server: Server) -> dict[str, Any]:
    """Return the policy's scorers by name, once a run that ended was weighed."""
    limit = time.monotonic() + 120.0
    while True:
        answer: Any = server.call("GET", "/v1/scorers")
        found = {each["scorer"]: each for each in answer["items"]}
        if any(each["outcomes"] for each in found.values()):
            return found
        assert time.monotonic() < limit, answer
        time.sleep(0.2)
