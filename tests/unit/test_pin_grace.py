"""A decision says what comes of a benchmark whose board is unavailable, from its input alone."""

from __future__ import annotations

from typing import Any

import pytest

from edgeyard.plugins.testing import board, pending, snapshot_of
from edgeyard.scheduler.decide.pins import PinnedBoard, pin_verdict
from edgeyard.scheduler.model.benchmark import IfUnavailable, WaitingReason, WaitReason
from edgeyard.scheduler.model.decision import PinGrace
from tests.builders.decision import cycle

BOARD = "rpi4b-0001-0001"
UNAVAILABLE, AVAILABLE, UNKNOWN = (
    PinnedBoard.UNAVAILABLE,
    PinnedBoard.AVAILABLE,
    PinnedBoard.UNKNOWN,
)


@pytest.mark.parametrize(
    ("reason", "pin", "board", "timed_out"),
    [
        (WaitingReason.BOARD_OFFLINE, {}, UNAVAILABLE, False),
        (WaitingReason.BOARD_OFFLINE, {"is_over": True}, UNAVAILABLE, True),
        (WaitingReason.BOARD_UNHEALTHY, {"is_over": True}, UNAVAILABLE, True),
        (WaitingReason.UNKNOWN_BOARD, {"is_over": True}, UNAVAILABLE, True),
        (WaitingReason.BOARD_DRAINED, {"is_over": True}, UNAVAILABLE, True),
        (WaitingReason.RESERVED, {"is_over": True}, UNAVAILABLE, True),
        # acted on once
        (WaitingReason.BOARD_OFFLINE, {"is_over": True, "is_notified": True}, UNAVAILABLE, False),
        # who waits its turn has its board
        (WaitingReason.BOARD_BUSY, {"is_over": True}, AVAILABLE, False),
        (WaitingReason.PRIORITY, {"is_over": True}, AVAILABLE, False),
        (WaitingReason.FETCHING, {"is_over": True, "is_due": True}, AVAILABLE, False),
        # from its stated start on, a busy board is unavailable too
        (WaitingReason.BOARD_BUSY, {"is_over": True, "is_due": True}, UNAVAILABLE, True),
        (WaitingReason.PRIORITY, {"is_due": True}, UNAVAILABLE, False),
        # a cluster that does not answer says nothing of the board
        (WaitingReason.CLUSTER_UNREACHABLE, {"is_over": True, "is_due": True}, UNKNOWN, False),
    ],
)
def test_a_pin_is_judged_by_the_reason_of_the_wait(
    reason: WaitingReason, pin: Any, board: PinnedBoard, timed_out: bool
) -> None:
    grace = PinGrace(if_unavailable=IfUnavailable.NOTIFY, grace_s=300.0, **pin)
    found = pin_verdict(grace, WaitReason(reason=reason, sentence="why"))
    assert (found.board, found.timed_out) == (board, timed_out)


def test_a_board_that_is_reserved_for_a_moment_is_not_unavailable() -> None:
    grace = PinGrace(if_unavailable=IfUnavailable.NOTIFY, grace_s=300.0, is_over=True)
    soon = WaitReason(reason=WaitingReason.RESERVED, sentence="why", by_reservation=True)
    assert pin_verdict(grace, soon).board is PinnedBoard.AVAILABLE


@pytest.mark.parametrize(
    ("if_unavailable", "pin", "outlook"),
    [
        (IfUnavailable.RESCHEDULE, {}, "after 300 s another board that fits may run it"),
        (IfUnavailable.NOTIFY, {}, "after 300 s the server reports that"),
        (IfUnavailable.NOTIFY, {"is_over": True}, "the server has reported that"),
        (IfUnavailable.NOTIFY, {"is_notified": True}, "the server has reported that"),
    ],
)
def test_the_reason_of_a_decision_says_what_comes_of_the_wait(
    if_unavailable: IfUnavailable, pin: Any, outlook: str
) -> None:
    grace = PinGrace(if_unavailable=if_unavailable, grace_s=300.0, **pin)
    snapshot = snapshot_of([board(BOARD)], offline=[BOARD])
    result = cycle(snapshot, [pending("pinned", target_uid=BOARD, pin=grace), pending("free")])
    assert outlook in result.waiting["pinned"].sentence
    assert result.explanation("pinned").waiting == result.waiting["pinned"]
    verdict = result.pin_verdict("pinned")
    assert verdict is not None
    assert outlook not in verdict.reason.sentence
    assert result.pin_verdict("free") is None


def test_a_benchmark_that_no_board_could_ever_run_has_no_grace_time() -> None:
    grace = PinGrace(if_unavailable=IfUnavailable.NOTIFY, grace_s=300.0, is_over=True)
    gone = pending("gone", target_uid="rpi4b-0009-0009", pin=grace)
    result = cycle(snapshot_of([board(BOARD)]), [gone])
    assert result.pin_verdict("gone") is None
    assert "grace" not in result.waiting["gone"].sentence
