"""Boards on which the model ran lately."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit
from edgeyard.scheduler.model.history import History

KEPT = 3
"""Runs after which what a board's caches hold of a model is taken to be gone."""


class Locality:
    """1 where the model is among those of the board's last `KEPT` runs, 0 where it is not.

    Each run fetches its files anew and they go with it, so what is near is not the file: it is what
    engine, driver and system of the board still hold of the model (compiled kernels, tuned plans).
    Abstains for boards that ran nothing, and for benchmarks whose model is not here yet.
    """

    name = "locality"
    objective = "transfers"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        warm = batch.knowledge.runs.derived(_RecentModels).of
        known = np.array([uid in warm for uid in batch.snapshot.uids], dtype=np.bool_)
        having: dict[str, list[int]] = {}
        for board in np.flatnonzero(known).tolist():
            for model in warm[batch.snapshot.uids[board]]:
                having.setdefault(model, []).append(board)
        score = np.where(known[pairs.boards], np.float32(0.0), np.float32(np.nan))
        for row, kind in enumerate(batch.kinds):
            its = pairs.of(row)
            if kind.model_sha256 is None:
                score[its] = np.nan
            elif kind.model_sha256 in having:
                score[its][np.isin(pairs.boards[its], having[kind.model_sha256])] = 1.0
        return score


class _RecentModels:
    """The models of each board's last runs that began: others never reached it."""

    def __init__(self, history: History) -> None:
        self.of: dict[str, set[str]] = {}
        began = ~np.isnan(history.columns.run_s)
        boards, kinds = history.columns.boards[began], history.columns.kinds[began]
        latest = np.lexsort((-np.arange(len(boards)), boards))
        first = np.searchsorted(boards[latest], boards[latest], side="left")
        for run in latest[np.arange(len(latest)) - first < KEPT].tolist():
            model = history.names.kinds.names[kinds[run]].model_sha256
            if model is not None:
                self.of.setdefault(history.names.boards.names[boards[run]], set()).add(model)
