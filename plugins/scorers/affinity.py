"""Boards as their users wish."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, attribute_column
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit


class AffinityScorer:
    """The weights of the affinities that a board meets, as a share of all of them.

    As Nomad's ``NodeAffinityIterator`` (``scheduler/feasible``): the sum of the weights met over
    the sum of their sizes, between -1 and 1; here moved to 0 to 1. Abstains where none is stated.
    """

    name = "affinity"
    objective = "affinity"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        scores = np.full(len(pairs), np.nan, dtype=np.float32)
        stated = {each for own in set(batch.affinities) for each in own}
        columns = {name: attribute_column(batch, name) for name in {a.attribute for a in stated}}
        boards_met = {each: columns[each.attribute].meets(each) for each in stated}
        for row, affinities in enumerate(batch.affinities):
            if not affinities:
                continue
            its = pairs.of(row)
            boards = pairs.boards[its]
            met = np.zeros(len(boards))
            for each in affinities:
                met += each.weight * boards_met[each][boards]
            total = sum(abs(each.weight) for each in affinities)
            scores[its] = (met / total + 1.0) / 2.0
        return scores
