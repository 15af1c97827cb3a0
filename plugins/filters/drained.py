"""Boards that an operator took out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason


class DrainedFilter:
    """Refuses drained boards."""

    name = "drained"
    refusals = (Refusal(WaitingReason.RESERVED, never=False),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """See `Filter.admit`."""
        return batch.snapshot.drained.astype(np.uint8)[None, :]

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        reason = batch.snapshot.reasons[board]
        return f"is drained ({reason})" if reason else "is drained"

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.explain_infeasible`."""
        return ""


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = DrainedFilter()
