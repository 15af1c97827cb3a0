"""Enough time before the deadline."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.framework.quick_runs import quick_runs
from edgeyard.scheduler.model.benchmark import WaitingReason


class DeadlineFilter:
    """Refuses boards on which even a quick run that began now would end after the deadline.

    For ever: time only passes. A quick run is the 0.1 quantile of the prediction, so that a
    chance of one in ten is still taken. What nothing is known of passes.
    """

    name = "deadline"
    refusals = (Refusal(WaitingReason.DEADLINE_UNREACHABLE, never=True),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """See `Filter.admit`."""
        left_s = [
            np.nan if at is None else (at - batch.now).total_seconds() for at in batch.deadlines
        ]
        return quick_runs(batch).too_slow(batch, np.array(left_s, dtype=np.float64))

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        return f"is too slow to be through by {_due(batch, row)}, even with a quick run"

    def nowhere(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.nowhere`."""
        least_s = quick_runs(batch).least_of(row, boards)
        return (
            f"its deadline {_due(batch, row)} can't be met any more: even a quick run takes about "
            f"{least_s:.2g} s"
        )


def _due(batch: Batch, row: int) -> str:
    at = batch.deadlines[row]
    return "its deadline" if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = DeadlineFilter()
