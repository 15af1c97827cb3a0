"""The one-slot case: every board takes at most one benchmark now, all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import ConfigError
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit
from edgeyard.scheduler.solvers.assignment import assign_now, prepare
from edgeyard.scheduler.solvers.window import plan_scores, window_of

MAX_JOBS = 2000
MAX_CELLS = 4_000_000


class AssignmentScorer:
    """As many benchmarks as can start now, in the shortest total run time.

    An optimum, from SciPy's ``linear_sum_assignment``: 1,000 benchmarks on 30 boards in some 4 ms.
    Scores as those of `edgeyard.plugins.scorers.ilp`.
    """

    name = "assignment"
    objective = "run time"
    kind = ScorerKind.ILP
    unit = ScoreUnit.PREFERENCE

    def __init__(self, window: int = 500) -> None:
        """Options of a policy.

        Args:
            window: Benchmarks that are assigned together, from the front of the queue.

        Raises:
            ConfigError: It is out of range.
        """
        if not 1 <= window <= MAX_JOBS:
            raise ConfigError([f"window: {window!r} is not from 1 to {MAX_JOBS}"])
        prepare()
        self._window = window

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """See `Scorer.score`."""
        window = window_of(batch, pairs, self.objective, self._window, MAX_CELLS)
        return plan_scores(window, assign_now(window.document), pairs)


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Scorer

    _: Scorer = AssignmentScorer()
