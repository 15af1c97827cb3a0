"""A benchmark that names a board gets that board."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, by_value, is_board
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason


class TargetUidFilter:
    """Refuses every board but the one that is asked for."""

    name = "target_uid"
    refusals = (Refusal(WaitingReason.CLUSTER_CONSTRAINT, never=True),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """See `Filter.admit`."""
        misses = by_value(batch, batch.target_uids, lambda uid: ~is_board(batch, uid))
        return misses.view(np.uint8)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        return f"is not {batch.target_uids[row]}, which is asked for"

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.explain_infeasible`."""
        return f"no board {batch.target_uids[row]} is known"


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = TargetUidFilter()
