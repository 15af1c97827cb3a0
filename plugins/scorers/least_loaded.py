"""The heuristic: spread work over hosts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, rounded_scores
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit


class LeastLoaded:
    """Boards of hosts with little to do first; boards that can't be used now score 0.

    The k-th idle board of a host (from 0, in the batch's seeded order) scores
    ``1 - (busy + k) / boards``, with the host's numbers of busy and of all boards: so several
    benchmarks of one cycle spread over hosts too, and equal boards take turns by the seed.
    On nodes: the share of the node that is left over.
    """

    name = "least_loaded"
    objective = "load"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """All classes get the same scores."""
        if batch.resources is not None:
            return rounded_scores(batch.resources.left(pairs))
        snapshot = batch.snapshot
        if not len(pairs):
            return np.zeros(0, dtype=np.float32)
        host_of_board = batch.board_hosts
        idle = snapshot.online & snapshot.healthy & ~snapshot.busy & ~snapshot.drained
        boards = np.bincount(host_of_board)
        busy = np.bincount(host_of_board[snapshot.busy], minlength=len(boards))
        order, turn = batch.turns_on_hosts(idle)
        host = host_of_board[order]
        column = np.zeros(len(snapshot.uids), dtype=np.float32)
        column[order] = 1.0 - (busy[host] + turn) / boards[host]
        return column[pairs.boards]
