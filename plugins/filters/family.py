"""The kind of board."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, by_value, has_family
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason


class FamilyFilter:
    """Refuses boards of other families."""

    name = "family"
    refusals = (Refusal(WaitingReason.NO_SUCH_FAMILY, never=True),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """See `Filter.admit`."""
        misses = by_value(batch, batch.families, lambda family: ~has_family(batch, family))
        return misses.view(np.uint8)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        return f"is of family {batch.snapshot.families[board]}, not {batch.families[row]}"

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.explain_infeasible`."""
        snapshot = batch.snapshot
        known = {
            family
            for family, expected in zip(snapshot.families, snapshot.expected, strict=True)
            if expected
        }
        if batch.families[row] in known:
            return ""
        told = ", ".join(sorted(known)) or "none"
        return f"no board of family {batch.families[row]} is known; known families: {told}"


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = FamilyFilter()
