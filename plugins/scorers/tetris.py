"""Packing and shortness, weighed against each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, by_class, rounded_scores
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit
from edgeyard.scheduler.prediction.estimates import run_times


class Tetris:
    """Boards that are filled well and that are done soon.

    ``a - (mean a / mean p) p`` (Grandl et al., "Multi-Resource Packing for Cluster Schedulers",
    SIGCOMM 2014, sections 3.2 and 3.3), with the alignment a: the sum over RAM and storage of
    what is asked over what the board has; and p: the expected run time (median), the mean of the
    class where a board's is unknown. Then spread over 0 to 1, class by class. On nodes: the
    alignment with what is free of each resource, because a job takes the same time on all of them.
    """

    name = "tetris"
    objective = "packing and run time"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        if batch.resources is not None:
            return rounded_scores(batch.resources.alignment(pairs))
        snapshot = batch.snapshot
        packed = np.zeros(len(pairs), dtype=np.float64)
        for has, required in (
            (snapshot.ram_bytes, batch.ram_bytes),
            (snapshot.storage_bytes, batch.storage_bytes),
        ):
            packed += required[pairs.rows] / np.maximum(has, 1)[pairs.boards]
        expected_s = run_times(batch, pairs.rows, pairs.boards)
        known = ~np.isnan(expected_s)
        if known.any():
            mean_s = expected_s[known].mean()
            expected_s = np.where(known, expected_s, mean_s)
            packed -= packed.mean() / mean_s * expected_s
        lowest = by_class(pairs, packed, np.fmin, 0.0)
        span = by_class(pairs, packed, np.fmax, 0.0) - lowest
        span[span <= 0.0] = 1.0
        return ((packed - lowest[pairs.rows]) / span[pairs.rows]).astype(np.float32)
