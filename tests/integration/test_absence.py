"""A job that the cluster leaves out once is not lost; one that outlives its attempt is stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.retry import MAX_LOST_IN_A_ROW
from edgeyard.scheduler.model.attempt import LIVE_ATTEMPTS, AttemptState
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory, Status
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
    lab.complete(job_id)
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


def lose(lab: Lab, benchmark_id: str) -> None:
    """Kill the server and its cluster while an attempt of the benchmark is live, and start them."""
    lab.turn()
    (attempt,) = (each for each in lab.attempts(benchmark_id) if each.state in LIVE_ATTEMPTS)
    lab.cluster.jobs.clear()
    with lab.store.write() as uow:
        lifecycle.lost(
            uow, attempt, "lost with a restart of the server", lab.time.now(), counts=False
        )
    lab.restart()
    lab.reconciler.run()


def test_a_benchmark_that_every_server_dies_with_is_given_up_in_the_end(lab: Lab) -> None:
    """Otherwise a benchmark that takes its server down would do so for ever."""
    benchmark_id = lab.submit(max_retries=0)
    for number in range(1, MAX_LOST_IN_A_ROW + 1):
        assert lab.show(benchmark_id).status is Status.PENDING, number
        lab.clock.forward(300)
        lose(lab, benchmark_id)
    failure = lab.failure(benchmark_id)
    assert failure.category is FailureCategory.CLUSTER
    assert f"{MAX_LOST_IN_A_ROW} times in a row" in failure.sentence


def test_the_more_often_the_server_dies_with_a_benchmark_the_longer_it_waits(lab: Lab) -> None:
    """While it waits it shows whether the server dies without it."""
    benchmark_id = lab.submit(max_retries=0)
    for _ in range(3):
        lose(lab, benchmark_id)  # tried again at once
    lose(lab, benchmark_id)
    lab.clock.forward(9)
    lab.turn()
    waiting = lab.show(benchmark_id)
    assert waiting.status is Status.PENDING
    assert waiting.waiting is not None
    assert "died 4 times in a row" in waiting.waiting.sentence
    lab.clock.forward(1)
    lab.turn()
    assert lab.show(benchmark_id).status is Status.SCHEDULED


def test_a_benchmark_is_not_given_up_when_the_server_dies_without_it_too(lab: Lab) -> None:
    """However often somebody kills the server: that is not the benchmark's fault."""
    benchmark_id = lab.submit(max_retries=0)
    for number in range(3 * MAX_LOST_IN_A_ROW):
        assert lab.show(benchmark_id).status is Status.PENDING, number
        lab.clock.forward(300)
        lose(lab, benchmark_id)
        if number % 5 == 4:  # killed before anything was started again
            lab.restart()
            lab.reconciler.run(after_restart=True)
    lab.running(benchmark_id)
    assert lab.show(benchmark_id).lost_in_a_row == 0


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
    lab.complete(job_id)
    lab.reconciler.run()
    lab.cluster.jobs[job_id] = replace(lab.cluster.jobs[job_id], run=JobRun.RUNNING)
    lab.reconciler.run([job_id])
    assert lab.cluster.stopped == []


DRAINED = Failure(category=FailureCategory.CLUSTER, sentence="the host pi was drained")


@pytest.mark.parametrize(
    ("failure", "why"),
    [(DRAINED, "the host pi was drained"), (None, "an operator stopped its job in the cluster")],
)
@pytest.mark.parametrize(
    ("began", "when"), [(True, "while it ran; it last reported measuring, 40 %"), (False, "before")]
)
def test_what_an_operator_stops_in_the_cluster_costs_no_retry(
    lab: Lab, failure: Failure | None, why: str, began: bool, when: str
) -> None:
    """However often: it is tried again at once, and neither user nor board is to blame."""
    benchmark_id = lab.submit(max_retries=0)
    for number in range(1, MAX_LOST_IN_A_ROW + 2):
        if began:
            job_id = lab.running(benchmark_id)
            lab.progress(job_id, 40)
        else:
            lab.turn()
            job_id = lab.attempts(benchmark_id)[-1].job_id
        lab.cluster.end(job_id, failure, began=began, stopped=True)
        lab.reconciler.run()
        assert lab.show(benchmark_id).status is Status.PENDING, number
        attempt = lab.attempts(benchmark_id)[-1]
        assert attempt.failure is not None
        assert attempt.failure.sentence.startswith(f"{why} {when}")
        assert not attempt.counts
    lab.running(benchmark_id)
    lab.complete(lab.attempts(benchmark_id)[-1].job_id)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED


def test_a_result_that_was_uploaded_before_an_operator_stopped_its_task_counts(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    lab.upload(job_id)
    lab.cluster.end(job_id, DRAINED, stopped=True)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED


def test_a_failure_that_a_task_reports_of_being_stopped_costs_no_retry(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    failed = {"status": "failed", "failure": {"category": "unknown", "sentence": "SIGTERM"}}
    lab.upload(job_id, failed)
    lab.cluster.end(job_id, DRAINED, stopped=True)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.PENDING
