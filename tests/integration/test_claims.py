"""A result that could not be uploaded lies on its host, and is claimed from there."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeyard.devices.runner.result import SCHEMA
from edgeyard.errors import ClusterUnreachable
from edgeyard.scheduler.clusters.exits import failure_of
from edgeyard.scheduler.engine.claims import Claims
from edgeyard.scheduler.engine.reconcile import OVERDUE_GRACE_S
from edgeyard.scheduler.model.benchmark import FailureCategory, Status
from tests.builders.api import running
from tests.builders.engine import GOOD, A, B, Lab

NOT_UPLOADED, REPORTED = failure_of(4), failure_of(3)
LATENCIES = b"\x93NUMPY latencies"


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
    assert lab.failure(benchmark_id).category is FailureCategory.USER_MODEL


def test_a_host_that_does_not_answer_is_waited_for(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    keep(lab, benchmark_id, job_id)
    lab.cluster.hosts_answer = False
    lab.cluster.end(job_id, NOT_UPLOADED)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.RUNNING
    lab.cluster.hosts_answer = True
    lab.clock.forward(5)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED


@pytest.mark.parametrize("gone", ["folder", "host"])
def test_a_failed_claim_is_repeated(lab: Lab, gone: str) -> None:
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
        # What an upload is refused for.
        {"inference_latency": [1]},
        {"inference_latency": {"p50": "fast"}},
        {"inference_latency": {"p50": math.nan}},
        {"board": {"target_uid": "a\x00b"}},
        {"board": {"target_uid": "\ud800"}},
        {"memory": 10**400},
    ],
)
def test_an_incomplete_result_is_not_claimed(lab: Lab, changes: dict[str, Any]) -> None:
    benchmark_id = lab.submit(max_retries=1)
    job_id = lab.running(benchmark_id)
    keep(lab, benchmark_id, job_id, **changes)
    lab.cluster.end(job_id, NOT_UPLOADED)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.PENDING
    with lab.store.read() as uow:
        assert uow.files.results(benchmark_id) == []


Blocks = Generator[bytes, None, None]


@pytest.fixture
def threaded(tmp_path: Path) -> Lab:
    """A lab whose claims are fetched when the test calls `turn`, as by a thread of their own."""
    return Lab(tmp_path, A, B, claims_class=Claims)


def left(lab: Lab, uid: str) -> tuple[str, str]:
    """A benchmark that has ended on this board with a result that was not uploaded; its job."""
    benchmark_id = lab.submit(max_retries=0, target=None, target_uid=uid)
    job_id = lab.running(benchmark_id, uid)
    keep(lab, benchmark_id, job_id)
    lab.cluster.end(job_id, NOT_UPLOADED)
    return benchmark_id, job_id


def each_block(lab: Lab, step: Callable[[str], object]) -> None:
    """Have hosts send byte for byte, and something happen after each."""
    whole = lab.cluster.retained_file

    def retained_file(job_id: str, name: str) -> Blocks:
        for byte in b"".join(whole(job_id, name)):
            yield bytes([byte])
            step(job_id)

    lab.cluster.retained_file = retained_file  # type: ignore[method-assign]


def test_a_host_that_is_slow_holds_up_no_repair(threaded: Lab) -> None:
    lab = threaded
    slow, its_job = left(lab, A)
    began, goes_on = threading.Event(), threading.Event()

    def step(job_id: str) -> None:
        began.set()
        assert goes_on.wait(60)

    each_block(lab, step)
    lab.reconciler.run()
    fetching = threading.Thread(target=lab.claims.turn)
    fetching.start()
    assert began.wait(60)
    other = lab.submit(target=None, target_uid=B)
    job_id = lab.running(other, B)
    lab.complete(job_id)
    lab.reconciler.run()
    assert lab.show(other).status is Status.COMPLETED
    assert lab.show(slow).status is Status.RUNNING
    assert list(lab.claims.waiting()) == [its_job]
    goes_on.set()
    fetching.join(60)
    lab.reconciler.run()
    assert lab.show(slow).status is Status.COMPLETED
    assert lab.claims.waiting() == {}


def test_a_host_that_sends_byte_by_byte_is_given_up(lab: Lab) -> None:
    benchmark_id, _ = left(lab, A)
    each_block(lab, lambda job_id: lab.clock.forward(10))
    lab.reconciler.run()  # the whole report takes more than 300 s
    assert lab.show(benchmark_id).status is Status.FAILED
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt.failure is not None
    assert attempt.failure.category is FailureCategory.UPLOAD


def test_a_transfer_that_breaks_once_after_a_long_time_is_tried_again(lab: Lab) -> None:
    """The silence of a host begins with the last that it sent."""
    benchmark_id, its_job = left(lab, A)
    blocks = 0

    def step(job_id: str) -> None:
        nonlocal blocks
        blocks += 1
        if blocks == 1:
            lab.clock.forward(45)  # for longer than a silent host is waited for
        if blocks == 2:
            raise ClusterUnreachable("the host was cut off")

    each_block(lab, step)
    lab.reconciler.run()
    assert its_job in lab.claims.waiting()
    lab.clock.forward(5)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED


def test_a_host_that_breaks_every_transfer_off_is_given_up(lab: Lab) -> None:
    benchmark_id, its_job = left(lab, A)

    def step(job_id: str) -> None:
        lab.clock.forward(20)
        raise ClusterUnreachable("the host was cut off")

    each_block(lab, step)
    for _ in range(30):
        lab.reconciler.run()
        lab.clock.forward(5)
    assert its_job not in lab.claims.waiting()
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt.failure is not None
    assert attempt.failure.category is FailureCategory.UPLOAD


def test_content_that_goes_before_a_claim_names_it_is_fetched_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark_id, its_job = left(lab, A)
    contains = lab.files.contains
    latencies = hashlib.sha256(LATENCIES).hexdigest()
    monkeypatch.setattr(
        lab.files, "contains", lambda sha256: sha256 != latencies and contains(sha256)
    )
    lab.reconciler.run()
    assert its_job in lab.claims.waiting()
    with lab.store.read() as uow:
        assert uow.files.results(benchmark_id) == []
    monkeypatch.undo()
    lab.clock.forward(5)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED


def test_hosts_take_turns(threaded: Lab) -> None:
    lab = threaded
    asked: list[str] = []
    _, first = left(lab, A)
    _, other = left(lab, B)  # the first one is asked for meanwhile
    for number in (2, 3):  # of the same host
        lab.claims.ask(replace(lab.attempt(first), job_id=f"{first}-{number}"))
    lab.reconciler.run([other])

    def retained_file(job_id: str, name: str) -> Blocks:
        asked.append(job_id)
        yield from ()

    lab.cluster.retained_file = retained_file  # type: ignore[method-assign]
    while lab.claims.turn() is not None:
        pass
    assert asked == [first, other, f"{first}-2", f"{first}-3"]


def test_results_above_the_total_size_limit_are_not_claimed(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    content = bytes(900 * 1024)
    files = [
        {"name": f"{number}.bin", "sha256": hashlib.sha256(content).hexdigest()}
        for number in range(3)
    ]
    keep(lab, benchmark_id, job_id, files=files)
    lab.cluster.kept |= {(job_id, str(file["name"])): content for file in files}
    lab.cluster.end(job_id, NOT_UPLOADED)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.FAILED


def test_a_limit_that_was_reloaded_holds_for_claims_too(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    keep(lab, benchmark_id, job_id)
    lab.result_limit_bytes = 16
    lab.cluster.end(job_id, NOT_UPLOADED)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.FAILED


def test_a_result_that_breaks_its_claim_holds_its_board_for_no_longer_than_a_silent_host(
    threaded: Lab,
) -> None:
    lab = threaded
    benchmark_id, _ = left(lab, A)

    def step(job_id: str) -> None:
        raise RuntimeError("nobody thought of this")

    each_block(lab, step)
    lab.reconciler.run()
    with pytest.raises(RuntimeError):
        lab.claims.turn()
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.RUNNING
    lab.clock.forward(31)
    with pytest.raises(RuntimeError):
        lab.claims.turn()
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.FAILED


def test_a_server_that_stops_leaves_the_result_where_it_is(threaded: Lab) -> None:
    lab = threaded
    benchmark_id, _ = left(lab, A)
    stopping = threading.Event()
    each_block(lab, lambda job_id: stopping.set())
    lab.reconciler.run()
    assert lab.claims.turn(0.0, stopping.is_set) is None
    assert lab.show(benchmark_id).status is Status.RUNNING
    lab.restart()
    lab.reconciler.run(after_restart=True)
    assert lab.claims.turn() is not None
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED


def test_a_server_that_stops_in_a_long_claim_does_not_give_it_up(threaded: Lab) -> None:
    lab = threaded
    benchmark_id, its_job = left(lab, A)
    stopping = threading.Event()

    def step(job_id: str) -> None:
        lab.clock.forward(31)  # for longer than a silent host is waited for
        stopping.set()

    each_block(lab, step)
    lab.reconciler.run()
    assert lab.claims.turn(0.0, stopping.is_set) is None
    assert list(lab.claims.waiting()) == [its_job]
    lab.reconciler.run()  # one that was under way when the server was asked to stop
    assert lab.show(benchmark_id).status is Status.RUNNING


def test_what_ended_while_the_server_was_away_may_still_be_uploaded(lab: Lab) -> None:
    """Its time limit passed meanwhile, but it waits for the server and no longer measures."""
    benchmark_id = lab.submit(max_retries=0, user_time_s=30.0)
    job_id = lab.running(benchmark_id)
    lab.clock.forward(400)
    lab.restart()
    lab.reconciler.run(after_restart=True)
    assert lab.cluster.stopped == []
    lab.clock.forward(OVERDUE_GRACE_S)
    lab.reconciler.run()
    assert lab.cluster.stopped == []
    lab.complete(job_id)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED


def test_runs_without_an_end_are_stopped_after_a_restart_too(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0, user_time_s=30.0)
    job_id = lab.running(benchmark_id)
    lab.clock.forward(400)
    lab.restart()
    lab.reconciler.run(after_restart=True)
    lab.clock.forward(OVERDUE_GRACE_S + 1)
    lab.reconciler.run()
    assert lab.cluster.stopped == [job_id]


def test_results_that_wait_for_long_are_reported(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        api.engine.claimed = {"benchmark-new": (3.0, "it is being fetched")}
        assert "claims" not in api.as_(None).get("/readyz?verbose").json()["checks"]
        api.engine.claimed = {"benchmark-late": (70.0, "the host does not answer")}
        body = api.as_(None).get("/readyz?verbose").json()
    assert body["status"] == "ready"
    assert body["checks"]["claims"].startswith("1 result on its host has waited for more than 60 s")
    assert "benchmark-late" not in str(body)  # strangers read this page
