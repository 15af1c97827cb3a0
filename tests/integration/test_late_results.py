"""A result counts whenever it arrives, unless somebody else's came first."""

from __future__ import annotations

import contextlib

import pytest

from edgeyard.errors import ClusterUnreachable, Conflict
from edgeyard.scheduler.decide.quarantine import BoardRecord, board_records
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory, Status
from edgeyard.scheduler.prediction.history import PastRuns
from tests.builders.engine import GOOD, A, B, Lab

LOST = Failure(category=FailureCategory.BOARD_FAULT, sentence="the host pi was lost while it ran")
FAILED = {"status": "failed", "failure": {"category": "user_model", "sentence": "why"}}


def given_up(lab: Lab) -> tuple[str, str]:
    """A benchmark that was put back because its host was lost; its id, and its job's."""
    benchmark_id = lab.submit(max_retries=1)
    job_id = lab.running(benchmark_id)
    lab.cluster.end(job_id, LOST)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.PENDING
    return benchmark_id, job_id


def test_a_host_that_is_lost_after_its_task_reported_costs_nothing(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    lab.upload(job_id)
    lab.cluster.end(job_id, LOST)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED
    assert lab.attempts(benchmark_id)[0].failure is None


def test_an_exit_status_that_says_nothing_does_not_undo_a_result(lab: Lab) -> None:
    crashed = Failure(category=FailureCategory.UNKNOWN, sentence="the task ended with status 1")
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    lab.upload(job_id)
    lab.cluster.end(job_id, crashed)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED
    assert lab.attempts(benchmark_id)[0].failure is None


def test_a_late_result_completes_a_benchmark_that_waits_again(lab: Lab) -> None:
    benchmark_id, job_id = given_up(lab)
    ran_on = lab.attempts(benchmark_id)[0].target_uid
    lab.upload(job_id)
    shown = lab.show(benchmark_id)
    assert (shown.status, shown.target_uid) == (Status.COMPLETED, ran_on)
    (attempt,) = lab.attempts(benchmark_id)
    assert (attempt.state, attempt.failure) == (AttemptState.ENDED, None)
    lab.turn()
    assert len(lab.attempts(benchmark_id)) == 1
    assert [event.data["attempt"] for event in lab.events(benchmark_id, "result.late")] == [1]


def test_a_late_result_stops_the_next_attempt_which_is_nobody_s_failure(lab: Lab) -> None:
    benchmark_id, job_id = given_up(lab)
    second = lab.running(benchmark_id, B)
    lab.upload(job_id)
    assert lab.show(benchmark_id).status is Status.COMPLETED
    lab.reconciler.run()
    lab.reconciler.run()
    assert lab.cluster.stopped == [second]
    last = lab.attempts(benchmark_id)[-1]
    assert (last.state, last.failure) == (AttemptState.ENDED, None)
    with lab.store.read() as uow:
        assert [outcome.attempt for outcome in uow.attempts.outcomes()] == [1]


def _judged(lab: Lab) -> BoardRecord:
    """What board A's runs say of it, as quarantine sees it."""
    with lab.store.read() as uow:
        runs = PastRuns().read(uow, lab.time.now())
    return board_records(runs, {})[A]


def test_a_late_result_replaces_the_outcome(lab: Lab) -> None:
    """History, run times, reliability and quarantine follow the truth."""
    past = PastRuns()
    benchmark_id = lab.submit(max_retries=1)
    job_id = lab.running(benchmark_id)
    started = lab.time.now()
    lab.clock.forward(10)
    lab.cluster.end(job_id, LOST)
    lab.reconciler.run()
    with lab.store.read() as uow:
        (run,) = past.read(uow, lab.time.now())
    assert (run.failure, _judged(lab).failed) == ("board_fault", 1)
    lab.clock.forward(60)
    lab.upload(
        job_id,
        {
            **GOOD,
            "started_at": "2026-11-21T09:00:00Z",  # by its host's clock
            "ended_at": "2026-11-21T09:00:42.500Z",
        },
    )
    with lab.store.read() as uow:
        (outcome,) = uow.attempts.outcomes()
        (run,) = past.read(uow, lab.time.now())
        (anew,) = PastRuns().read(uow, lab.time.now())
    assert (outcome.failure_category, outcome.latency_p50_ms) == (None, 1.5)
    assert run == anew
    assert (run.failure, run.run_s) == (None, 42.5)
    assert (_judged(lab).failed, _judged(lab).runs) == (0, 1)
    shown = lab.show(benchmark_id)
    assert (shown.started_at, shown.target_uid) == (started, A)
    (late,) = lab.events(benchmark_id, "result.late")
    assert late.data["run_s"] == 42.5
    assert late.data["given_up_as"] == {"category": "board_fault", "sentence": LOST.sentence}


def test_a_late_failure_replaces_the_outcome(lab: Lab) -> None:
    benchmark_id, job_id = given_up(lab)
    lab.upload(job_id, FAILED)
    with lab.store.read() as uow:
        (run,) = PastRuns().read(uow, lab.time.now())
    assert (run.target_uid, run.failure) == (A, "user_model"), "the user's, not the board's"
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt.failure == Failure(category=FailureCategory.USER_MODEL, sentence="why")


def test_cycles_before_a_late_result_are_replayed_with_the_old_outcome(lab: Lab) -> None:
    _, job_id = given_up(lab)
    lab.submit()
    lab.turn()
    with lab.store.read() as uow:
        before = uow.cycles.newest(since=0, limit=1)[0].seq
    lab.upload(job_id)
    lab.submit()
    lab.turn()
    with lab.store.read() as uow:
        after = uow.cycles.newest(since=0, limit=1)[0].seq
        assert [run.failure for run in uow.cycles.get(before).runs] == ["board_fault"]
        assert [run.failure for run in uow.cycles.get(after).runs] == [None]
        assert [run.failure for run in uow.cycles.get(before).runs] == ["board_fault"]


@pytest.mark.parametrize(
    ("heard", "words"),
    [
        ("nothing", "the host pi was lost before it began"),
        ("its start", "the host pi was lost while it ran"),
        ("progress", "the host pi was lost while it ran; it last reported measuring, 40 %"),
    ],
)
def test_a_lost_host_is_reported_with_what_its_task_reported(
    lab: Lab, heard: str, words: str
) -> None:
    benchmark_id = lab.submit(max_retries=0)
    lab.turn()
    job_id = lab.attempts(benchmark_id)[0].job_id
    if heard == "its start":
        lab.cluster.start(job_id, A)
        lab.reconciler.run()
    elif heard == "progress":  # which the cluster does not know of
        lab.progress(job_id, 40.0)
    lost = Failure(category=FailureCategory.BOARD_FAULT, sentence="the host pi was lost")
    lab.cluster.end(job_id, lost, began=False, host_lost=True)
    lab.reconciler.run()
    failure = lab.attempts(benchmark_id)[0].failure
    assert failure is not None
    assert failure.sentence == words


def test_of_two_results_the_first_one_counts(lab: Lab) -> None:
    benchmark_id, job_id = given_up(lab)
    lab.upload(lab.running(benchmark_id, B))
    with pytest.raises(Conflict):
        lab.upload(job_id)
    with lab.store.read() as uow:
        assert [report.attempt for report in uow.files.reports(benchmark_id)] == [2]


def test_a_late_failure_is_kept_and_the_benchmark_tried_again(lab: Lab) -> None:
    benchmark_id, job_id = given_up(lab)
    lab.upload(job_id, FAILED)
    assert lab.show(benchmark_id).status is Status.PENDING
    lab.upload(lab.running(benchmark_id, B))
    with lab.store.read() as uow:
        assert [report.attempt for report in uow.files.reports(benchmark_id)] == [1, 2]


@pytest.mark.parametrize("end", ["cancelled", "stopped", "reported"])
def test_a_late_result_that_nobody_waits_for_is_refused(lab: Lab, end: str) -> None:
    if end == "cancelled":
        benchmark_id, job_id = given_up(lab)
        with lab.store.write() as uow:
            lifecycle.cancel(uow, benchmark_id, lab.clock.now(), "ann")
    else:
        benchmark_id = lab.submit(max_retries=1)
        job_id = lab.running(benchmark_id)
        category = FailureCategory.TIMEOUT if end == "stopped" else FailureCategory.USER_MODEL
        lab.cluster.end(job_id, Failure(category=category, sentence="why"))
        lab.reconciler.run()
    with pytest.raises(Conflict):
        lab.upload(job_id)


def _charged_s(lab: Lab, benchmark_id: str) -> float | None:
    with lab.store.read() as uow:
        charge = uow.credits.charge(benchmark_id, 1)
    return None if charge is None else charge.board_s


def _recorded_run_s(lab: Lab, benchmark_id: str) -> tuple[object, float | None, float | None]:
    """By the event of the attempt's end, the history, and the charge."""
    ends = [
        event.data["run_s"]
        for event in lab.events(benchmark_id, "attempt.state")
        if event.data["state"] == "ended"
    ]
    with lab.store.read() as uow:
        (outcome,) = uow.attempts.outcomes()
    return ends[-1], outcome.run_s, _charged_s(lab, benchmark_id)


@pytest.mark.parametrize("report", [GOOD, FAILED])
def test_an_end_that_a_host_reports_late_does_not_lengthen_the_run(
    lab: Lab, report: dict[str, object]
) -> None:
    """Its Nomad client was killed, and learned of the end when it came back."""
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    lab.clock.forward(271)
    lab.upload(job_id, report)
    lab.clock.forward(369)
    lab.cluster.end(job_id)
    lab.reconciler.run()
    assert _recorded_run_s(lab, benchmark_id) == (271.0, 271.0, 271.0)


def test_a_task_that_ended_before_its_result_was_fetched_ran_until_its_end(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    lab.clock.forward(50)
    lab.cluster.end(job_id)
    lab.reconciler.run()
    lab.clock.forward(20)
    lab.upload(job_id)
    lab.reconciler.run()
    assert _recorded_run_s(lab, benchmark_id) == (50.0, 50.0, 50.0)


@pytest.mark.parametrize(("report", "status"), [(GOOD, Status.COMPLETED), (FAILED, Status.FAILED)])
@pytest.mark.parametrize("reachable", [True, False])
def test_a_benchmark_ends_soon_after_its_result_is_safe_though_its_host_is_away(
    lab: Lab, report: dict[str, object], status: Status, reachable: bool
) -> None:
    benchmark_id = lab.submit(max_retries=1)
    job_id = lab.running(benchmark_id)
    lab.clock.forward(100)
    lab.upload(job_id, report)
    lab.cluster.reachable = reachable
    look(lab)
    assert lab.show(benchmark_id).status is Status.RUNNING  # its end may be on its way
    lab.clock.forward(10)
    look(lab)
    assert lab.show(benchmark_id).status is status
    assert _recorded_run_s(lab, benchmark_id) == (100.0, 100.0, 100.0)
    assert lab.cluster.stopped == ([job_id] if reachable else [])  # Nomad would run it elsewhere
    lab.cluster.reachable = True
    lab.cluster.end(job_id, LOST)
    lab.reconciler.run([job_id])
    assert lab.show(benchmark_id).status is status
    assert len(lab.attempts(benchmark_id)) == 1


def test_what_is_tried_again_is_not_before_the_task_that_reported_is_stopped(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=1)
    job_id = lab.running(benchmark_id)
    fault = {"status": "failed", "failure": {"category": "thermal", "sentence": "hot"}}
    lab.upload(job_id, fault)
    lab.clock.forward(10)
    lab.reconciler.run()
    assert lab.cluster.stopped == [job_id]
    assert lab.show(benchmark_id).status is Status.RUNNING
    lab.reconciler.run()
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt.failure == Failure(category=FailureCategory.THERMAL, sentence="hot")
    assert attempt.counts
    assert lab.show(benchmark_id).status is Status.PENDING


def look(lab: Lab) -> None:
    with contextlib.suppress(ClusterUnreachable):
        lab.reconciler.run()
