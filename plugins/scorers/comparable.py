"""Boards on which numbers turn out to be comparable."""

from __future__ import annotations

import numpy as np

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Answer, DetailedScorer, ScorerKind, ScoreUnit
from edgeyard.scheduler.prediction.estimates import past_pairs


class Comparable(DetailedScorer):
    """The chance that the number of a result is comparable, by past verdicts; 0-1.

    Abstains while no number was judged.
    """

    name = "comparable"
    objective = "comparable numbers"
    kind = ScorerKind.HISTORY
    unit = ScoreUnit.PREFERENCE

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        rates, _ = past_pairs(batch, pairs).measurement_chances()
        return Answer(scores=(1.0 - rates).astype(np.float32))
