"""Boards on which the benchmark is expected to end soonest."""

from __future__ import annotations

import numpy as np

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Answer, DetailedScorer, ScorerKind, ScoreUnit
from edgeyard.scheduler.prediction.estimates import past_pairs


class Fastest(DetailedScorer):
    """The expected run time (median) on each board, with the standard error of that expectation.

    The error is at most the time limit of the run, or the expectation itself where that is longer.
    Abstains where nothing is known of such runs.
    """

    name = "fastest"
    objective = "run time"
    kind = ScorerKind.HISTORY
    unit = ScoreUnit.SECONDS

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        if not batch.knowledge.runs:
            nothing = np.full(len(pairs), np.nan, dtype=np.float32)
            return Answer(scores=nothing, errors=nothing)
        distribution = past_pairs(batch, pairs).run_time_parts()
        seconds = np.exp(distribution.location)
        errors = seconds * np.sqrt(np.expm1(distribution.error))
        max_s = np.maximum(seconds, batch.time_limits_s[pairs.rows])
        return Answer(
            scores=seconds.astype(np.float32),
            errors=np.minimum(errors, max_s).astype(np.float32),
        )
