"""Benchmarks that name a board which can't be had."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import (
    Binding,
    Failure,
    FailureCategory,
    IfUnavailable,
    Status,
    WaitingReason,
)
from edgeyard.scheduler.model.boards import BoardOverride
from tests.builders.engine import A, B, Lab
from tests.fakes.cluster import board

GRACE_S = 300.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, A, B, pin_grace_s=GRACE_S)
    yield made
    made.store.close()


def unplug(lab: Lab, uid: str = A) -> None:
    lab.cluster.boards = [each for each in lab.cluster.boards if each.target_uid != uid]


def plug_in(lab: Lab, uid: str = A) -> None:
    lab.cluster.boards.append(board(uid))


def pinned(lab: Lab, **changes: object) -> str:
    asked: dict[str, object] = {"target": None, "target_uid": A, **changes}
    return lab.submit(**asked)  # type: ignore[arg-type]  # fields of the description


def sentence(lab: Lab, benchmark_id: str) -> str:
    waiting = lab.waiting(benchmark_id)
    return waiting.sentence


def test_past_the_grace_time_another_board_that_fits_runs_it(lab: Lab) -> None:
    unplug(lab)
    benchmark_id = pinned(lab, binding=Binding.FILTERED)
    lab.turn()
    assert "offline" in sentence(lab, benchmark_id)
    assert sentence(lab, benchmark_id).endswith(
        "; after 300 s another board that fits may run it, as its description allows"
    )
    lab.clock.forward(GRACE_S - 1)
    lab.turn()
    assert not lab.show(benchmark_id).unpinned
    lab.clock.forward(1)
    lab.turn()
    lab.turn()
    shown = lab.show(benchmark_id)
    assert (shown.status, shown.target_uid, shown.unpinned) == (Status.SCHEDULED, B, True)
    assert shown.description.target_uid == A  # what was submitted stays
    (reported,) = lab.events(benchmark_id, "benchmark.unpinned")
    assert reported.data["reason"] == "board_offline"
    (reported,) = lab.events(benchmark_id, "benchmark.rescheduled")
    assert (reported.data["from"], reported.data["target_uid"]) == (A, B)
    # Its job asks for the family, not for the board that is gone.
    (text,) = lab.cluster.texts.values()
    assert A not in text
    assert "rpi4b" in text


def test_a_board_that_comes_back_in_time_keeps_its_benchmark(lab: Lab) -> None:
    unplug(lab)
    benchmark_id = pinned(lab)
    lab.turn()
    lab.clock.forward(GRACE_S - 1)
    lab.turn()
    plug_in(lab)
    lab.turn()
    shown = lab.show(benchmark_id)
    assert (shown.status, shown.target_uid, shown.unpinned) == (Status.SCHEDULED, A, False)
    assert lab.events(benchmark_id, "benchmark.rescheduled") == []


def test_each_absence_has_a_grace_time_of_its_own(lab: Lab) -> None:
    running = pinned(lab)
    job_id = lab.running(running)
    benchmark_id = pinned(lab)
    lab.clock.forward(GRACE_S * 2)
    lab.turn()
    assert not lab.show(benchmark_id).unpinned  # busy is no absence
    unplug(lab)
    lab.turn()
    lab.clock.forward(1)
    lab.turn()
    assert not lab.show(benchmark_id).unpinned
    plug_in(lab)
    lab.turn()
    unplug(lab)
    lab.turn()
    lab.clock.forward(GRACE_S - 1)
    lab.turn()
    assert not lab.show(benchmark_id).unpinned
    assert lab.cluster.jobs[job_id].target_uid == A


def test_a_pinned_benchmark_gets_one_event_for_an_unavailable_board(lab: Lab) -> None:
    unplug(lab)
    benchmark_id = pinned(lab, if_unavailable=IfUnavailable.NOTIFY)
    lab.turn()
    assert sentence(lab, benchmark_id).endswith(
        "; it stays pinned to this board, as its description demands; after 300 s the server "
        "reports that the board is unavailable"
    )
    for _ in range(3):
        lab.clock.forward(GRACE_S)
        lab.turn()
    assert sentence(lab, benchmark_id).endswith(
        "; it stays pinned to this board, as its description demands; the server has reported "
        "that the board is unavailable"
    )
    (reported,) = lab.events(benchmark_id, "benchmark.unavailable")
    assert (reported.data["target_uid"], reported.data["reason"]) == (A, "board_offline")
    assert lab.show(benchmark_id).status is Status.PENDING
    assert not lab.show(benchmark_id).unpinned
    lab.restart()
    lab.turn()
    lab.clock.forward(GRACE_S)
    lab.turn()
    assert len(lab.events(benchmark_id, "benchmark.unavailable")) == 1
    plug_in(lab)
    lab.turn()
    assert (lab.show(benchmark_id).status, lab.show(benchmark_id).target_uid) == (
        Status.SCHEDULED,
        A,
    )


def test_a_restart_of_the_server_does_not_begin_the_grace_time_anew(lab: Lab) -> None:
    unplug(lab)
    benchmark_id = pinned(lab)
    lab.turn()
    lab.clock.forward(GRACE_S - 10)
    lab.restart()
    lab.cluster.reachable = False  # at first the new process knows of no board
    lab.cycle.run()
    lab.cluster.reachable = True
    lab.turn()
    assert not lab.show(benchmark_id).unpinned
    lab.clock.forward(10)
    lab.turn()
    lab.turn()
    shown = lab.show(benchmark_id)
    assert (shown.unpinned, shown.target_uid, shown.unavailable_since) == (True, B, None)


def test_retries_on_a_faulty_pinned_board_back_off(lab: Lab) -> None:
    benchmark_id = pinned(lab, max_retries=2)
    fault = Failure(category=FailureCategory.BOARD_FAULT, sentence="its board is gone")
    for wait_s in (10, 20):
        job_id = lab.running(benchmark_id)
        lab.cluster.end(job_id, fault)
        lab.reconciler.run()
        made = len(lab.attempts(benchmark_id))
        lab.clock.forward(wait_s - 1)
        lab.turn()
        assert len(lab.attempts(benchmark_id)) == made
        assert "tried there again at" in sentence(lab, benchmark_id)
        lab.clock.forward(1)
    lab.turn()
    assert len(lab.attempts(benchmark_id)) == 3


FAULT = Failure(category=FailureCategory.BOARD_FAULT, sentence="its board is gone")


def failed(lab: Lab, benchmark_id: str, uid: str) -> None:
    lab.cluster.end(lab.running(benchmark_id, uid), FAULT)
    lab.reconciler.run()


@pytest.mark.parametrize("binding", list(Binding))
@pytest.mark.parametrize("other", ["gone", "busy", "failed it too"])
def test_retries_on_the_only_board_that_fits_back_off(
    lab: Lab, binding: Binding, other: str
) -> None:
    if other == "gone":
        unplug(lab, B)
    elif other == "busy":
        lab.running(lab.submit(target=None, target_uid=B), B)
    benchmark_id = lab.submit(max_retries=4, binding=binding)
    failed(lab, benchmark_id, A)
    if other == "failed it too":
        lab.clock.forward(5)
        failed(lab, benchmark_id, B)  # it goes to the other one at once
    made = len(lab.attempts(benchmark_id))
    lab.clock.forward(4 if other == "failed it too" else 9)
    lab.turn()
    assert len(lab.attempts(benchmark_id)) == made
    assert f"its last attempt on {A} failed" in sentence(lab, benchmark_id)
    assert "no other board is free: it is tried there again at" in sentence(lab, benchmark_id)
    lab.clock.forward(1)
    failed(lab, benchmark_id, A)
    lab.clock.forward(4 if other == "failed it too" else 19)
    lab.turn()
    assert len(lab.attempts(benchmark_id)) == made + 1
    lab.clock.forward(1)
    lab.turn()
    assert len(lab.attempts(benchmark_id)) == made + 2


def test_a_free_board_that_has_not_failed_it_is_tried_at_once(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=2, binding=Binding.LOOSE)
    failed(lab, benchmark_id, A)
    lab.turn()
    last = lab.attempts(benchmark_id)[-1]
    assert (last.number, last.target_uid, last.allowed_uids) == (2, B, (B,))


def test_busy_past_its_start_is_as_bad_as_offline(lab: Lab) -> None:
    lab.running(pinned(lab, user_time_s=10_000.0))
    start = lab.clock.now() + timedelta(seconds=600)
    benchmark_id = pinned(lab, start_time=start)
    lab.turn()
    waiting = lab.waiting(benchmark_id)
    assert waiting.reason is WaitingReason.START_TIME
    lab.clock.forward(600)
    lab.turn()
    assert "busy" in sentence(lab, benchmark_id)
    lab.clock.forward(GRACE_S)
    lab.turn()
    lab.turn()
    assert lab.show(benchmark_id).target_uid == B


def test_a_board_with_a_reservation_is_not_unavailable(lab: Lab) -> None:
    """The board is there, and its turn comes: to lose the pin for that would be a surprise."""
    start = lab.time.now() + timedelta(minutes=50)
    lab.submit(target=None, target_uid=A, start_time=start, user_time_s=60.0)
    pinned = lab.submit(target=None, target_uid=A, user_time_s=3600.0)
    for _ in range(7):
        lab.decide()
        lab.clock.forward(100)
    shown = lab.show(pinned)
    assert shown.waiting is not None
    assert shown.waiting.reason is WaitingReason.RESERVED
    assert not shown.unpinned


def test_a_board_that_an_operator_took_out_can_t_be_had_either(lab: Lab) -> None:
    with lab.store.write() as uow:
        uow.board_overrides.put(
            BoardOverride(
                target_uid=A, drained=True, reason="fan", by_user_id="op", at=lab.clock.now()
            )
        )
    benchmark_id = pinned(lab)
    lab.turn()
    lab.clock.forward(GRACE_S)
    lab.turn()
    lab.turn()
    assert lab.show(benchmark_id).target_uid == B


def test_a_strict_job_that_its_board_never_starts_is_withdrawn(lab: Lab) -> None:
    benchmark_id = lab.submit(binding=Binding.STRICT, max_retries=0)
    lab.turn()
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt.state is AttemptState.QUEUED
    lab.clock.forward(GRACE_S)
    lab.turn()
    assert lab.cluster.stopped == []
    lab.clock.forward(1)
    for _ in range(3):
        lab.turn()
    assert lab.cluster.stopped == [attempt.job_id]
    first, second = lab.attempts(benchmark_id)
    assert (first.state, first.counts, first.started_at) == (AttemptState.ENDED, False, None)
    assert second.target_uid != first.target_uid
    states = [e.data["status"] for e in lab.events(benchmark_id, "benchmark.status")]
    assert "running" not in states


def test_a_job_that_downloads_on_its_board_is_not_withdrawn(lab: Lab) -> None:
    benchmark_id = lab.submit(binding=Binding.STRICT)
    lab.turn()
    (attempt,) = lab.attempts(benchmark_id)
    lab.cluster.jobs[attempt.job_id] = replace(
        lab.cluster.jobs[attempt.job_id], target_uid=attempt.target_uid, reason="downloading"
    )
    lab.clock.forward(GRACE_S * 5)
    lab.turn()
    assert lab.cluster.stopped == []


def test_a_start_that_the_cluster_holds_is_waited_for(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B, start_lead_s=3600, pin_grace_s=GRACE_S)
    pinned(lab, start_time=lab.clock.now() + timedelta(seconds=2000))
    lab.turn()
    assert len(lab.cluster.dispatched) == 1
    lab.clock.forward(2000 + GRACE_S)
    lab.turn()
    assert lab.cluster.stopped == []
    lab.clock.forward(1)
    lab.turn()
    assert len(lab.cluster.stopped) == 1
    lab.store.close()


def test_a_cancelled_one_is_not_unpinned(lab: Lab) -> None:
    unplug(lab)
    benchmark_id = pinned(lab)
    lab.turn()
    lab.clock.forward(GRACE_S)
    with lab.store.write() as uow:
        lifecycle.cancel(uow, benchmark_id, lab.clock.now(), "ann")
    lab.turn()
    assert not lab.show(benchmark_id).unpinned


@pytest.mark.parametrize("if_unavailable", list(IfUnavailable))
def test_a_wait_in_the_cluster_is_part_of_the_grace_time(
    tmp_path: Path, if_unavailable: IfUnavailable
) -> None:
    """A minute before its start its job is left to Nomad, and then the board dies.

    The cluster has `start_grace_s` to give the job its board, which is as long: both begin at the
    start.
    """
    lab = Lab(tmp_path, A, B, start_lead_s=60.0, start_grace_s=GRACE_S, pin_grace_s=GRACE_S)
    start = lab.time.now() + timedelta(seconds=60)
    benchmark_id = pinned(lab, start_time=start, if_unavailable=if_unavailable)
    lab.turn()
    assert lab.attempts(benchmark_id)[0].state is AttemptState.QUEUED
    unplug(lab)
    kind = {
        IfUnavailable.NOTIFY: "benchmark.unavailable",
        IfUnavailable.RESCHEDULE: "benchmark.unpinned",
    }[if_unavailable]
    while not (found := lab.events(benchmark_id, kind)):
        assert lab.time.now() < start + timedelta(seconds=2 * GRACE_S)
        lab.clock.forward(10)
        lab.turn()
    assert timedelta(seconds=GRACE_S) <= found[0].at - start <= timedelta(seconds=GRACE_S + 30)
    assert found[0].data["reason"] == "board_offline"
    lab.store.close()


def test_a_board_that_is_there_again_is_no_absence_after_a_wait_in_the_cluster(lab: Lab) -> None:
    benchmark_id = pinned(lab, if_unavailable=IfUnavailable.NOTIFY)
    lab.turn()
    lab.clock.forward(GRACE_S + 1)
    for _ in range(3):  # taken back from the cluster, and placed again
        lab.turn()
    assert len(lab.attempts(benchmark_id)) == 2
    unplug(lab)
    lab.turn()
    assert lab.events(benchmark_id, "benchmark.unavailable") == []
