"""One score from many: what a run on each board is expected to cost, in seconds.

For a class c and a board b::

    run        t = mean of the SECONDS scorers' answers
    failures   f = mean of the FAILURE scorers' answers x (mean of t over c's boards + RETRY_S)
    cost         = t + f + sum of credits x weight + sum of joules x weight

Means are weighted by the scorers' weights, over those that did not abstain. The weight of a scorer
of credits or joules is what one of them is worth to the policy, in seconds. A board without an
expected run time gets the mean of the class, which is then also its error.

Costs that differ by less than their standard errors (and by less than `TIE_SHARE`) count as ties::

    score = best / (best + max(0, cost - best - tolerance) + TIE_SHARE x best x (1 - preference))
    tolerance = max(sqrt(error^2 + error_of_best^2), TIE_SHARE x best)

with ``best`` the least cost of the class: 1 for the best board, a half for one that costs twice as
much. Bare preferences therefore decide between near-ties only. To subtract the error favours boards
of which little is known, until they are known (optimism in the face of uncertainty: Auer,
Cesa-Bianchi and Fischer, "Finite-time Analysis of the Multiarmed Bandit Problem", Machine Learning
2002). A class of which no scorer states a cost is scored by preferences alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, by_class
from edgeyard.scheduler.framework.protocols import (
    Combination,
    Costs,
    Proposal,
    ScoreUnit,
)
from edgeyard.scheduler.framework.relative import TIE_SHARE
from edgeyard.scheduler.prediction.estimates import RETRY_S, UNKNOWN_RUN_S

Floats = NDArray[np.float32]


class ExpectedCost:
    """Combines scores in their units to an expected cost in seconds (see the module)."""

    name = "expected_cost"

    def combine(self, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]) -> Combination:
        counted = [each for each in proposals if each.weight > 0.0]
        preference = _mean(counted, ScoreUnit.PREFERENCE)
        if len(counted) == 1 and preference is not None:
            return Combination(scores=preference[0])
        costs = _costs(counted, pairs)
        size = len(pairs)
        preferred = np.full(size, np.nan, np.float32) if preference is None else preference[0]
        if costs is None:
            return Combination(scores=np.clip(preferred, 0.0, 1.0))
        if np.isnan(costs.total_s).all():
            return Combination(scores=preferred, costs=costs)
        scores = _scores(costs, _or(preferred, 0.5), pairs)
        return Combination(scores=np.where(np.isnan(scores), preferred, scores), costs=costs)

    def learn(
        self,
        prior: Mapping[str, float],
        weights: Mapping[str, float],
        rewards: Mapping[str, float],
    ) -> Mapping[str, float]:
        """Learn nothing: keep the policy's weights."""
        return dict(prior)


def _costs(proposals: Sequence[Proposal], pairs: Pairs) -> Costs | None:
    seconds = _mean(proposals, ScoreUnit.SECONDS)
    failure = _mean(proposals, ScoreUnit.FAILURE)
    priced = {
        unit: [each for each in proposals if each.unit is unit]
        for unit in (ScoreUnit.CREDITS, ScoreUnit.JOULES)
    }
    if seconds is None and failure is None and not any(priced.values()):
        return None
    size, silent = len(pairs), np.ones(len(pairs), dtype=np.bool_)
    parts: dict[str, Floats] = {}
    total, variance = np.zeros(size, np.float32), np.zeros(size, np.float32)
    typical = np.full(size, np.nan, np.float32)
    if seconds is not None:
        run_s, error_s = seconds
        parts["run"] = run_s
        unknown = np.isnan(run_s)
        silent &= unknown
        typical = _class_mean(run_s, pairs)
        if unknown.any():
            otherwise_s = _or(typical, 0.0)
            total += np.where(unknown, otherwise_s, run_s)
            variance += np.where(unknown, otherwise_s**2, error_s**2)
        else:
            total += run_s
            variance += error_s**2
    if failure is not None:
        chance, error = failure
        unknown = np.isnan(chance)
        silent &= unknown
        known_s = np.where(np.isnan(typical), np.float32(UNKNOWN_RUN_S), typical)
        another_s = known_s + np.float32(RETRY_S)
        if unknown.any():
            chance = np.where(unknown, _or(_class_mean(chance, pairs), 0.0), chance)
            error = np.where(unknown, chance, error)
        parts["failures"] = chance * another_s
        total += parts["failures"]
        variance += (another_s * error) ** 2
    for unit, those in priced.items():
        if not those:
            continue
        amounts = np.zeros(size, np.float32)
        for each in those:
            value = np.float32(each.weight) * each.scores
            silent &= np.isnan(value)
            amounts += np.where(np.isnan(value), _or(_class_mean(value, pairs), 0.0), value)
            if each.errors is not None:
                variance += _or(np.float32(each.weight) * each.errors, 0.0) ** 2
        parts[unit.value] = amounts
        total += amounts
    if silent.any():
        answers = np.bincount(pairs.rows[~silent], minlength=len(pairs.starts) - 1)
        total[(answers == 0)[pairs.rows]] = np.nan
    return Costs(total_s=total, error_s=np.sqrt(variance), parts_s=parts)


