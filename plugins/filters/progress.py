"""Boards that tell of work although nothing holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason


class ProgressFilter:
    """Refuses boards whose task tells that it is under way: 0 < progress < 100.

    A board that was just freed may tell the last task's for a moment, and one may be in use by
    hand; a job that was sent there would not start. Boards that tell nothing pass.
    """

    name = "progress"
    refusals = (Refusal(WaitingReason.BOARD_BUSY, never=False),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """See `Filter.admit`."""
        progress = batch.snapshot.progress
        return ((progress > 0.0) & (progress < 100.0)).astype(np.uint8)[None, :]

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        return "still tells of work under way"

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.explain_infeasible`."""
        return ""


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = ProgressFilter()
