"""Scorers' answers on one scale, to compare scorers with each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Pairs, by_class
from edgeyard.scheduler.framework.protocols import Proposal, ScoreUnit

TIE_SHARE = 0.01
"""Boards whose costs differ by less than this share are equally good."""


def relative_scores(pairs: Pairs, proposal: Proposal) -> NDArray[np.float32]:
    """Return a scorer's answer as shares of the best: 0 to 1, more is better.

    An amount (seconds, credits, joules) becomes the least amount of its class over this one: a half
    where a run takes twice as long as on the best board. A failure's probability p becomes 1 - p,
    and a preference is one already. So a small difference stays small.

    Returns:
        Shape (pairs,); NaN where the scorer abstained.
    """
    if proposal.unit is ScoreUnit.PREFERENCE:
        return proposal.scores
    if proposal.unit is ScoreUnit.FAILURE:
        return np.float32(1.0) - proposal.scores
    best = by_class(pairs, proposal.scores, np.fmin, np.nan)[pairs.rows]
    shares = np.ones_like(best)
    shares[np.isnan(proposal.scores)] = np.nan
    np.divide(best, proposal.scores, out=shares, where=proposal.scores > 0.0)
    return shares


def normalized_scores(pairs: Pairs, proposal: Proposal) -> NDArray[np.float32]:
    """Return how far a scorer likes a board more than the others of its class, 0 to 1.

    ``1/2 + relative score - middle of the least and the largest one of the class``: a half where it
    finds the boards alike, and near a half where it finds them nearly alike.

    Returns:
        Shape (pairs,); NaN where the scorer abstained.
    """
    relative = relative_scores(pairs, proposal)
    lowest = by_class(pairs, relative, np.fmin, np.nan)
    largest = by_class(pairs, relative, np.fmax, np.nan)
    middle = ((lowest + largest) / np.float32(2.0))[pairs.rows]
    return np.clip(relative - middle + np.float32(0.5), 0.0, 1.0)
