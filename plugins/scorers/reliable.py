"""Boards on which runs seldom fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Answer, ScorerKind, ScoreUnit
from edgeyard.scheduler.prediction.estimates import past_pairs


class Reliable:
    """The expected rate of failures on each board, with its standard error.

    Abstains while there is no past.
    """

    name = "reliable"
    objective = "failures"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.FAILURE

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """See `Scorer.score`."""
        return self.answer(batch, pairs).scores

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        """See `DetailedScorer.answer`."""
        if not batch.knowledge.runs:
            return Answer(scores=np.full(len(pairs), np.nan, dtype=np.float32))
        rates, errors = past_pairs(batch, pairs).failure_laws()
        return Answer(scores=rates.astype(np.float32), errors=errors.astype(np.float32))


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Scorer

    _: Scorer = Reliable()
