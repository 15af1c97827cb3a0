"""As few benchmarks as possible on one host."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, rounded_scores
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit


class Spread:
    """Boards of hosts that run the fewest benchmarks first, however many boards they have.

    The k-th idle board of a host (from 0, in the batch's seeded order) scores
    ``1 / (1 + busy + k)``, with the host's number of busy boards: benchmarks of one cycle spread
    too. A host that fails, or whose network is slow, then takes few with it.
    On nodes: the share of the node that is left over.
    """

    name = "spread"
    objective = "spread"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """All classes get the same scores."""
        if batch.resources is not None:
            return rounded_scores(batch.resources.left(pairs))
        snapshot = batch.snapshot
        if not len(pairs):
            return np.zeros(0, dtype=np.float32)
        host = batch.board_hosts
        busy = np.bincount(host[snapshot.busy], minlength=int(host.max()) + 1)
        order, turn = batch.turns_on_hosts(~snapshot.busy)
        column = 1.0 / (1.0 + busy[host])
        column[order] = 1.0 / (1.0 + busy[host[order]] + turn)
        return column.astype(np.float32)[pairs.boards]
