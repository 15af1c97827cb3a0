"""Boards that other programs use as well: seen, named, waited for."""

from __future__ import annotations

from edgeyard.scheduler.model.benchmark import Status, WaitingReason
from edgeyard.scheduler.prediction.forecast import forecasts
from tests.builders.engine import A, B, Lab
from tests.fakes.cluster import board


def report(lab: Lab, **changes: object) -> None:
    """What the host of A says of it."""
    lab.cluster.boards = [board(A, **changes), board(B)]


def test_a_board_that_others_use_is_waited_for(lab: Lab) -> None:
    report(lab, reports_task=True, progress=40.0)
    benchmark_id = lab.submit(target=None, target_uid=A)
    lab.turn()
    shown = lab.show(benchmark_id)
    assert (shown.status, lab.cluster.dispatched) == (Status.PENDING, [])
    assert shown.waiting is not None
    assert shown.waiting.reason is WaitingReason.BOARD_BUSY
    assert "used by a job outside Edgeyard" in shown.waiting.sentence
    report(lab)
    lab.turn()
    assert lab.show(benchmark_id).status is Status.SCHEDULED


def test_a_benchmark_that_fits_another_board_runs_there(lab: Lab) -> None:
    report(lab, reports_task=True)
    benchmark_id = lab.submit()
    lab.turn()
    assert lab.show(benchmark_id).target_uid == B


def test_a_late_report_of_an_own_task_delays_no_benchmark(lab: Lab) -> None:
    first = lab.submit(target=None, target_uid=A)
    job_id = lab.running(first)
    report(lab, reports_task=True, progress=90.0)
    lab.turn()
    lab.complete(job_id)
    second = lab.submit(target=None, target_uid=A)
    lab.reconciler.run()
    assert lab.show(first).status is Status.COMPLETED
    lab.turn()  # the host still shows the first one's progress
    assert lab.show(second).status is Status.SCHEDULED


def test_a_restarted_server_knows_its_own_late_news_too(lab: Lab) -> None:
    first = lab.submit(target=None, target_uid=A)
    job_id = lab.running(first)
    lab.complete(job_id)
    lab.reconciler.run()
    report(lab, reports_task=True)
    lab.restart()
    second = lab.submit(target=None, target_uid=A)
    lab.turn()
    assert lab.show(second).status is Status.SCHEDULED


def test_a_forecast_does_not_use_a_board_with_a_foreign_task(lab: Lab) -> None:
    report(lab, reports_task=True)
    benchmark_id = lab.submit(target=None, target_uid=A)
    lab.turn()
    assert lab.cycle.latest is not None
    assert benchmark_id not in forecasts(lab.cycle.latest.decided.forecast_input)
    # Where another board will be free, that one is what it says.
    other = lab.submit(user_id="bob", content=b"other")
    lab.turn()
    assert lab.show(other).target_uid == B
    third = lab.submit(user_id="bob", content=b"other")
    lab.turn()
    assert forecasts(lab.cycle.latest.decided.forecast_input)[third].start_low >= lab.clock.now()
