"""The stated maximum run time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Filter, Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.run_bounds import MIN_RUN_S
from edgeyard.scheduler.prediction.quick_runs import INFEASIBLE, quick_runs, trial_phrase


class UserTimeFilter(Filter):
    """Refuses boards on which even a quick run is predicted to exceed the stated ``user_time``.

    It would be stopped there, without a result; a run with a precision ends in time with what it
    has measured, and is never refused. A quick run is the 0.1 quantile of the prediction:
    a board is refused if 9 of 10 runs would be stopped. A prediction may be wrong, so it
    refuses for the policy's ``prediction_wait_s`` at most; only a ``user_time`` that no run can
    keep is refused finally.
    """

    name = "user_time"
    refusals = (
        Refusal(WaitingReason.DEADLINE_UNREACHABLE, never=True),
        Refusal(WaitingReason.DEADLINE_UNREACHABLE, never=False),
    )

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        return quick_runs(batch).codes(batch, batch.user_times_s, of_run=True)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        bound = f"the {batch.user_times_s[row]:g} s of user_time"
        if code == INFEASIBLE:
            return f"can't run anything within {bound}"
        return (
            f"is predicted to be too slow: even a quick run takes longer there than {bound}; "
            f"{trial_phrase(batch, row)}"
        )

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        return (
            f"no run ends within its {batch.user_times_s[row]:g} s of user_time; "
            f"accepted: at least {MIN_RUN_S:g} s"
        )
