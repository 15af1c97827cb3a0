"""What one part of the engine does between another part's look and the write that follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from edgeyard.devices.model import Host
from edgeyard.errors import Conflict, OutOfSpace, Unavailable
from edgeyard.scheduler.clusters.exits import failure_of
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.adoption import Adopter
from edgeyard.scheduler.model.attempt import AttemptState, job_id_of
from edgeyard.scheduler.model.benchmark import (
    Binding,
    Failure,
    FailureCategory,
    IfUnavailable,
    Status,
)
from edgeyard.scheduler.model.decision import Preemption
from edgeyard.scheduler.ports import JobRun, JobState
from edgeyard.scheduler.twin.joined import JoinedBoards
from edgeyard.scheduler.twin.twin import Twin
from tests.builders.engine import A, B, Lab
from tests.fakes.cluster import board
from tests.integration.test_claims import NOT_UPLOADED, keep


def test_a_claim_that_finds_a_full_disk_holds_up_no_other_attempt(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = lab.submit(max_retries=0)
    its_job = lab.running(claimed, A)
    lab.clock.forward(1)
    other = lab.submit(max_retries=0)
    other_job = lab.running(other, B)
    keep(lab, claimed, its_job)
    lab.cluster.end(its_job, NOT_UPLOADED)
    lab.complete(other_job)

    def full(*args: object, **options: object) -> object:
        raise OutOfSpace("taking a file")

    monkeypatch.setattr(lab.files, "writer", full)
    lab.reconciler.run()
    lab.reconciler.run()
    assert lab.show(other).status is Status.COMPLETED


def test_an_attempt_that_the_store_refuses_holds_up_no_other_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = lab.submit()
    jobs = {refused: lab.running(refused, A)}
    lab.clock.forward(1)
    other = lab.submit()
    jobs[other] = lab.running(other, B)
    for job_id in jobs.values():
        lab.complete(job_id)
    settle = lifecycle.task_ended

    def at_odds(uow: Any, attempt: Any, *args: Any, **options: Any) -> Any:
        if attempt.job_id == jobs[refused]:
            raise Unavailable("it is at odds with what is stored, each time")
        return settle(uow, attempt, *args, **options)

    monkeypatch.setattr(lifecycle, "task_ended", at_odds)
    lab.reconciler.run()
    assert lab.show(other).status is Status.COMPLETED


def test_a_task_that_does_not_end_after_its_report_costs_no_result(lab: Lab) -> None:
    """Its host's agent is away, so that the cluster goes on calling it running."""
    benchmark_id = lab.submit(max_retries=0, user_time_s=60.0)
    job_id = lab.running(benchmark_id, A)
    lab.clock.forward(30)
    lab.upload(job_id)
    lab.clock.forward(120)
    lab.reconciler.run()
    assert lab.cluster.stopped == [job_id]
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED


def test_a_task_that_starts_while_it_is_judged_overdue_goes_on(lab: Lab) -> None:
    benchmark_id = lab.submit()
    lab.turn()
    job_id = lab.attempts(benchmark_id)[-1].job_id
    lab.clock.forward(301)
    states = lab.cluster.states

    def meanwhile(job_ids: Sequence[str]) -> Mapping[str, JobState]:
        found = states(job_ids)
        if lab.attempts(benchmark_id)[-1].state is AttemptState.QUEUED:
            lab.progress(job_id, 1.0, "starting")
            lab.cluster.start(job_id, A)
        return found

    lab.cluster.states = meanwhile  # type: ignore[method-assign]
    lab.reconciler.run()
    lab.reconciler.run()
    assert lab.cluster.stopped == []
    assert lab.show(benchmark_id).status is Status.RUNNING


