"""The benchmark types that a board's engine supports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, by_value, supports
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason


class TypeFilter:
    """Refuses boards whose engine, if they have it, doesn't support the benchmark type."""

    name = "type"
    refusals = (Refusal(WaitingReason.TYPE_UNSUPPORTED, never=True),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """See `Filter.admit`."""
        pairs = tuple(zip(batch.engines, batch.types, strict=True))
        misses = by_value(batch, pairs, lambda pair: ~supports(batch, *pair))
        return misses.view(np.uint8)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        return f"doesn't support {batch.types[row]} with {batch.engines[row]}"

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.explain_infeasible`."""
        engine = batch.engines[row]
        told = sorted(
            kind
            for (name, kind), column in batch.snapshot.supports.items()
            if name == engine and column[boards].any()
        )
        return (
            f"no board of family {batch.families[row]} supports {batch.types[row]} with {engine}; "
            f"supported there: {', '.join(told) or 'nothing'}"
        )


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = TypeFilter()
