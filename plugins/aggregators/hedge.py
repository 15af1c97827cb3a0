"""Weights that follow the rewards: multiplicative weights with a share of what the policy stated.

After a round in which the scorers A were rewarded with r in [0, 1]::

    v_i = p_i exp(RATE r_i) sum_A(p) / sum_A(p exp(RATE r))    for i in A, else p_i
    p_i = (1 - SHARE) v_i + SHARE prior_i

Hedge (Freund and Schapire, "A Decision-Theoretic Generalization of On-Line Learning", JCSS 1997)
over those that are awake (Freund, Schapire, Singer and Warmuth, "Using and Combining Predictors
That Specialize", STOC 1997), with fixed share (Herbster and Warmuth, "Tracking the Best Expert",
Machine Learning 1998) back to the policy's own weights instead of to equal ones: no weight falls
below ``SHARE prior_i``, so that a scorer that got better comes back, and one of weight 0 stays out.

Against any scorer i, the reward of the weighted mean over the T rounds in which i was rewarded lags
by at most (Cesa-Bianchi and Lugosi, Prediction, Learning, and Games, 2006, theorem 2.2 and section
5.2; the potential can't fall below ``prior_i (1 - SHARE)^T exp(RATE sum r_i)``)::

    (ln(1 / prior_i) + T ln(1 / (1 - SHARE))) / RATE + RATE T / 8
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgeyard.plugins.aggregators.expected_cost import ExpectedCost

RATE = 0.1
"""A scorer that is rewarded by 0.2 more than another outweighs it by e after 50 rounds."""

SHARE = 0.001


class Hedge(ExpectedCost):
    """The expected cost, with weights as above."""

    name = "hedge"

    def learn(
        self,
        prior: Mapping[str, float],
        weights: Mapping[str, float],
        rewards: Mapping[str, float],
    ) -> Mapping[str, float]:
        """See `Aggregator.learn`."""
        stated = sum(prior.values())
        if stated <= 0.0:
            return dict(prior)
        share = {name: weight / stated for name, weight in prior.items()}
        current = {name: max(weights.get(name, share[name]), 0.0) for name in prior}
        total = sum(current.values())
        current = {name: weight / total for name, weight in current.items()} if total else share
        grown = {
            name: current[name] * math.exp(RATE * rewards[name])
            for name in prior
            if name in rewards
        }
        before, after = sum(current[name] for name in grown), sum(grown.values())
        scale = before / after if after > 0.0 else 0.0
        return {
            name: (1.0 - SHARE) * (grown[name] * scale if name in grown else current[name])
            + SHARE * share[name]
            for name in prior
        }


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Aggregator

    _: Aggregator = Hedge()
