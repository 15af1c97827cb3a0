"""DECICE's judge: AI answers against ILP answers, the heuristic where either is missing.

::

    rating(s, r, c)  mean of r's normalized scores over the boards that s likes best for class c
    reward(s)        mean over classes, by their benchmarks, of the mean over s's references r

The references of an answer are, class by class, the ILP answers other than itself; for an AI answer
where there is none, the heuristic answers. So an AI scorer is measured on each ILP's own objective:
1 where its favourite is the ILP's, 0 where it is what the ILP likes least; an ILP on the others'
objectives; and the heuristic both stands in for a missing ILP and is measured where AI is missing.
A class counts where both answered and the reference distinguishes its boards. A scorer without such
a class gets no reward: nothing was learned of it.

After the evaluator of DECICE (steps 11 and 12 of its pipeline): regret on the objective of the
reference, rather than a distance between rankings, since a wrong order among bad boards costs
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Proposal, ScorerKind

_ALIKE = 0.5
"""Normalized score of every board of a class whose boards a scorer finds all alike."""


class ComparisonEvaluator:
    """See the module."""

    name = "compared"

    def evaluate(
        self, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]
    ) -> Mapping[str, float]:
        """See `Evaluator.evaluate`."""
        classes = batch.shape[0]
        jobs = np.bincount(batch.class_of_job, minlength=classes)
        rewards: dict[str, float] = {}
        for each in proposals:
            rating = np.full(classes, np.nan)
            favourites = _favourites(each, pairs)
            ai = each.kind is ScorerKind.AI
            for kind in (ScorerKind.ILP, ScorerKind.HEURISTIC)[: 1 + ai]:
                references = [r for r in proposals if r.kind is kind and r is not each]
                found = _mean([_rating(favourites, r, pairs, classes) for r in references], classes)
                rating = np.where(np.isnan(rating), found, rating)
            rated = ~np.isnan(rating) & (jobs > 0)
            if rated.any():
                reward = float(np.average(rating[rated], weights=jobs[rated]))
                rewards[each.scorer] = min(max(reward, 0.0), 1.0)
        return rewards


def _favourites(proposal: Proposal, pairs: Pairs) -> NDArray[np.intp]:
    """Return the pairs that a scorer likes best; all pairs of a class that it finds all alike."""
    best = proposal.normalized_scores == 1.0
    apart = _distinguished(proposal, pairs)
    if not apart[pairs.filled].all():
        best |= (proposal.normalized_scores == _ALIKE) & ~apart[pairs.rows]
    return np.flatnonzero(best)


def _distinguished(proposal: Proposal, pairs: Pairs) -> NDArray[np.bool_]:
    """Return the classes whose boards a scorer does not find all alike, shape (classes,)."""
    distinguished = np.zeros(len(pairs.starts) - 1, dtype=np.bool_)
    distinguished[pairs.rows[proposal.normalized_scores == 1.0]] = True
    return distinguished


def _rating(
    favourites: NDArray[np.intp], reference: Proposal, pairs: Pairs, classes: int
) -> NDArray[np.float64]:
    """Return the reference's mean normalized score of the favourites, shape (classes,).

    It is NaN where the reference distinguishes no boards.
    """
    distinguished = _distinguished(reference, pairs)
    scores = reference.normalized_scores[favourites]
    row = pairs.rows[favourites]
    counted = ~np.isnan(scores) & distinguished[row]
    count = np.bincount(row[counted], minlength=classes)
    total = np.bincount(row[counted], weights=scores[counted], minlength=classes)
    return _ratio(total.astype(np.float64), count.astype(np.float64))


def _mean(ratings: Sequence[NDArray[np.float64]], classes: int) -> NDArray[np.float64]:
    """Return the mean class by class, over the ratings that are not NaN."""
    total, count = np.zeros(classes), np.zeros(classes)
    for each in ratings:
        rated = ~np.isnan(each)
        total[rated] += each[rated]
        count += rated
    return _ratio(total, count)


def _ratio(total: NDArray[np.float64], count: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ratio; NaN where nothing was counted."""
    ratio = np.full(len(total), np.nan)
    np.divide(total, count, out=ratio, where=count > 0)
    return ratio


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Evaluator

    _: Evaluator = ComparisonEvaluator()
