"""Regret: what a scorer's favourite boards are expected to cost more than the best ones.

The cost is of expected run time and failures, in seconds; credits and joules, which the aggregator
`expected_cost` counts, play no part. Run times and failures are those that past runs let be
expected, little history shrunk to the family and to all
(`edgeyard.scheduler.prediction.estimates`), or an active registered model where it is certain
(`edgeyard.scheduler.learning.active`): it was shown to predict better. A class c with k benchmarks
that wait would take the k boards that a scorer likes best; boards that it finds alike are taken by
lot::

    cost(s, c)    mean expected cost of the boards that s would take for c
    best(c)       mean expected cost of the k cheapest boards
    reward(s, c)  best / (best + max(0, cost - best - TIE_SHARE x best))
    reward(s)     mean over classes, by their benchmarks

So 1 for choices that are as good as the best ones, and a half where they cost twice as much. While
little is known, boards are expected to be alike and all choices are nearly as good. Standard errors
play no part: who likes what nobody has tried would never regret it. Nor does it play a part whether
scorers agree with each other. A scorer is not rewarded for classes on which it abstains or of which
nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Proposal
from edgeyard.scheduler.framework.relative import TIE_SHARE, relative_scores
from edgeyard.scheduler.learning.active import (
    ModelPrediction,
    predicted_failures,
    predicted_run_times,
)
from edgeyard.scheduler.prediction.estimates import RETRY_S, past_pairs

MAX_CLASSES = 64
"""Classes that are judged in a cycle, those of the first benchmarks of the queue."""

Floats = NDArray[np.float64]


class RegretEvaluator:
    """Rewards scorers by the regret of the boards that they prefer."""

    name = "regret"

    def evaluate(
        self, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]
    ) -> Mapping[str, float]:
        if not batch.knowledge.runs or not len(pairs):
            return {}
        costs = expected_costs_s(batch, pairs)
        waiting = batch.class_of_job[batch.queue]
        rows, first, jobs = np.unique(waiting, return_index=True, return_counts=True)
        front = np.argsort(first)[:MAX_CLASSES]
        total, weight = dict.fromkeys(_names(proposals), 0.0), dict.fromkeys(_names(proposals), 0)
        liked = {each.scorer: relative_scores(pairs, each) for each in proposals}
        for row, count in zip(rows[front].tolist(), jobs[front].tolist(), strict=True):
            part = pairs.of(row)
            cost = costs[part]
            if not len(cost) or np.isnan(cost).any():
                continue
            judge = _Judge(cost)
            for name, scores in liked.items():
                reward = judge.reward(scores[part], count)
                if reward is not None:
                    total[name] += count * reward
                    weight[name] += count
        return {name: total[name] / weight[name] for name in total if weight[name]}


class _Judge:
    """Rewards choices of boards for one class.

    Attributes:
        cost: Shape (boards,): what a run is expected to cost on each, seconds.
    """

    def __init__(self, cost: Floats) -> None:
        self.cost = cost
        self._cheapest = np.cumsum(np.sort(cost))

    def reward(self, scores: NDArray[np.float32], count: int) -> float | None:
        """Return the reward of scores of the boards; None where all are NaN.

        Args:
            scores: Shape (boards,), more is better; NaN: not rated, never taken.
            count: Boards to take.
        """
        known = scores[~np.isnan(scores)]
        if not len(known):
            return None
        count = min(count, len(known))
        threshold = np.partition(known, len(known) - count)[len(known) - count]
        with np.errstate(invalid="ignore"):
            taken, tied = scores > threshold, scores == threshold
        share = taken + tied * ((count - taken.sum()) / tied.sum())
        cost, best = float(share @ self.cost) / count, float(self._cheapest[count - 1]) / count
        over = max(cost - best - TIE_SHARE * best, 0.0)
        return best / (best + over) if best > 0.0 else 1.0


def expected_costs_s(batch: Batch, pairs: Pairs) -> Floats:
    """Return what a run of each pair is expected to cost by past runs and active models.

    ``run + failures x (mean run of the class + RETRY_S)``

    Returns:
        Shape (pairs,), seconds; NaN where nothing at all is known.
    """
    past = past_pairs(batch, pairs)
    run_s = _corrected(np.exp(past.run_time_parts().location), predicted_run_times(batch, pairs))
    failures = _corrected(past.failure_chances()[0], predicted_failures(batch, pairs))
    classes = len(pairs.starts) - 1
    count = np.maximum(np.bincount(pairs.rows, minlength=classes), 1)
    mean_s = np.bincount(pairs.rows, weights=run_s, minlength=classes) / count
    another_s = mean_s[pairs.rows] + RETRY_S
    return np.asarray(run_s + failures * another_s, dtype=np.float64)


def _corrected(history: Floats, found: ModelPrediction | None) -> Floats:
    return history if found is None else np.where(np.isnan(found.values), history, found.values)


def _names(proposals: Sequence[Proposal]) -> list[str]:
    return [each.scorer for each in proposals]
