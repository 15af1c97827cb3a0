"""Weights that follow the rewards: multiplicative weights with a share of what the policy stated.

After a round in which the scorers A were rewarded with r in [0, 1]::

    v_i = p_i exp(RATE r_i) sum_A(p) / sum_A(p exp(RATE r))           for i in A
    p_i = (1 - SHARE) v_i + SHARE sum_A(p) prior_i / sum_A(prior)     for i in A

and p_i stays as it was for the others, which slept. Hedge (Freund and Schapire, "A
Decision-Theoretic Generalization of On-Line Learning", JCSS 1997) over those that are awake
(Freund, Schapire, Singer and Warmuth, "Using and Combining Predictors That Specialize", STOC 1997),
with fixed share (Herbster and Warmuth, "Tracking the Best Expert", Machine Learning 1998) back to
the policy's own weights among those that are awake: a scorer that got better comes back, and one
of weight 0 stays out.

Against any scorer i, the reward of the weighted mean over the T rounds in which i was awake lags by
at most::

    (ln(1 / prior_i) + T ln(1 / (1 - SHARE))) / RATE + RATE T / 8

since p_i, which is at most 1, grows in each of these rounds by at least the factor
``(1 - SHARE) exp(RATE r_i) / mean_A(exp(RATE r))``, rests in all others, and Hoeffding's lemma
bounds the mean (Cesa-Bianchi and Lugosi, Prediction, Learning, and Games, 2006, theorem 2.2). Who
sleeps when, and what the rewards are, may be chosen by an adversary who sees the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from edgeyard.plugins.aggregators.expected_cost import ExpectedCost

RATE = 0.1
"""A scorer that is rewarded by 0.2 more than another outweighs it by e after 50 rounds."""

SHARE = 0.001


class Hedge(ExpectedCost):
    """Combines scores like `ExpectedCost`, with weights that Hedge learns from rewards."""

    name = "hedge"

    def learn(
        self,
        prior: Mapping[str, float],
        weights: Mapping[str, float],
        rewards: Mapping[str, float],
    ) -> Mapping[str, float]:
        stated = sum(prior.values())
        if stated <= 0.0:
            return dict(prior)
        share = {name: weight / stated for name, weight in prior.items()}
        current = {name: max(weights.get(name, share[name]), 0.0) for name in prior}
        total = sum(current.values())
        current = {name: weight / total for name, weight in current.items()} if total else share
        awake = [name for name in prior if name in rewards]
        grown = {name: current[name] * math.exp(RATE * rewards[name]) for name in awake}
        mass, after = sum(current[name] for name in awake), sum(grown.values())
        owed = sum(share[name] for name in awake)
        if after <= 0.0 or owed <= 0.0:
            return current
        learned = {
            name: mass * ((1.0 - SHARE) * grown[name] / after + SHARE * share[name] / owed)
            for name in awake
        }
        return {**current, **learned}
