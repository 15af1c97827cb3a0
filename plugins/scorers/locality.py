"""Boards that have the model already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import ScorerKind
from edgeyard.scheduler.model.history import History

KEPT = 3
"""Models that a host's caches are taken to hold still, a board."""


class Locality:
    """1 where the board has the model, 0 where it has others.

    It has what its host says it keeps, and the models of its last `KEPT` runs. Abstains for boards
    of which neither is known, and for benchmarks whose model is not here yet.
    """

    name = "locality"
    objective = "transfers"
    kind = ScorerKind.HEURISTIC

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """See `Scorer.score`."""
        of_runs = batch.knowledge.runs.derived(_LastModels).of
        cached = batch.knowledge.cached
        known = np.zeros(batch.shape[1], dtype=np.bool_)
        having: dict[str, list[int]] = {}
        for board, uid in enumerate(batch.snapshot.uids):
            models = {*cached.get(uid, ()), *of_runs.get(uid, ())}
            known[board] = uid in cached or uid in of_runs
            for model in models:
                having.setdefault(model, []).append(board)
        score = np.where(known[pairs.boards], np.float32(0.0), np.float32(np.nan))
        for row, kind in enumerate(batch.kinds):
            its = pairs.of(row)
            if kind.model_sha256 is None:
                score[its] = np.nan
            elif kind.model_sha256 in having:
                score[its][np.isin(pairs.boards[its], having[kind.model_sha256])] = 1.0
        return score


class _LastModels:
    """The models of each board's last runs."""

    def __init__(self, history: History) -> None:
        self.of: dict[str, set[str]] = {}
        boards, kinds = history.columns.boards, history.columns.kinds
        latest = np.lexsort((-np.arange(len(boards)), boards))
        first = np.searchsorted(boards[latest], boards[latest], side="left")
        for run in latest[np.arange(len(latest)) - first < KEPT].tolist():
            model = history.names.kinds.names[kinds[run]].model_sha256
            if model is not None:
                self.of.setdefault(history.names.boards.names[boards[run]], set()).add(model)


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Scorer

    _: Scorer = Locality()
