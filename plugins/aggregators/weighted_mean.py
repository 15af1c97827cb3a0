"""One score from many: their weighted mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Proposal


class WeightedMean:
    """Averages the scorers that did not abstain, by their weights."""

    name = "weighted_mean"

    def combine(
        self, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]
    ) -> NDArray[np.float32]:
        """See `Aggregator.combine`."""
        counted = [each for each in proposals if each.weight > 0.0]
        if len(counted) == 1:
            return counted[0].normalized_scores
        points = np.zeros(len(pairs), dtype=np.float32)
        weights = np.zeros(len(pairs), dtype=np.float32)
        for each in counted:
            answered = ~np.isnan(each.normalized_scores)
            weight = np.float32(each.weight)
            np.add(points, weight * each.normalized_scores, out=points, where=answered)
            np.add(weights, weight, out=weights, where=answered)
        nothing = np.full(len(pairs), np.nan, dtype=np.float32)
        mean = np.divide(points, weights, out=nothing, where=weights > 0)
        return np.clip(mean, 0.0, 1.0)  # rounding may end a hair above 1

    def learn(
        self,
        prior: Mapping[str, float],
        weights: Mapping[str, float],
        rewards: Mapping[str, float],
    ) -> Mapping[str, float]:
        """Learn nothing: keep the policy's weights."""
        return dict(prior)


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Aggregator

    _: Aggregator = WeightedMean()
