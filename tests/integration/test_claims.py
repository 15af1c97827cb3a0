"""A result that could not be uploaded lies on its host, and is claimed from there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from edgeyard.devices.runner.result import SCHEMA
from edgeyard.scheduler.clusters.exits import failure_of
from edgeyard.scheduler.model.benchmark import FailureCategory, Status
from tests.builders.engine import GOOD, A, B, Lab

NOT_UPLOADED, REPORTED = failure_of(4), failure_of(3)
LATENCIES = b"\x93NUMPY latencies"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, A, B)


def keep(lab: Lab, its_id: str, job: str, **changes: Any) -> None:
    """Have the host of a job keep what its runner leaves after it gave up uploading."""
    report = {
        **GOOD,
        "schema": SCHEMA,
        "benchmark_id": its_id,
        "job_id": job,
        "attempt": 1,
        "files": [
            {"name": "latencies.npy", "sha256": hashlib.sha256(LATENCIES).hexdigest()},
        ],
        **changes,
    }
    lab.cluster.kept |= {
        (job, "report.json"): json.dumps(report).encode(),
        (job, "latencies.npy"): LATENCIES,
        (job, "runner.log"): b"the server was away\n",
    }


def test_a_server_that_was_away_for_long_fails_nothing_that_ran_meanwhile(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    keep(lab, benchmark_id, job_id)
    lab.cluster.end(job_id, NOT_UPLOADED)
    lab.clock.forward(3 * 3600)
    lab.restart()
    lab.reconciler.run(after_restart=True)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED
    with lab.store.read() as uow:
        found = {file.name: file.sha256 for file in uow.files.results(benchmark_id)}
        (outcome,) = uow.attempts.outcomes()
    assert set(found) == {"latencies.npy", "runner.log", "report.json"}
    assert lab.files.path(found["latencies.npy"]).read_bytes() == LATENCIES
    assert (outcome.latency_p50_ms, outcome.failure_category) == (1.5, None)


def test_a_result_is_claimed_where_only_the_reserve_is_left(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    keep(lab, benchmark_id, job_id)
    monkeypatch.setattr(lab.files, "_reserve_bytes", 2**62)
    lab.cluster.end(job_id, NOT_UPLOADED)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED


def test_a_failure_whose_report_did_not_arrive_is_claimed_with_its_reason(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=3)
    job_id = lab.running(benchmark_id)
    failure = {"category": "user_model", "sentence": "it has no input"}
    keep(lab, benchmark_id, job_id, status="failed", failure=failure)
    lab.cluster.end(job_id, REPORTED)
    lab.reconciler.run()
    shown = lab.show(benchmark_id)
    assert shown.status is Status.FAILED
    assert shown.failure is not None
    assert shown.failure.category is FailureCategory.USER_MODEL


def test_a_host_that_does_not_answer_is_waited_for(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    keep(lab, benchmark_id, job_id)
    lab.cluster.hosts_answer = False
    lab.cluster.end(job_id, NOT_UPLOADED)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.RUNNING
    lab.cluster.hosts_answer = True
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED


@pytest.mark.parametrize("gone", ["folder", "host"])
def test_what_can_not_be_claimed_is_tried_again(lab: Lab, gone: str) -> None:
    benchmark_id = lab.submit(max_retries=1)
    job_id = lab.running(benchmark_id)
    if gone == "host":
        lab.cluster.hosts_answer = False
    lab.cluster.end(job_id, NOT_UPLOADED)
    lab.reconciler.run()
    lab.clock.forward(31)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.PENDING
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt.failure is not None
    assert attempt.failure.category is FailureCategory.UPLOAD


@pytest.mark.parametrize(
    "changes",
    [
        {"job_id": "benchmark-another"},
        {"schema": "another/v1"},
        {"status": "fine"},
        {"files": [{"name": "../secrets/token.env", "sha256": "0" * 64}]},
        {"files": [{"name": "latencies.npy", "sha256": "0" * 64}]},
        {"files": [{"name": "missing.npy", "sha256": "0" * 64}]},
        {"files": [7]},
    ],
)
def test_what_is_no_whole_result_of_the_attempt_is_not_taken(
    lab: Lab, changes: dict[str, Any]
) -> None:
    benchmark_id = lab.submit(max_retries=1)
    job_id = lab.running(benchmark_id)
    keep(lab, benchmark_id, job_id, **changes)
    lab.cluster.end(job_id, NOT_UPLOADED)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.PENDING
    with lab.store.read() as uow:
        assert uow.files.results(benchmark_id) == []