def _scores(costs: Costs, preferred: Floats, pairs: Pairs) -> Floats:
    total, error = costs.total_s, costs.error_s
    best = by_class(pairs, total, np.fmin, np.nan)[pairs.rows]
    error_of_best = np.where(total <= best, error, np.float32(np.nan))
    error_of_best = by_class(pairs, error_of_best, np.fmin, np.nan)[pairs.rows]
    scale = np.maximum(best, np.float32(1e-9))
    tie_s = np.float32(TIE_SHARE) * scale
    tolerance = np.maximum(np.hypot(error, error_of_best), tie_s)
    over = np.maximum(total - best - tolerance, np.float32(0.0))
    scores: Floats = scale / (scale + over + tie_s * (np.float32(1.0) - preferred))
    return scores


def _mean(proposals: Sequence[Proposal], unit: ScoreUnit) -> tuple[Floats, Floats] | None:
    """Return the weighted mean of the answers in a unit, and its standard error.

    Errors of several scorers are taken to be the same error: they look at the same past.
    """
    those = [each for each in proposals if each.unit is unit]
    if not those:
        return None
    if len(those) == 1:
        only = those[0]
        errors = np.zeros_like(only.scores) if only.errors is None else only.errors
        return only.scores, errors
    size = len(those[0].scores)
    points, weights = np.zeros(size, np.float32), np.zeros(size, np.float32)
    errors = np.zeros(size, np.float32)
    for each in those:
        answered = ~np.isnan(each.scores)
        weight = np.float32(each.weight)
        np.add(points, weight * each.scores, out=points, where=answered)
        np.add(weights, weight, out=weights, where=answered)
        if each.errors is not None:
            np.add(errors, weight * each.errors, out=errors, where=answered)
    nothing = np.full(size, np.nan, dtype=np.float32)
    mean = np.divide(points, weights, out=nothing.copy(), where=weights > 0.0)
    return mean, np.divide(errors, weights, out=nothing, where=weights > 0.0)


def _or(values: Floats, otherwise: float) -> Floats:
    """Return the values, and another one for NaN; `numpy.nan_to_num` takes five times as long."""
    return np.where(np.isnan(values), np.float32(otherwise), values)


def _class_mean(values: Floats, pairs: Pairs) -> Floats:
    """Return each pair's mean over the known values of its class; NaN where none is known."""
    known = ~np.isnan(values)
    if not known.any():
        return np.full(len(values), np.nan, np.float32)
    classes = len(pairs.starts) - 1
    count = np.bincount(pairs.rows[known], minlength=classes)
    total = np.bincount(pairs.rows[known], weights=values[known], minlength=classes)
    means = np.full(classes, np.nan)
    np.divide(total, count, out=means, where=count > 0)
    return means.astype(np.float32)[pairs.rows]
