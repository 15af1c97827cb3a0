"""Only boards that are expected are ever used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason


class InventoryFilter:
    """Refuses boards that a host reports and the inventory doesn't know."""

    name = "inventory"
    refusals = (Refusal(WaitingReason.UNKNOWN_BOARD, never=True),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """See `Filter.admit`."""
        return (~batch.snapshot.expected).astype(np.uint8)[None, :]

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        return "is not on the inventory, so it is never used"

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.explain_infeasible`."""
        return "no board that hosts report is on the inventory"


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = InventoryFilter()
