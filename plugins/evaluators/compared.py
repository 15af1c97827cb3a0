"""DECICE's judge: models against integer programmes, rules where either is missing.

::

    rating(s, r, c)  mean over the boards that s likes best for class c of r's relative score of it
                     over r's best one (`edgeyard.scheduler.framework.relative`)
    reward(s)        mean over classes, by their benchmarks, of the mean over s's references r

The references of an answer are, class by class, the programmes' answers other than itself; for a
model's answer where there is none, those of rules and past runs. So a model is measured on each
programme's own objective: 1 where its favourite is the programme's, a half where it takes twice as
long; a programme on the others' objectives; and a rule both stands in for a missing programme and
is measured where a model is missing.
A class counts where both answered and the reference distinguishes its boards. A scorer without such
a class gets no reward: nothing was learned of it.

After the evaluator of DECICE (steps 11 and 12 of its pipeline): regret on the objective of the
reference, rather than a distance between rankings, since a wrong order among bad boards costs
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, by_class
from edgeyard.scheduler.framework.protocols import Proposal, ScorerKind
from edgeyard.scheduler.framework.relative import relative_scores


class ComparisonEvaluator:
    """Rewards scorers by comparing their proposals (see the module)."""

    name = "compared"

    def evaluate(
        self, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]
    ) -> Mapping[str, float]:
        classes = batch.shape[0]
        jobs = np.bincount(batch.class_of_job, minlength=classes)
        views = {id(each): _View(each, pairs) for each in proposals}
        programmes = [each for each in proposals if each.kind is ScorerKind.ILP]
        rules = [each for each in proposals if each.kind.is_rule]
        rewards: dict[str, float] = {}
        for each in proposals:
            rating = np.full(classes, np.nan)
            favourites = views[id(each)].favourites
            kinds = (programmes, rules) if each.kind is ScorerKind.MODEL else (programmes,)
            for kind in kinds:
                references = [r for r in kind if r is not each]
                ratings = [_rating(favourites, views[id(r)], pairs, classes) for r in references]
                found = _mean(ratings, classes)
                rating = np.where(np.isnan(rating), found, rating)
            rated = ~np.isnan(rating) & (jobs > 0)
            if rated.any():
                reward = float(np.average(rating[rated], weights=jobs[rated]))
                rewards[each.scorer] = min(max(reward, 0.0), 1.0)
        return rewards


class _View:
    """What an evaluator needs of an answer.

    Attributes:
        scores: Shape (pairs,): relative scores over the best one of their class.
        favourites: The pairs that the scorer likes best; all pairs of a class that it finds alike.
        distinguished: Shape (classes,): the boards of these classes are not all alike to it.
    """

    def __init__(self, proposal: Proposal, pairs: Pairs) -> None:
        relative = relative_scores(pairs, proposal)
        best = by_class(pairs, relative, np.fmax, np.nan)
        worst = by_class(pairs, relative, np.fmin, np.nan)
        self.distinguished = worst < best
        self.favourites = np.flatnonzero(relative == best[pairs.rows])
        self.scores = relative / np.where(best > 0.0, best, 1.0)[pairs.rows]


def _rating(
    favourites: NDArray[np.intp], reference: _View, pairs: Pairs, classes: int
) -> NDArray[np.float64]:
    """Return the reference's mean score of the favourites, shape (classes,).

    It is NaN where the reference distinguishes no boards.
    """
    scores = reference.scores[favourites]
    row = pairs.rows[favourites]
    counted = ~np.isnan(scores) & reference.distinguished[row]
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
