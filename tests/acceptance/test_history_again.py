"""The recorded days of a real server are simulated again, and then differently."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from deploy.process import edgeyard
from edgeyard import Client
from edgeyard.benchmark_api.cli import app
from edgeyard.simulator.runs import PENDING, load_run
from edgeyard.simulator.scenario import load_scenario
from tests.builders.runner import linear_model

pytestmark = pytest.mark.slow

TOLERANCE_S = 3.0
"""And a quarter: what decisions, events and a loaded machine make of a wait."""


def sim(*words: str | Path) -> Result:
    found = CliRunner().invoke(app, ["sim", *map(str, words)])
    assert found.exit_code == 0, found.output
    return found


def test_a_recorded_history_has_its_own_waits_again_and_other_ones_under_another_policy(
    tmp_path: Path,
) -> None:
    """Six benchmarks queue for one board, the last one with the highest priority."""
    model = linear_model(np.ones((4, 3), dtype=np.float32))
    data, out = tmp_path / "data", tmp_path / "out"
    with (
        edgeyard(data) as server,
        Client(url=server.url, token=server.token) as client,
    ):
        (board,) = [each for each in client.boards() if each.family == "emuslow"][:1]
        submitted = [
            client.submit(
                model=model,
                runtime="ort",
                benchmark_type="TYPE1",
                target_uid=board.target_uid,
                nb_inference=200,
                user_priority=10 if number == 5 else 5,
                name=f"n{number}",
            )
            for number in range(6)
        ]
        cancelled = client.submit(
            model=model,
            runtime="ort",
            benchmark_type="TYPE1",
            target_uid=board.target_uid,
            start_time="2099-01-01T00:00:00Z",
        )
        client.wait(submitted, timeout=120)
        client.cancel(cancelled.benchmark_id)
        ended = [client.benchmark(each.benchmark_id) for each in submitted]
        recorded_s = {
            each.benchmark_id: (each.attempts[-1].created_at - each.submit_time).total_seconds()
            for each in ended
            if each.submit_time is not None
        }
        families = {each.target_uid for each in client.boards()}
    assert max(recorded_s.values()) > 0
    saved = tmp_path / "history.toml"
    sim("from-history", "--data-dir", data, "--out", out, "--save", saved)
    (file,) = out.iterdir()
    run = load_run(file)
    simulated_s = dict(
        zip(run.jobs.job.tolist(), run.jobs.start_s - run.jobs.submit_s, strict=True)
    )
    for benchmark_id, wait_s in recorded_s.items():
        assert simulated_s[benchmark_id] == pytest.approx(wait_s, rel=0.25, abs=TOLERANCE_S)
    assert cancelled.benchmark_id in simulated_s  # it never ran, and is there all the same
    assert PENDING not in run.jobs.status
    scenario = load_scenario(saved)
    assert scenario.lab is not None
    assert {uid for group in scenario.lab.boards for uid in group.uids} == families
    (urgent,) = [job for job in scenario.lab.jobs if job.job_id == submitted[5].benchmark_id]
    assert (urgent.user_priority, urgent.target_uid) == (10, board.target_uid)

    found = sim("run", saved, "--policy", "default", "--policy", "fcfs", "--json")
    policies = {row["policy"]: row for row in json.loads(found.stdout)["policies"]}
    assert set(policies) == {"default", "fcfs"}
    again = tmp_path / "again"
    sim("run", saved, "--policy", "fcfs", "--out", again)
    (file,) = again.iterdir()
    other = load_run(file)
    starts = dict(zip(other.jobs.job.tolist(), other.jobs.start_s.tolist(), strict=True))
    in_turn = [starts[each.benchmark_id] for each in submitted]
    assert in_turn == sorted(in_turn)  # fcfs knows no priority
