"""The machine's clock is set, forwards and backwards: nothing is lost or ended by that."""

from __future__ import annotations

from datetime import timedelta

import pytest

from edgeyard.benchmark_api.auth import Authenticator
from edgeyard.errors import NotAuthenticated
from edgeyard.scheduler.model.benchmark import Binding, FailureCategory, Status
from edgeyard.scheduler.model.users import Role
from tests.builders.api import add_account
from tests.builders.engine import A, B, Lab

HOUR_S = 3600.0
BOTH_WAYS = pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S], ids=["forwards", "backwards"])


def turns(lab: Lab, count: int, of_s: float = 1.0) -> None:
    """Let time pass as the engine's threads see it, second by second."""
    for _ in range(count):
        lab.clock.forward(of_s)
        lab.turn()


def there_and_back(lab: Lab, step_s: float) -> None:
    """The machine's clock is set wrong and, three turns later, right again."""
    lab.clock.step(step_s)
    turns(lab, 3)
    lab.clock.step(-step_s)
    turns(lab, 3)


@BOTH_WAYS
def test_a_clock_that_steps_for_three_seconds_ends_nothing(lab: Lab, step_s: float) -> None:
    running = [
        lab.running(lab.submit(target=None, target_uid=uid, user_time_s=60.0), uid)
        for uid in (A, B)
    ]
    deadline = lab.clock.now() + timedelta(seconds=HOUR_S / 2)
    waiting = [
        *(lab.submit(deadline=deadline) for _ in range(3)),
        *(lab.submit(queue_timeout_s=HOUR_S / 2) for _ in range(3)),
    ]
    turns(lab, 5)
    lab.clock.step(step_s)
    turns(lab, 3)
    lab.clock.step(-step_s)
    turns(lab, 5)
    assert lab.cluster.stopped == []
    assert [lab.attempt(job_id).state for job_id in running] == ["running", "running"]
    assert {lab.show(each).status for each in waiting} == {Status.PENDING}


@BOTH_WAYS
def test_what_was_stored_during_a_step_lasted_as_long_as_it_did(lab: Lab, step_s: float) -> None:
    benchmark_id = lab.submit(user_time_s=60.0)
    job_id = lab.running(benchmark_id)
    turns(lab, 5)
    lab.clock.step(step_s)
    turns(lab, 5)
    lab.complete(job_id)
    lab.reconciler.run()
    lab.clock.step(-step_s)
    lab.turn()
    with lab.store.read() as uow:
        (outcome,) = uow.attempts.outcomes()
        assert uow.credits.balance("ann").spent == pytest.approx(10.0, abs=0.1)
    assert outcome.run_s == pytest.approx(10.0, abs=0.1)
    assert lab.show(benchmark_id).ended_at == lab.clock.now()


@BOTH_WAYS
def test_a_clock_that_stays_set_is_believed_and_stops_no_run_early_or_late(
    lab: Lab, step_s: float
) -> None:
    benchmark_id = lab.submit(user_time_s=300.0)
    job_id = lab.running(benchmark_id)
    waits = lab.submit(target=None, target_uid=A, queue_timeout_s=400.0)
    turns(lab, 3)
    lab.clock.step(step_s)
    turns(lab, 7, of_s=10)
    assert lab.time.now() == lab.clock.now()
    turns(lab, 20, of_s=10)
    assert lab.cluster.stopped == []
    assert lab.show(waits).status is Status.PENDING
    turns(lab, 6, of_s=10)  # 325 s in all: past its limit and the margin
    assert lab.cluster.stopped == [job_id]
    turns(lab, 2)
    failure = lab.show(benchmark_id).failure
    assert failure is not None
    assert failure.category is FailureCategory.TIMEOUT


@BOTH_WAYS
@pytest.mark.parametrize("before_s", [30, 3600 - 40], ids=["early", "late"])
def test_a_clock_that_is_set_for_good_changes_no_duration(
    lab: Lab, step_s: float, before_s: int
) -> None:
    """Waits, runs and charges last as long as they did; the times are those of the new clock."""
    benchmark_id = lab.submit(user_time_s=9000.0)
    lab.clock.forward(20)
    job_id = lab.running(benchmark_id)
    waits = lab.submit(target=None, target_uid=A)
    turns(lab, 10, of_s=before_s / 10)
    lab.clock.step(step_s)
    turns(lab, 10, of_s=10)
    assert lab.time.now() == lab.clock.now()
    lab.complete(job_id)
    lab.reconciler.run()
    run_s = before_s + 100.0
    with lab.store.read() as uow:
        (outcome,) = uow.attempts.outcomes()
        assert uow.credits.balance("ann").spent == pytest.approx(run_s, abs=1)
    assert outcome.run_s == pytest.approx(run_s, abs=1)
    assert outcome.wait_s == pytest.approx(20.0, abs=1)
    (ended,) = [
        event
        for event in lab.events(benchmark_id, "attempt.state")
        if event.data.get("state") == "ended"
    ]
    assert ended.data["run_s"] == pytest.approx(run_s, abs=1)
    done = lab.show(benchmark_id)
    assert done.ended_at == lab.clock.now()
    assert done.started_at is not None
    assert (lab.clock.now() - done.started_at).total_seconds() == pytest.approx(run_s, abs=1)
    waited_s = (lab.clock.now() - lab.show(waits).submit_time).total_seconds()
    assert waited_s == pytest.approx(run_s, abs=1)


