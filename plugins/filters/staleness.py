"""Boards of which too long nothing was heard."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason


class StalenessFilter:
    """Refuses all boards while the twin is older than the policy's ``twin_max_age_s``.

    Also while its age is not known. With this filter left out, what was last known is decided on,
    however old it is.
    """

    name = "staleness"
    refusals = (Refusal(WaitingReason.CLUSTER_UNREACHABLE, never=False),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """See `Filter.admit`."""
        return np.full((1, batch.shape[1]), batch.stale, dtype=np.uint8)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """See `Filter.phrase`."""
        taken_at = batch.snapshot.taken_at
        if taken_at is None or not np.isfinite(batch.snapshot.age_s):
            return "was not heard of yet"
        return f"was last heard of at {taken_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}, too long ago"

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """See `Filter.explain_infeasible`."""
        return ""


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Filter

    _: Filter = StalenessFilter()
