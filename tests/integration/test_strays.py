"""An older backup is restored while jobs run, or somebody else's jobs bear our names."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from edgeyard.benchmark_api.sdk.http import part
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.adoption import Adopter
from edgeyard.scheduler.hcl.build import UPLOAD_TOKEN
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    Binding,
    Failure,
    FailureCategory,
    Status,
)
from edgeyard.scheduler.model.event import Event
from tests.builders import records as make
from tests.builders.api import Api, running
from tests.builders.engine import A, B, Lab

FOREIGN = "benchmark-rpi4b-ort-20260101000000-abcdefghij"
FOREIGN_RUN = "benchmark-cron-0123456789abcdef-1/periodic-1795253636"


def events(lab: Lab, kind: str) -> list[Event]:
    with lab.store.read() as uow:
        found = uow.log.events(after=0, limit=1000)
    return [event for event in found if event.kind == kind]


def restored(lab: Lab, folder: Path, *benchmarks: Benchmark) -> Lab:
    """A server on a backup that holds these, beside the cluster as it is now."""
    folder.mkdir()
    made = Lab(folder, cluster=lab.cluster, clock=lab.clock)
    with made.store.write() as uow:
        for each in benchmarks:
            uow.benchmarks.add(each)
    return made


def test_a_job_that_runs_on_is_adopted_by_an_older_backup(lab: Lab, tmp_path: Path) -> None:
    benchmark_id = lab.submit()
    backup = lab.show(benchmark_id)
    job_id = lab.running(benchmark_id)
    other = restored(lab, tmp_path / "restored", backup)
    assert other.show(benchmark_id).status is Status.PENDING
    adopter = Adopter(other.store, other.clock, 900.0)
    lab.cluster.stray_jobs = {job_id: A}
    prepared = adopter.run(lab.cluster.stray_jobs)
    assert prepared == (job_id,)
    other.dispatch(*prepared)
    other.reconciler.run()
    assert other.show(benchmark_id).status is Status.RUNNING
    assert lab.cluster.dispatched == [job_id]  # nothing runs twice
    (attempt,) = other.attempts(benchmark_id)
    token = lab.cluster.secrets[job_id][UPLOAD_TOKEN]
    # What it uploads is taken.
    assert attempt.upload_token_sha256 == hashlib.sha256(token.encode()).hexdigest()
    assert attempt.target_uid == A
    assert len(other.events(benchmark_id, "attempt.adopted")) == 1
    other.complete(job_id)
    other.reconciler.run()
    assert other.show(benchmark_id).status is Status.COMPLETED
    other.store.close()


def test_a_job_that_could_not_be_adopted_is_adopted_as_soon_as_it_can_be(
    lab: Lab, tmp_path: Path
) -> None:
    """Its user's account can't bear it at first; nothing else is started for it meanwhile."""
    benchmark_id = lab.submit()
    backup = lab.show(benchmark_id)
    job_id = lab.running(benchmark_id)
    other = restored(lab, tmp_path / "restored", backup)
    adopter = Adopter(other.store, other.clock, 900.0)
    strays = {job_id: A}
    with other.store.write() as uow:
        uow.accounts.add_user(make.a_user("ann", max_running=0))
    for _ in range(3):
        assert adopter.run(strays) == ()
        other.cycle.place()
        assert other.show(benchmark_id).status is Status.PENDING
    assert len(events(other, "cluster.stray_job")) == 1
    with other.store.write() as uow:
        uow.accounts.save_user(replace(uow.accounts.user("ann"), max_running=None))
    assert adopter.run(strays) == (job_id,)
    assert adopter.run(strays) == ()
    assert len(events(other, "attempt.adopted")) == 1
    other.store.close()


def test_a_job_is_adopted_by_a_backup_from_before_the_clock_was_set(
    lab: Lab, tmp_path: Path
) -> None:
    """The times of its benchmark have moved since, and the job's name states one of them."""
    benchmark_id = lab.submit()
    backup = lab.show(benchmark_id)
    job_id = lab.running(benchmark_id)
    an_hour_off = replace(backup, submit_time=backup.submit_time + timedelta(hours=1))
    other = restored(lab, tmp_path / "restored", an_hour_off)
    prepared = Adopter(other.store, other.clock, 900.0).run({job_id: A})
    assert prepared == (job_id,)
    other.dispatch(*prepared)
    other.reconciler.run()
    assert other.show(benchmark_id).status is Status.RUNNING
    assert lab.cluster.dispatched == [job_id]
    other.store.close()


def test_an_adopted_job_that_waits_for_its_board_holds_none_yet(lab: Lab, tmp_path: Path) -> None:
    benchmark_id = lab.submit()
    backup = lab.show(benchmark_id)
    job_id = lab.running(benchmark_id)
    strict = replace(backup, description=replace(backup.description, binding=Binding.STRICT))
    other = restored(lab, tmp_path / "restored", strict)
    assert Adopter(other.store, other.clock, 900.0).run({job_id: None}) == (job_id,)
    (attempt,) = other.attempts(benchmark_id)
    assert attempt.target_uid is None
    assert attempt.binding is Binding.FILTERED  # a strict one has the board that was decided
    other.store.close()


