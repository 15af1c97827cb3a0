"""Enough storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.sizes import size_text
from edgeyard.scheduler.framework.batch import Batch, exceeds
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason


class StorageFilter:
    """Refuses boards with less storage than the benchmark asks for."""

    name = "storage"
    refusals = (Refusal(WaitingReason.STORAGE, never=True),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """See `Filter.admit`."""
        return exceeds(batch.storage_bytes, batch.snapshot.storage_bytes).view(np.uint8)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        has = size_text(int(batch.snapshot.storage_bytes[board]))
        return f"has {has} of storage, not {size_text(int(batch.storage_bytes[row]))}"

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.explain_infeasible`."""
        most = int(batch.snapshot.storage_bytes[boards].max())
        return (
            f"no board that fits otherwise has {size_text(int(batch.storage_bytes[row]))} "
            f"of storage; the most there is: {size_text(most)}"
        )


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = StorageFilter()
