"""Boards on which the benchmark is expected to end soonest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, by_class
from edgeyard.scheduler.framework.protocols import ScorerKind
from edgeyard.scheduler.prediction.estimates import run_times


class Fastest:
    """The shortest expected run time first.

    ``t_best / t``: expected run time (median) on the best board of the class over that on this one.
    Abstains where nothing is known of such runs.
    """

    name = "fastest"
    objective = "run time"
    kind = ScorerKind.HEURISTIC

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """See `Scorer.score`."""
        expected_s = run_times(batch, pairs.rows, pairs.boards)
        best_s = by_class(pairs, expected_s, np.fmin, np.nan)
        return (best_s[pairs.rows] / expected_s).astype(np.float32)


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Scorer

    _: Scorer = Fastest()
