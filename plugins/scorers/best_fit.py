"""The smallest board that will do: large ones stay free for what needs them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, rounded_scores
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit


class BestFit:
    """The least RAM and storage left over first.

    The mean over RAM and storage of ``1 - (has - asked) / max``, with the maximum of all boards.
    On nodes: 1 less the share of the node that is left over.
    """

    name = "best_fit"
    objective = "packing"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        if batch.resources is not None:
            return rounded_scores(1.0 - batch.resources.left(pairs))
        snapshot = batch.snapshot
        score = np.zeros(len(pairs), dtype=np.float32)
        for has, required in (
            (snapshot.ram_bytes, batch.ram_bytes),
            (snapshot.storage_bytes, batch.storage_bytes),
        ):
            max_bytes = max(int(has.max(initial=0)), 1)
            column = (has / max_bytes).astype(np.float32)
            row = (required / max_bytes).astype(np.float32)
            score += 0.5 * (1.0 - (column[pairs.boards] - row[pairs.rows]))
        return np.clip(score, 0.0, 1.0)
