"""Boards on which the benchmark is expected to take little energy."""

from __future__ import annotations

import numpy as np

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Answer, DetailedScorer, ScorerKind, ScoreUnit
from edgeyard.scheduler.prediction.estimates import past_pairs


class Frugal(DetailedScorer):
    """The expected energy of the run on each board, from the past, with its standard error.

    Its weight is what a joule is worth to the policy, in seconds: ``energy_weight_s_per_j``.
    Abstains where no run stated its energy.
    """

    name = "frugal"
    objective = "energy"
    kind = ScorerKind.HISTORY
    unit = ScoreUnit.JOULES

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        found = past_pairs(batch, pairs).energy_parts()
        joules = np.exp(found.location)
        errors = joules * np.sqrt(np.expm1(found.error))
        return Answer(scores=joules.astype(np.float32), errors=errors.astype(np.float32))
