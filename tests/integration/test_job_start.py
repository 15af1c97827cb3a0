"""Jobs that the cluster has and does not start: they wait, and are taken back in the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgeyard.errors import Conflict
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.retry import MAX_LOST_IN_A_ROW
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import Binding, Failure, FailureCategory, Status
from tests.builders.engine import A, B, Lab

GRACE_S = 300.0
SETUP_S = 3600.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, A, start_grace_s=GRACE_S, setup_grace_s=SETUP_S)
    yield made
    made.store.close()


@pytest.mark.parametrize("binding", [Binding.LOOSE, Binding.FILTERED, Binding.STRICT])
def test_a_job_that_the_cluster_does_not_start_is_withdrawn(lab: Lab, binding: Binding) -> None:
    benchmark_id = lab.submit(binding=binding, max_retries=0)
    lab.turn()
    (attempt,) = lab.attempts(benchmark_id)
    lab.clock.forward(GRACE_S)
    lab.turn()
    assert lab.cluster.stopped == []
    lab.clock.forward(1)
    lab.reconciler.run()
    lab.reconciler.run()
    assert lab.cluster.stopped == [attempt.job_id]
    (first,) = lab.attempts(benchmark_id)
    assert (first.state, first.counts, first.started_at) == (AttemptState.ENDED, False, None)
    assert first.failure is not None
    assert "300 s" in first.failure.sentence
    assert lab.show(benchmark_id).status is Status.PENDING


def test_a_loose_job_waits_in_the_cluster_s_queue_while_boards_of_its_family_run_others(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path, A, B, start_grace_s=GRACE_S)
    running = lab.submit(target=None, target_uid=A, user_time_s=86400.0)
    lab.running(running)
    waits = lab.submit(binding=Binding.LOOSE)
    lab.turn()
    for _ in range(3):
        lab.clock.forward(GRACE_S - 1)
        lab.turn()
    assert lab.cluster.stopped == []
    assert lab.show(waits).status is Status.SCHEDULED
    (attempt,) = lab.attempts(running)
    lab.complete(attempt.job_id)
    lab.turn()
    for _ in range(2):
        lab.clock.forward(GRACE_S + 1)
        lab.reconciler.run()
    lab.reconciler.run()
    assert lab.cluster.stopped == [lab.attempts(waits)[0].job_id]
    lab.store.close()


def test_the_board_that_was_assumed_for_it_is_free_again(lab: Lab) -> None:
    stuck = lab.submit(binding=Binding.LOOSE)
    lab.turn()
    urgent = lab.submit(target=None, target_uid=A, user_priority=10)
    lab.turn()
    assert lab.show(urgent).status is Status.PENDING
    lab.clock.forward(GRACE_S + 1)
    lab.reconciler.run()
    lab.reconciler.run()
    lab.turn()
    assert lab.show(urgent).status is Status.SCHEDULED
    assert lab.show(stuck).status is Status.PENDING


def test_a_repeatedly_withdrawn_benchmark_waits_and_does_not_fail(lab: Lab) -> None:
    benchmark_id = lab.submit(binding=Binding.FILTERED, max_retries=0)
    for _ in range(MAX_LOST_IN_A_ROW + 2):
        lab.turn()
        lab.clock.forward(GRACE_S + 1)
        lab.reconciler.run()
        lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.PENDING
    assert len(lab.attempts(benchmark_id)) == MAX_LOST_IN_A_ROW + 2
    lab.running(benchmark_id)


@pytest.mark.parametrize("binding", [Binding.LOOSE, Binding.STRICT])
def test_a_job_that_never_finishes_its_setup_is_withdrawn_too(lab: Lab, binding: Binding) -> None:
    benchmark_id = lab.submit(binding=binding)
    lab.turn()
    (attempt,) = lab.attempts(benchmark_id)
    lab.cluster.jobs[attempt.job_id] = replace(
        lab.cluster.jobs[attempt.job_id], target_uid=A, reason="downloading its files"
    )
    lab.clock.forward(SETUP_S)
    lab.turn()
    assert lab.cluster.stopped == []
    lab.clock.forward(1)
    lab.turn()
    assert lab.cluster.stopped == [attempt.job_id]
    lab.turn()
    (first, *_) = lab.attempts(benchmark_id)
    assert first.failure is not None
    assert first.failure.category is FailureCategory.CLUSTER
    assert "downloading its files" in first.failure.sentence


def test_the_queue_time_out_counts_until_the_task_starts(lab: Lab) -> None:
    benchmark_id = lab.submit(binding=Binding.LOOSE, queue_timeout_s=10)
    lab.turn()
    assert lab.show(benchmark_id).status is Status.SCHEDULED
    lab.clock.forward(9)
    lab.turn()
    assert lab.show(benchmark_id).status is Status.SCHEDULED
    lab.clock.forward(1)
    lab.turn()
    shown = lab.show(benchmark_id)
    assert shown.status is Status.EXPIRED
    assert shown.failure is not None
    assert "queue time-out of 10 s" in shown.failure.sentence
    lab.turn()
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt.state is AttemptState.ENDED
    assert lab.cluster.stopped == [attempt.job_id]


def test_the_queue_time_out_of_a_second_attempt_counts_from_the_end_of_the_first(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path, A, B)
    benchmark_id = lab.submit(queue_timeout_s=10, max_retries=1)
    job_id = lab.running(benchmark_id)
    lab.clock.forward(15)
    lab.cluster.end(
        job_id, Failure(category=FailureCategory.BOARD_FAULT, sentence="its board fell off")
    )
    lab.reconciler.run()
    lab.turn()
    lab.clock.forward(9)
    lab.turn()
    assert lab.show(benchmark_id).status is Status.SCHEDULED
    lab.clock.forward(1)
    lab.turn()
    assert lab.show(benchmark_id).status is Status.EXPIRED
    lab.store.close()


def test_a_task_that_starts_while_its_time_out_is_written_down_goes_on(lab: Lab) -> None:
    benchmark_id = lab.submit(queue_timeout_s=10)
    lab.running(benchmark_id)
    with lab.store.write() as uow, pytest.raises(Conflict):
        lifecycle.expire(uow, benchmark_id, lab.clock.now(), "too late", deadline=False)
    assert lab.show(benchmark_id).status is Status.RUNNING
