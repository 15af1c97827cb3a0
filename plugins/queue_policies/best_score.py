"""Benchmarks by the score of a model: who has the best board comes first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue, by_class, ranks_of
from edgeyard.scheduler.framework.protocols import Scorer, ScoreUnit

Floats = NDArray[np.float64]


class BestScore:
    """The best score first that a model gives to any board on which the benchmark could run.

    The same model may choose the boards, as a scorer of the policy: so a model trained in the
    synthetic test environment decides who starts and where. Boards count also while they are busy.
    Past the guard time (``guard_s``) the older comes first and none is overtaken.
    """

    def __init__(self, scorer: Scorer) -> None:
        """Take a scorer; of one whose scores are amounts the lowest comes first."""
        self._scorer = scorer
        self._sign = 1.0 if scorer.unit is ScoreUnit.PREFERENCE else -1.0

    @property
    def name(self) -> str:
        return self._scorer.name

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """At equal scores the more urgent, then the older."""
        return ranks_of(queue, queue.turns, -queue.derived(self._best), -queue.priorities)

    def reason(self, queue: Queue, job: int) -> str:
        if queue.guarded[job]:
            return f"waiting for {queue.ages_s[job]:.0f} s, so no younger one may overtake it"
        return (
            f"{self.name} gives its best board {abs(queue.derived(self._best)[job]):.4g}, the best "
            "number comes first"
        )

    def _best(self, queue: Queue) -> Floats:
        places = queue.places
        if places is None or not len(places.pairs):
            return np.zeros(len(queue.ids))
        scores = self._sign * self._scorer.score(places.batch, places.pairs).astype(np.float64)
        best = by_class(places.pairs, scores, np.fmax, 0.0)
        return np.nan_to_num(best)[places.batch.class_of_job]