def test_an_adopted_job_whose_benchmark_ends_before_it_is_taken_over_is_stopped(
    lab: Lab, tmp_path: Path
) -> None:
    benchmark_id = lab.submit()
    backup = lab.show(benchmark_id)
    job_id = lab.running(benchmark_id)
    other = restored(lab, tmp_path / "restored", backup)
    prepared = Adopter(other.store, other.clock, 900.0).run({job_id: A})
    now = other.clock.now()
    other.store.transact(
        lambda uow: lifecycle.expire(uow, benchmark_id, now, "it waited too long", deadline=False)
    )
    lab.cluster.reachable = False
    other.dispatch(*prepared)
    lab.cluster.reachable = True
    other.dispatch(*prepared)
    assert lab.cluster.stopped == [job_id]
    (attempt,) = other.attempts(benchmark_id)
    assert attempt.state is AttemptState.ENDED
    other.store.close()


@pytest.mark.parametrize("target_uid", [A, None])
def test_an_adopted_job_does_not_expire_by_its_queue_time_out(
    lab: Lab, tmp_path: Path, target_uid: str | None
) -> None:
    """Its task may have started in time; that it has was lost with the database."""
    benchmark_id = lab.submit(queue_timeout_s=10)
    backup = lab.show(benchmark_id)
    job_id = lab.running(benchmark_id)
    lab.clock.forward(60)
    other = restored(lab, tmp_path / "restored", backup)
    prepared = Adopter(other.store, other.clock, 900.0).run({job_id: target_uid})
    for _ in range(2):
        other.cycle.place()
        assert other.show(benchmark_id).status is Status.SCHEDULED
    other.dispatch(*prepared)
    other.cycle.place()
    assert other.show(benchmark_id).status is Status.SCHEDULED
    other.reconciler.run()
    assert other.show(benchmark_id).status is Status.RUNNING
    assert lab.cluster.stopped == []
    other.store.close()


def test_after_an_adopted_job_has_ended_its_queue_time_out_counts_again(
    lab: Lab, tmp_path: Path
) -> None:
    benchmark_id = lab.submit(queue_timeout_s=10, max_retries=1)
    backup = lab.show(benchmark_id)
    job_id = lab.running(benchmark_id)
    lab.clock.forward(60)
    other = restored(lab, tmp_path / "restored", backup)
    other.dispatch(*Adopter(other.store, other.clock, 900.0).run({job_id: A}))
    failure = Failure(category=FailureCategory.BOARD_FAULT, sentence="its board fell off")
    other.cluster.end(job_id, failure)
    other.reconciler.run()
    assert other.show(benchmark_id).status is Status.PENDING
    other.cluster.boards = [replace(each, healthy=False) for each in other.cluster.boards]
    other.clock.forward(9)
    other.turn()
    assert other.show(benchmark_id).status is Status.PENDING
    other.clock.forward(1)
    other.turn()
    assert other.show(benchmark_id).status is Status.EXPIRED
    other.store.close()


def test_a_job_that_is_not_ours_is_reported_once_and_left_alone(lab: Lab) -> None:
    adopter = Adopter(lab.store, lab.clock, 900.0)
    lab.submit()
    for _ in range(3):
        assert adopter.run({FOREIGN: B}) == ()
    (reported,) = events(lab, "cluster.stray_job")
    assert (reported.data["job_id"], reported.data["target_uid"]) == (FOREIGN, B)
    assert lab.cluster.stopped == []
    for _ in range(2):
        assert adopter.run({}) == ()  # it has ended, by itself or because an operator stopped it
    (ended,) = events(lab, "cluster.stray_ended")
    assert ended.data["job_id"] == FOREIGN


def test_operators_see_and_stop_them(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        operators_see_and_stop_them(api)


def operators_see_and_stop_them(api: Api) -> None:
    api.cluster.stray_jobs = {FOREIGN: B}
    assert api.as_().get("/v1/strays").status_code == 403
    (shown,) = api.as_("operator").get("/v1/strays").json()["items"]
    assert (shown["job_id"], shown["target_uid"]) == (FOREIGN, B)
    body = api.as_(None).get("/readyz?verbose").json()
    assert body["status"] == "ready"
    assert "edgeyard strays list" in body["checks"]["strays"]
    assert api.as_("operator").post("/v1/strays/benchmark-known/stop").status_code == 404
    assert api.cluster.stopped == []
    assert api.as_("operator").post(f"/v1/strays/{FOREIGN}/stop").status_code == 204
    assert api.cluster.stopped == [FOREIGN]


def test_operators_stop_a_run_that_nomad_started(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        api.cluster.stray_jobs = {FOREIGN_RUN: B}
        stopped = api.as_("operator").post(f"/v1/strays/{part(FOREIGN_RUN)}/stop")
        assert stopped.status_code == 204
        assert api.cluster.stopped == [FOREIGN_RUN]