def test_a_deadline_waits_until_the_clocks_agree(lab: Lab) -> None:
    """The new time is right: what is over by the old one alone is not over."""
    lab.running(lab.submit(target=None, target_uid=A, user_time_s=10_000.0))
    deadline = lab.clock.now() + timedelta(seconds=30)
    benchmark_id = lab.submit(target=None, target_uid=A, deadline=deadline)
    turns(lab, 2)
    lab.clock.step(-HOUR_S)
    turns(lab, 9, of_s=10)
    assert lab.show(benchmark_id).status is Status.PENDING
    lab.clock.forward((deadline - lab.clock.now()).total_seconds())
    lab.turn()
    assert lab.show(benchmark_id).status is Status.EXPIRED


@BOTH_WAYS
def test_a_job_that_waits_in_the_cluster_is_not_taken_back_for_a_step(
    lab: Lab, step_s: float
) -> None:
    for binding in (Binding.STRICT, Binding.LOOSE):
        lab.submit(binding=binding)
    turns(lab, 5)
    there_and_back(lab, step_s)
    assert lab.cluster.stopped == []


@BOTH_WAYS
def test_a_pinned_benchmark_keeps_its_pin_through_a_step(lab: Lab, step_s: float) -> None:
    lab.cluster.boards = [each for each in lab.cluster.boards if each.target_uid != A]
    benchmark_id = lab.submit(target=None, target_uid=A, binding=Binding.FILTERED)
    turns(lab, 3)
    there_and_back(lab, step_s)
    assert not lab.show(benchmark_id).unpinned


@BOTH_WAYS
def test_a_result_that_is_on_its_way_is_waited_for_through_a_step(lab: Lab, step_s: float) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    lab.cluster.end(job_id)
    turns(lab, 3)
    there_and_back(lab, step_s)
    lab.upload(job_id)
    assert lab.show(benchmark_id).status is Status.COMPLETED


@BOTH_WAYS
def test_a_lease_does_not_end_or_begin_anew_by_a_step(lab: Lab, step_s: float) -> None:
    lab.lease(A, seconds=HOUR_S / 2)
    benchmark_id = lab.submit(target=None, target_uid=A)
    turns(lab, 2)
    lab.clock.step(step_s)
    turns(lab, 3)
    assert lab.show(benchmark_id).status is Status.PENDING
    lab.clock.step(-step_s)
    turns(lab, 2)
    assert lab.show(benchmark_id).status is Status.PENDING


@BOTH_WAYS
def test_what_the_cluster_says_of_a_start_can_not_be_before_its_job_or_to_come(
    lab: Lab, step_s: float
) -> None:
    """A host's clock that nobody measured: the time of receipt counts."""
    benchmark_id = lab.submit(user_time_s=60.0)
    lab.turn()
    (attempt,) = lab.attempts(benchmark_id)
    began = lab.clock.now()
    lab.cluster.start(attempt.job_id, A, at=began + timedelta(seconds=step_s))
    turns(lab, 10)
    assert lab.cluster.stopped == []
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt.started_at is not None
    assert abs((attempt.started_at - began).total_seconds()) <= 1
    lab.upload(attempt.job_id)
    lab.cluster.end(attempt.job_id, at=lab.clock.now() + timedelta(seconds=step_s))
    lab.reconciler.run()
    with lab.store.read() as uow:
        (outcome,) = uow.attempts.outcomes()
    assert outcome.run_s == pytest.approx(9.0, abs=1.5)


@BOTH_WAYS
def test_a_token_does_not_expire_by_a_step(lab: Lab, step_s: float) -> None:
    now = lab.time.now()
    token = add_account(
        lab.store, "ann", Role.SUBMITTER, now, expires_at=now + timedelta(seconds=HOUR_S / 2)
    )
    lab.clock.step(step_s)
    assert Authenticator(lab.store, lab.time).caller(token).user_id == "ann"
    lab.clock.step(-step_s)
    assert Authenticator(lab.store, lab.time).caller(token).user_id == "ann"
    lab.clock.forward(HOUR_S)
    with pytest.raises(NotAuthenticated):
        Authenticator(lab.store, lab.time).caller(token)
    lab.clock.step(step_s)  # what was over before stays over
    with pytest.raises(NotAuthenticated):
        Authenticator(lab.store, lab.time).caller(token)