def test_a_cancellation_during_a_claim_leaves_nothing_stored(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id, A)
    keep(lab, benchmark_id, job_id)
    lab.cluster.end(job_id, NOT_UPLOADED)
    retained_file = lab.cluster.retained_file

    def slow(job: str, name: str) -> Iterator[bytes]:
        if name == "runner.log":
            with lab.store.write() as uow:
                lifecycle.cancel(uow, benchmark_id, lab.time.now(), "ann")
        yield from retained_file(job, name)

    lab.cluster.retained_file = slow  # type: ignore[method-assign, assignment]
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.CANCELLED
    with lab.store.read() as uow:
        assert list(uow.files.reports(benchmark_id)) == []
        assert list(uow.files.results(benchmark_id)) == []


def test_a_failed_report_of_an_earlier_attempt_keeps_no_late_result_out(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=3)
    first = lab.running(benchmark_id, A)
    lab.upload(first, {"status": "failed", "failure": {"category": "thermal", "sentence": "hot"}})
    lab.cluster.end(first, failure_of(3))
    lab.reconciler.run()
    second = lab.running(benchmark_id, B)
    lab.cluster.end(second, Failure(category=FailureCategory.BOARD_FAULT, sentence="lost"))
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.PENDING
    lab.upload(second)
    assert lab.show(benchmark_id).status is Status.COMPLETED
    (late,) = lab.events(benchmark_id, "result.late")
    assert late.data["sender"] == "task"


def test_nobody_is_preempted_for_a_board_that_is_only_assumed(lab: Lab) -> None:
    victim = lab.submit(binding=Binding.LOOSE)
    lab.turn()
    attempt = lab.attempts(victim)[-1]
    lab.progress(attempt.job_id, 3.0, "starting")  # quicker than the cluster's word where it runs
    urgent = lab.submit()
    preemption = Preemption(
        benchmark_id=urgent,
        victim_id=victim,
        target_uid=str(attempt.target_uid),
        priority=99,
        victim_priority=50,
        threshold=50,
        while_measuring=True,
        progress=3.0,
    )
    with lab.store.write() as uow, pytest.raises(Conflict):
        lifecycle.preempt(uow, preemption, lab.time.now())


def test_a_pin_s_end_that_could_not_be_stored_is_stored_later(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark_id = lab.submit(target_uid=A, target=None, if_unavailable=IfUnavailable.RESCHEDULE)
    lab.cluster.boards = [board(A, healthy=False), board(B)]
    lab.decide()
    lab.clock.forward(301)

    def locked(work: Callable[[Any], object]) -> object:
        raise Unavailable("the database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(lab.store, "transact", locked)
        with pytest.raises(Unavailable):
            lab.decide()
    lab.decide()
    assert lab.show(benchmark_id).unpinned


def test_an_adopted_job_has_the_time_limit_of_the_lab(lab: Lab) -> None:
    benchmark_id = lab.submit()
    found = lab.show(benchmark_id)
    asked = found.description
    job_id = job_id_of(benchmark_id, 1, asked.family, asked.runtime, found.submit_time)
    lab.cluster.jobs[job_id] = JobState(
        job_id=job_id, run=JobRun.RUNNING, target_uid=A, started_at=lab.time.now()
    )
    lab.cluster.secrets[job_id] = {}
    Adopter(lab.store, lab.time, 3600.0).run({job_id: A})
    assert lab.attempts(benchmark_id)[-1].time_limit_s == 3600.0


def test_an_inventory_that_is_read_while_the_twin_is_refreshed_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twin = Twin((board(A),))
    hosts = (Host(host_id="h", name="h", ready=True, boards=(board(A), board(B))),)
    joined = JoinedBoards.joined
    read: list[bool] = []

    def meanwhile(self: Any, *args: Any) -> Any:
        found = joined(self, *args)
        if not read:
            read.append(True)
            twin.set_inventory((board(A), board(B)))
        return found

    monkeypatch.setattr(JoinedBoards, "joined", meanwhile)
    for _ in range(2):
        twin.refresh(hosts, datetime(2026, 1, 1, tzinfo=UTC))
    assert all(view.expected for view in twin.views(drained={}, holders={}))
