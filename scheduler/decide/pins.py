"""Pinned benchmarks: whether the board that they name is unavailable, and for too long."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import WaitingReason, WaitReason
from edgeyard.scheduler.model.decision import PinGrace

_UNAVAILABLE = frozenset(
    reason for reason, each in waiting_reasons.BOARD_REFUSALS.items() if each.unavailable
)
_NOT_FREE = frozenset({WaitingReason.BOARD_BUSY, WaitingReason.PRIORITY})


class PinnedBoard(StrEnum):
    """State of the board that a waiting benchmark names."""

    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"  # the cluster does not answer


@dataclass(frozen=True, slots=True, kw_only=True)
class PinVerdict:
    """What a cycle finds of a pinned benchmark that waits.

    Attributes:
        reason: Why it waits, without what comes of that.
        timed_out: ``if_unavailable`` is to be acted on.
    """

    board: PinnedBoard
    reason: WaitReason
    timed_out: bool


def pin_verdict(pin: PinGrace, reason: WaitReason) -> PinVerdict:
    """Judge a pinned benchmark by the reason why it waits."""
    board = PinnedBoard.AVAILABLE
    if reason.reason is WaitingReason.CLUSTER_UNREACHABLE:
        board = PinnedBoard.UNKNOWN
    elif (reason.reason in _UNAVAILABLE and not reason.by_reservation) or (
        pin.is_due and reason.reason in _NOT_FREE
    ):
        board = PinnedBoard.UNAVAILABLE
    timed_out = board is PinnedBoard.UNAVAILABLE and pin.is_over and not pin.is_notified
    return PinVerdict(board=board, reason=reason, timed_out=timed_out)


def explained(pin: PinGrace, verdict: PinVerdict) -> WaitReason:
    """Return why a pinned benchmark waits, and what comes of it."""
    if verdict.board is not PinnedBoard.UNAVAILABLE:
        return verdict.reason
    return waiting_reasons.with_pin_outlook(
        verdict.reason,
        pin.if_unavailable,
        pin.grace_s,
        notified=verdict.timed_out or pin.is_notified,
    )
