"""Promised boards, boards that rest, and giving boards out jointly."""

from __future__ import annotations

from datetime import timedelta

import pytest

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.batch import kind_of
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Knowledge, Promise
from tests.builders.decision import cycle, places

A, B = "rpi4b-0001-0001", "rpi4b-0001-0002"
ONE, BOTH = snapshot_of([board(A)]), snapshot_of([board(A), board(B)])
JOB = pending("job", user_time_s=60.0)


def in_s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def reserved(start_s: float, uid: str = A) -> object:
    return pending("reserved", target_uid=uid, start_time=NOW + in_s(start_s))


@pytest.mark.parametrize(("start_s", "placed"), [(59.0, False), (60.0, True)])
def test_a_board_whose_start_is_reserved_is_used_only_by_who_is_through_before(
    start_s: float, placed: bool
) -> None:
    result = cycle(ONE, [JOB, reserved(start_s)])  # type: ignore[list-item]
    assert ("job" in places(result)) is placed
    if not placed:
        waiting = result.waiting["job"]
        assert waiting.reason is WaitingReason.RESERVED
        assert A in waiting.sentence
        assert "promised" in waiting.sentence


def test_another_board_is_taken_instead() -> None:
    result = cycle(BOTH, [JOB, reserved(5.0)])  # type: ignore[list-item]
    assert places(result) == {"job": B}


def test_a_promise_that_is_due_keeps_the_board_for_whom_it_was_made_to() -> None:
    late = pending("late", submit_time=NOW, user_priority=1)
    known = Knowledge(promises=(Promise(benchmark_id="late", target_uid=A, start=NOW),))
    assert places(cycle(ONE, [JOB, late], knowledge=known)) == {"late": A}
    gone = Knowledge(promises=(Promise(benchmark_id="gone", target_uid=A, start=NOW),))
    assert places(cycle(ONE, [JOB], knowledge=gone)) == {"job": A}


def test_a_policy_may_go_by_what_is_predicted() -> None:
    runs = History(
        PastRun(
            benchmark_id=f"b-{number}",
            user_id="user-1",
            target_uid=A,
            family="rpi4b",
            kind=kind_of(JOB),
            run_s=9.0 + 0.1 * number,
            failure=None,
            ended_at=NOW - timedelta(hours=1),
        )
        for number in range(20)
    )
    queue = [JOB, reserved(30.0)]
    known = Knowledge(runs=runs)
    assert "job" not in places(cycle(ONE, queue, knowledge=known))  # type: ignore[arg-type]
    assert "job" in places(cycle(ONE, queue, knowledge=known, hold_quantile=0.95))  # type: ignore[arg-type]


@pytest.mark.parametrize(("ago_s", "placed"), [(29.0, False), (30.0, True)])
def test_a_board_rests_where_the_policy_says_so(ago_s: float, placed: bool) -> None:
    last = PastRun(
        benchmark_id="b-0",
        user_id="user-1",
        target_uid=A,
        family="rpi4b",
        kind=kind_of(JOB),
        run_s=1.0,
        failure="timeout",
        ended_at=NOW - in_s(ago_s),
    )
    known = Knowledge(runs=History([last]))
    result = cycle(ONE, [JOB], knowledge=known, cool_down_s=30.0)
    assert ("job" in places(result)) is placed
    if not placed:
        assert "cools down until" in result.waiting["job"].sentence
    assert "job" in places(cycle(ONE, [JOB], knowledge=known))


def test_jointly_a_board_on_which_it_failed_is_used_only_where_there_is_no_other() -> None:
    tried = pending("tried", tried_uids=frozenset({A}))
    assert places(cycle(BOTH, [tried, JOB], joint_most=10)) == {"tried": B, "job": A}
    assert places(cycle(ONE, [tried], joint_most=10)) == {"tried": A}
