"""Boards on which runs seldom fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import ScorerKind
from edgeyard.scheduler.prediction.estimates import failure_rates


class Reliable:
    """The least expected rate of failures first.

    ``1 - rate``. Abstains while there is no past.
    """

    name = "reliable"
    objective = "failures"
    kind = ScorerKind.HEURISTIC

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """See `Scorer.score`."""
        if not batch.knowledge.runs:
            return np.full(len(pairs), np.nan, dtype=np.float32)
        return (1.0 - failure_rates(batch, pairs.rows, pairs.boards)).astype(np.float32)


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Scorer

    _: Scorer = Reliable()
