"""Enough time before the deadline."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.framework.quick_runs import least_run_times
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
        due = np.array([row for row, at in enumerate(batch.deadlines) if at is not None], np.intp)
        least_s = least_run_times(batch, due)
        if least_s is None:
            return np.zeros((1, batch.shape[1]), dtype=np.uint8)
        left_s = np.array(
            [(at - batch.now).total_seconds() for at in batch.deadlines if at is not None]
        )
        codes = np.zeros(batch.shape, dtype=np.uint8)
        codes[due] = least_s > left_s[:, None]
        return codes

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        return f"is too slow to be through by {_due(batch, row)}, even with a quick run"

    def nowhere(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.nowhere`."""
        found = least_run_times(batch, np.array([row]))
        if found is None:
            return ""
        return (
            f"its deadline {_due(batch, row)} can't be met any more: even a quick run takes about "
            f"{np.nanmin(found[0, boards]):.2g} s"
        )


def _due(batch: Batch, row: int) -> str:
    at = batch.deadlines[row]
    return "its deadline" if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = DeadlineFilter()
