"""Enough time before the deadline."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Filter, Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.times import time_text
from edgeyard.scheduler.prediction.quick_runs import INFEASIBLE, quick_runs, trial_phrase


class DeadlineFilter(Filter):
    """Refuses boards on which even a quick run that began now is predicted to miss the deadline.

    A quick run is the 0.1 quantile of the prediction, so that a chance of 1 in 10 is still used. A
    board without prediction passes. A prediction may be wrong, so the benchmark is tried
    while it can still be in time: after half of the time to its deadline, and after the policy's
    ``prediction_wait_s`` at the latest. Only a deadline that no run can meet is refused finally.
    """

    name = "deadline"
    refusals = (
        Refusal(WaitingReason.DEADLINE_UNREACHABLE, never=True),
        Refusal(WaitingReason.DEADLINE_UNREACHABLE, never=False),
    )

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        left_s = [
            np.nan if at is None else (at - batch.now).total_seconds() for at in batch.deadlines
        ]
        return quick_runs(batch).codes(batch, np.array(left_s, dtype=np.float64), of_run=False)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        if code == INFEASIBLE:
            return f"can't run anything by {_due(batch, row)}"
        return (
            f"is predicted to be too slow to end by {_due(batch, row)}, even with a quick run; "
            f"{trial_phrase(batch, row)}"
        )

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        return f"no run can end by {_due(batch, row)} any more"


def _due(batch: Batch, row: int) -> str:
    at = batch.deadlines[row]
    moment = "" if at is None else f" {time_text(at)}"
    return f"its deadline{moment}"
