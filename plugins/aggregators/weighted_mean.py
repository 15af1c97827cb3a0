"""One score from many: their weighted mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Proposal


class WeightedMean:
    """The mean over the scorers that didn't abstain, by their weights."""

    name = "weighted_mean"

    def combine(self, batch: Batch, proposals: Sequence[Proposal]) -> NDArray[np.float32]:
        """See `Aggregator.combine`."""
        if len(proposals) == 1:
            return proposals[0].scores
        points = np.zeros(batch.shape, dtype=np.float32)
        weights = np.zeros(batch.shape, dtype=np.float32)
        for proposal in proposals:
            told = ~np.isnan(proposal.scores)
            np.add(points, proposal.weight * proposal.scores, out=points, where=told)
            np.add(weights, proposal.weight, out=weights, where=told)
        nothing = np.full(batch.shape, np.nan, dtype=np.float32)
        mean = np.divide(points, weights, out=nothing, where=weights > 0)
        return np.clip(mean, 0.0, 1.0)  # rounding may end a hair above 1


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Aggregator

    _: Aggregator = WeightedMean()
