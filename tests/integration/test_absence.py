"""A job that the cluster leaves out once is not lost; one that outlives its attempt is stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.lifecycle import MAX_LOST_ATTEMPTS
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import FailureCategory, Status
from edgeyard.scheduler.ports import JobRun
from tests.builders.engine import A, B, Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path, A, B)
    lab.cluster.index = 10
    return lab


def look(lab: Lab, *, times: int, every_s: float, moves: bool) -> None:
    for _ in range(times):
        if moves and lab.cluster.index is not None:
            lab.cluster.index += 1
        lab.reconciler.run()
        lab.clock.forward(every_s)


def test_a_job_that_is_absent_from_one_answer_is_not_lost(lab: Lab) -> None:
    benchmark_id = lab.submit()
    job_id = lab.running(benchmark_id)
    known = lab.cluster.jobs.pop(job_id)
    look(lab, times=1, every_s=60, moves=True)
    lab.cluster.jobs[job_id] = known
    lab.reconciler.run()
    lab.upload(job_id)
    lab.cluster.end(job_id)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED
    assert len(lab.attempts(benchmark_id)) == 1


def test_a_job_that_stays_absent_is_lost_after_several_answers_and_a_grace_time(lab: Lab) -> None:
    benchmark_id = lab.submit()
    job_id = lab.running(benchmark_id)
    del lab.cluster.jobs[job_id]
    look(lab, times=10, every_s=1, moves=True)  # many answers, but within the grace time
    assert lab.attempts(benchmark_id)[0].state is AttemptState.RUNNING
    look(lab, times=1, every_s=60, moves=True)
    look(lab, times=1, every_s=1, moves=True)
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt.failure is not None
    assert attempt.failure.category is FailureCategory.CLUSTER
    assert lab.show(benchmark_id).status is Status.PENDING
    assert job_id in lab.cluster.stopped  # what it left in the cluster goes, too


def test_a_benchmark_that_every_server_dies_with_is_given_up_in_the_end(lab: Lab) -> None:
    """Else a benchmark that takes its server down would do so for ever."""
    benchmark_id = lab.submit(max_retries=0)
    for number in range(1, MAX_LOST_ATTEMPTS + 1):
        assert lab.show(benchmark_id).status is Status.PENDING, number
        lab.turn()
        with lab.store.write() as uow:
            attempt = uow.attempts.of(benchmark_id)[-1]
            lifecycle.lost(uow, attempt, "lost with its server", lab.clock.now(), counts=False)
    ended = lab.show(benchmark_id)
    assert ended.status is Status.FAILED
    assert ended.failure is not None
    assert ended.failure.category is FailureCategory.CLUSTER


def test_few_answers_prove_no_loss_however_far_apart_they_are(lab: Lab) -> None:
    benchmark_id = lab.submit()
    job_id = lab.running(benchmark_id)
    del lab.cluster.jobs[job_id]
    look(lab, times=2, every_s=1000, moves=True)
    assert lab.attempts(benchmark_id)[0].state is AttemptState.RUNNING


def test_answers_that_may_be_old_are_believed_later(lab: Lab) -> None:
    """The index stands still: nothing says that these answers are newer than the last good one."""
    benchmark_id = lab.submit()
    job_id = lab.running(benchmark_id)
    del lab.cluster.jobs[job_id]
    look(lab, times=4, every_s=10, moves=False)
    assert lab.attempts(benchmark_id)[0].state is AttemptState.RUNNING
    look(lab, times=4, every_s=10, moves=False)
    assert lab.attempts(benchmark_id)[0].state is AttemptState.ENDED


def test_a_registration_that_takes_effect_late_is_adopted_within_the_grace_time(lab: Lab) -> None:
    benchmark_id = lab.submit()
    lab.cluster.answers_after_the_effect = False
    lab.turn()
    (attempt,) = lab.attempts(benchmark_id)
    registered = lab.cluster.jobs.pop(attempt.job_id)
    look(lab, times=5, every_s=1, moves=True)
    lab.cluster.jobs[attempt.job_id] = registered
    lab.cluster.start(attempt.job_id, str(attempt.target_uid))
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.RUNNING
    assert len(lab.attempts(benchmark_id)) == 1


def test_a_registration_that_takes_effect_after_that_is_stopped_on_its_own_event(lab: Lab) -> None:
    benchmark_id = lab.submit()
    lab.cluster.answers_after_the_effect = False
    lab.turn()
    (first,) = lab.attempts(benchmark_id)
    registered = lab.cluster.jobs.pop(first.job_id)
    look(lab, times=5, every_s=10, moves=True)
    lab.cluster.answers_after_the_effect = True
    lab.turn()
    second = lab.attempts(benchmark_id)[1]
    lab.cluster.start(second.job_id, A)
    lab.cluster.jobs[first.job_id] = registered
    lab.reconciler.run([first.job_id])
    assert set(lab.cluster.stopped) == {first.job_id}
    live = [job_id for job_id, job in lab.cluster.jobs.items() if job.run is not JobRun.ENDED]
    assert live == [second.job_id]


def test_late_news_of_a_job_whose_end_was_seen_stops_nothing(lab: Lab) -> None:
    benchmark_id = lab.submit()
    job_id = lab.running(benchmark_id)
    lab.upload(job_id)
    lab.cluster.end(job_id)
    lab.reconciler.run()
    lab.cluster.jobs[job_id] = replace(lab.cluster.jobs[job_id], run=JobRun.RUNNING)
    lab.reconciler.run([job_id])
    assert lab.cluster.stopped == []
