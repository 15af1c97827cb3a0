"""States in which a board takes no benchmark, whatever it requires: one filter for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Filter, Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.times import time_text


@dataclass(frozen=True, kw_only=True)
class BoardState:
    """A state of boards.

    Attributes:
        name: Name of the filter.
        reason: Code of a refusal.
        never: Whether waiting is useless.
        applies: Returns which boards are in this state: shape (boards,).
        phrase: Describes such a board, after its name.
        infeasible: Sentence where all boards are in this state, which never ends.
    """

    name: str
    reason: WaitingReason
    applies: Callable[[Batch], NDArray[np.bool_]]
    phrase: Callable[[Batch, int], str]
    never: bool = False
    infeasible: str = ""


def _with_reason(text: str, batch: Batch, board: int) -> str:
    reason = batch.snapshot.reasons[board]
    return f"{text} ({reason})" if reason else text


def _last_report(batch: Batch, board: int) -> str:
    taken_at = batch.snapshot.taken_at
    if taken_at is None or not np.isfinite(batch.snapshot.age_s):
        return "has not been reported yet"
    return f"was last heard of at {time_text(taken_at)}, too long ago"


BOARD_STATES = (
    BoardState(
        name="inventory",
        reason=WaitingReason.UNKNOWN_BOARD,
        never=True,
        applies=lambda batch: ~batch.snapshot.expected,
        phrase=lambda batch, board: "is not in the inventory, so it is never used",
        infeasible="no board that hosts report is in the inventory",
    ),
    # Another program may use a board. A board that was just released may report the progress of
    # its last task for a moment, and a job that was dispatched to it then would not start.
    BoardState(
        name="progress",
        reason=WaitingReason.BOARD_BUSY,
        applies=lambda batch: (batch.snapshot.progress > 0.0) & (batch.snapshot.progress < 100.0),
        phrase=lambda batch, board: "still reports work in progress",
    ),
    BoardState(
        name="busy",
        reason=WaitingReason.BOARD_BUSY,
        applies=lambda batch: batch.snapshot.busy,
        phrase=partial(_with_reason, "is busy"),
    ),
    BoardState(
        name="drained",
        reason=WaitingReason.BOARD_DRAINED,
        applies=lambda batch: batch.snapshot.drained,
        phrase=partial(_with_reason, "is drained"),
    ),
    # The state of all boards, while the twin is older than the policy's twin_max_age_s or of
    # unknown age. A policy without this filter decides on the last known state, however old.
    BoardState(
        name="staleness",
        reason=WaitingReason.CLUSTER_UNREACHABLE,
        applies=lambda batch: np.full(batch.shape[1], batch.stale),
        phrase=_last_report,
    ),
)


class BoardStateFilter(Filter):
    """Refuses boards in one state, to every benchmark."""

    def __init__(self, state: BoardState) -> None:
        """Make the filter of one row."""
        self._state = state
        self._refusals = (Refusal(state.reason, never=state.never),)

    @property
    def name(self) -> str:
        return self._state.name

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return self._refusals

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        return self._state.applies(batch).astype(np.uint8)[None, :]

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        return self._state.phrase(batch, board)

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        return self._state.infeasible


FILTERS: Mapping[str, Callable[[], BoardStateFilter]] = {
    each.name: partial(BoardStateFilter, each) for each in BOARD_STATES
}
"""A factory for the filter of each state, by its name."""
