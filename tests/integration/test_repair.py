"""One attempt that can't be repaired must not hold up the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from edgeyard.errors import ClusterUnreachable
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.benchmark import FailureCategory, Status
from edgeyard.scheduler.ports import JobRun, JobState
from tests.builders.engine import A, B, Lab


def two_running(lab: Lab) -> tuple[tuple[str, str], tuple[str, str]]:
    """Two benchmarks that run, each with its job: the older one first."""
    first, second = lab.submit(target=None, target_uid=A), lab.submit(target=None, target_uid=B)
    lab.turn()
    jobs = [lab.attempts(each)[-1].job_id for each in (first, second)]
    for job_id, uid in zip(jobs, (A, B), strict=True):
        lab.cluster.start(job_id, uid)
    lab.reconciler.run()
    return (first, jobs[0]), (second, jobs[1])


def poison(lab: Lab, job_id: str) -> JobState:
    """The cluster reports an end without a time zone, which can't be stored."""
    before = lab.cluster.jobs[job_id]
    naive = lab.clock.now().replace(tzinfo=None)
    lab.cluster.jobs[job_id] = replace(before, run=JobRun.ENDED, ended_at=naive)
    return before


def finish(lab: Lab, job_id: str) -> None:
    lab.complete(job_id)


def test_an_attempt_that_breaks_the_repair_holds_up_no_other(lab: Lab) -> None:
    (poisoned, bad_job), (healthy, good_job) = two_running(lab)
    before = poison(lab, bad_job)
    lab.upload(bad_job)
    finish(lab, good_job)
    lab.reconciler.run()
    assert lab.show(healthy).status is Status.COMPLETED
    assert lab.show(poisoned).status is Status.RUNNING
    ((job_id, reason),) = lab.reconciler.failing().items()
    assert job_id == bad_job
    assert reason == "TypeError"  # not its text: what it names may be nobody's to read
    # It is tried again, each time later, and reported once.
    for _ in range(5):
        lab.clock.forward(1000)
        lab.reconciler.run()
    (reported,) = lab.events(poisoned, "attempt.repair_failed")
    assert reported.data["job_id"] == bad_job
    lab.cluster.jobs[bad_job] = before
    lab.cluster.end(bad_job)
    lab.clock.forward(1000)
    lab.reconciler.run()
    assert lab.show(poisoned).status is Status.COMPLETED
    assert not lab.reconciler.failing()


def test_a_broken_attempt_is_tried_again_less_and_less_often(lab: Lab) -> None:
    (_, bad_job), _ = two_running(lab)
    asked: list[int] = []
    states = lab.cluster.states

    def counted(job_ids: Sequence[str]) -> Mapping[str, JobState]:
        if bad_job in job_ids:
            asked.append(1)
        return states(job_ids)

    lab.cluster.states = counted  # type: ignore[method-assign]
    poison(lab, bad_job)
    lab.upload(bad_job)
    for _ in range(600):
        lab.clock.forward(1)
        lab.reconciler.run()
    assert 3 <= len(asked) <= 12


def test_a_job_that_can_t_be_stopped_holds_up_no_other(lab: Lab) -> None:
    (stuck, bad_job), (healthy, good_job) = two_running(lab)
    stop = lab.cluster.stop

    def refuses(job_id: str) -> None:
        if job_id == bad_job:
            raise ClusterUnreachable("Nomad answered 500: this job alone")
        stop(job_id)

    lab.cluster.stop = refuses  # type: ignore[method-assign]
    with lab.store.write() as uow:
        lifecycle.cancel(uow, stuck, lab.clock.now(), "ann")
    finish(lab, good_job)
    lab.reconciler.run()
    assert lab.show(healthy).status is Status.COMPLETED
    assert bad_job in lab.reconciler.failing()


def test_an_answer_that_can_t_be_read_for_one_job_hides_no_other(lab: Lab) -> None:
    (_, bad_job), (healthy, good_job) = two_running(lab)
    states = lab.cluster.states

    def unreadable(job_ids: Sequence[str]) -> Mapping[str, JobState]:
        if bad_job in job_ids:
            raise ValueError("its allocation has no id")
        return states(job_ids)

    lab.cluster.states = unreadable  # type: ignore[method-assign]
    finish(lab, good_job)
    lab.reconciler.run()
    assert lab.show(healthy).status is Status.COMPLETED
    assert "ValueError" in lab.reconciler.failing()[bad_job]


def test_a_cluster_that_does_not_answer_is_no_fault_of_the_attempts(lab: Lab) -> None:
    two_running(lab)
    lab.cluster.reachable = False
    with pytest.raises(ClusterUnreachable):
        lab.reconciler.run()
    assert not lab.reconciler.failing()


def test_an_end_that_the_cluster_did_not_see_is_named_where_no_result_arrives(lab: Lab) -> None:
    (benchmark_id, job_id), (other, other_job) = two_running(lab)
    for each in (job_id, other_job):
        lab.cluster.end(each)
        lab.cluster.jobs[each] = replace(
            lab.cluster.jobs[each], reason="Nomad lost sight of the task: unexpected EOF"
        )
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.RUNNING  # its runner may go on
    lab.upload(other_job)
    lab.clock.forward(31)
    lab.reconciler.run()
    assert lab.show(other).status is Status.COMPLETED
    failure = lab.attempts(benchmark_id)[0].failure
    assert failure is not None
    assert failure.category is FailureCategory.UPLOAD
    assert failure.sentence.endswith("grace time; Nomad lost sight of the task: unexpected EOF")
