"""Boards on which the benchmark is expected to cost few credits."""

from __future__ import annotations

import numpy as np

from edgeyard.plugins.scorers.fastest import Fastest
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Answer, DetailedScorer, ScorerKind, ScoreUnit


class Cheapest(DetailedScorer):
    """The expected run time times what a second costs now: the family's rate and the tariff.

    Its weight is what a credit is worth to the policy, in seconds. Abstains where nothing is known
    of such runs.
    """

    name = "cheapest"
    objective = "credits"
    kind = ScorerKind.HISTORY
    unit = ScoreUnit.CREDITS

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        seconds = Fastest().answer(batch, pairs)
        of_class = [batch.knowledge.rate(family, batch.now) for family in batch.families]
        rates = np.array(of_class, dtype=np.float32)[pairs.rows]
        errors = seconds.errors
        return Answer(
            scores=seconds.scores * rates, errors=None if errors is None else errors * rates
        )
