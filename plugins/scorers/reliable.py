"""Boards on which runs seldom fail."""

from __future__ import annotations

import numpy as np

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Answer, DetailedScorer, ScorerKind, ScoreUnit
from edgeyard.scheduler.prediction.estimates import past_pairs


class Reliable(DetailedScorer):
    """The expected rate of failures on each board, with its standard error.

    Abstains while there is no past.
    """

    name = "reliable"
    objective = "failures"
    kind = ScorerKind.HISTORY
    unit = ScoreUnit.FAILURE

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        if not batch.knowledge.runs:
            return Answer(scores=np.full(len(pairs), np.nan, dtype=np.float32))
        rates, errors = past_pairs(batch, pairs).failure_chances()
        return Answer(scores=rates.astype(np.float32), errors=errors.astype(np.float32))
