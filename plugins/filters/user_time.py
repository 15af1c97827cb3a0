"""Enough time to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.framework.quick_runs import least_run_times
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
        bounded = np.flatnonzero(~np.isnan(batch.user_times_s))
        least_s = least_run_times(batch, bounded)
        if least_s is None:
            return np.zeros((1, batch.shape[1]), dtype=np.uint8)
        codes = np.zeros(batch.shape, dtype=np.uint8)
        codes[bounded] = least_s > batch.user_times_s[bounded, None]
        return codes

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        return (
            "is too slow: even a quick run of this takes longer there than the "
            f"{batch.user_times_s[row]:g} s of user_time"
        )

    def nowhere(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.nowhere`."""
        found = least_run_times(batch, np.array([row]))
        if found is None:
            return ""
        return (
            f"no board that fits otherwise runs it within its {batch.user_times_s[row]:g} s of "
            f"user_time; the least that it took lately: about {np.nanmin(found[0, boards]):.2g} s"
        )


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = UserTimeFilter()
