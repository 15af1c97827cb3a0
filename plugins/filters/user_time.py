"""Enough time to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.framework.quick_runs import quick_runs
from edgeyard.scheduler.model.benchmark import WaitingReason


class UserTimeFilter:
    """Refuses boards on which even a quick run takes longer than the stated ``user_time``.

    It would be stopped there, without a result. A quick run is the 0.1 quantile of the prediction:
    a board is refused where nine of ten runs would be stopped.
    """

    name = "user_time"
    refusals = (Refusal(WaitingReason.DEADLINE_UNREACHABLE, never=True),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """See `Filter.admit`."""
        return quick_runs(batch).too_slow(batch, batch.user_times_s)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        return (
            "is too slow: even a quick run of this takes longer there than the "
            f"{batch.user_times_s[row]:g} s of user_time"
        )

    def nowhere(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.nowhere`."""
        least_s = quick_runs(batch).least_of(row, boards)
        return (
            f"no board that fits otherwise runs it within its {batch.user_times_s[row]:g} s of "
            f"user_time; the least that it took lately: about {least_s:.2g} s"
        )


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = UserTimeFilter()
