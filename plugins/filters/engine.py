"""The runtime that a board offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, by_value, has_engine
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason


class EngineFilter:
    """Refuses boards without the engine."""

    name = "engine"
    refusals = (Refusal(WaitingReason.ENGINE_MISSING, never=True),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """See `Filter.admit`."""
        misses = by_value(batch, batch.engines, lambda engine: ~has_engine(batch, engine))
        return misses.view(np.uint8)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        return f"has no engine {batch.engines[row]}"

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.explain_infeasible`."""
        had = sorted(
            name for name, column in batch.snapshot.engines.items() if column[boards].any()
        )
        return (
            f"no board of family {batch.families[row]} has engine {batch.engines[row]}; "
            f"engines there: {', '.join(had) or 'none'}"
        )


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = EngineFilter()
