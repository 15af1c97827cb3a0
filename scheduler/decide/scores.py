"""The scorers' answers, made one score a pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Costs, Proposal, Scorer, ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import Plugins, WeightedScorer
from edgeyard.scheduler.framework.relative import relative_scores
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.prediction.estimates import run_times

NEUTRAL = 0.5
"""Score of a board that no scorer rates."""

MAX_RATIO = 300.0
"""Seconds that a scorer predicts may differ from the past by this factor; milliseconds and hours
differ by more, also where the prediction is wrong by a factor of three."""

_CHECKED_PAIRS = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """The scorers' answers.

    Attributes:
        pairs: The pairs that were scored.
        combined: Shape (pairs,), in [0, 1]; NaN nowhere.
        costs: What runs are expected to cost; None: no scorer that answered states any.
        proposals: Of the scorers that answered.
        rewards: By scorer, from the evaluator.
        fallback: No scorer of the policy answered.
        absent: By scorer of the policy that has no proposal, why.
    """

    pairs: Pairs
    combined: NDArray[np.float32]
    proposals: tuple[Proposal, ...]
    rewards: Mapping[str, float]
    fallback: bool
    absent: Mapping[str, str] = field(default_factory=dict)
    costs: Costs | None = None


def score(
    batch: Batch,
    pairs: Pairs,
    plugins: Plugins,
    runner: PluginRunner,
    rewarded: Callable[[Mapping[str, float]], None] | None = None,
) -> Scores:
    """Ask all scorers that are not suspended, then the evaluator, then the aggregator.

    The fallback answers where no scorer does, for single pairs too; if it fails as well, boards of
    which nobody says anything are equal.

    Args:
        batch: The decision's.
        pairs: To be scored.
        plugins: Who answers.
        runner: Calls them.
        rewarded: Called with the evaluator's rewards, before the aggregator is.
    """
    learned, suspended = batch.knowledge.weights, batch.knowledge.suspended
    absent: dict[str, str] = {}
    proposals: list[Proposal] = []
    for weighted in plugins.scorers:
        name = weighted.scorer.name
        if name in suspended:
            absent[name] = suspended[name]
            continue
        answer = runner.score(
            weighted,
            learned.get(name, weighted.weight),
            batch,
            pairs,
            partial(_problem, batch, pairs),
        )
        if answer is None:
            absent[name] = str(runner.faults[-1])
        else:
            proposals.append(answer)
    fallback = not proposals and plugins.fallback is not None
    last: Proposal | None = None
    if plugins.evaluator is not None:
        last = _fallback(proposals, plugins, batch, pairs, runner)
    rated = [each for each in proposals if not each.fallback]
    rewards = _rewards(rated or _alone(last), last, plugins, batch, pairs, runner)
    if rewarded is not None:
        rewarded(rewards)
    combination = runner.combine(plugins.aggregator, batch, pairs, proposals) if proposals else None
    combined = None if combination is None else combination.scores.astype(np.float32, copy=False)
    if last is None and (combined is None or bool(np.isnan(combined).any())):
        last = _fallback(proposals, plugins, batch, pairs, runner)
    combined = _filled(combined, last, pairs)
    if fallback and last is not None:
        proposals = [last]
    return Scores(
        pairs=pairs,
        combined=combined,
        proposals=tuple(proposals),
        rewards=rewards,
        fallback=fallback,
        absent=absent,
        costs=None if combination is None else combination.costs,
    )


def expected_costs(
    batch: Batch, pairs: Pairs, scores: Scores, plugins: Plugins, runner: PluginRunner
) -> Costs | None:
    """Return what runs cost on pairs beyond those that were scored, for plans.

    Only scorers that answered in this cycle are asked again, and none that plans itself.

    Args:
        batch: With the boards as they will be when they come free.
        pairs: To be priced.
        scores: Of the cycle.
        plugins: Who answered.
        runner: Calls them.
    """
    if scores.costs is None:
        return None
    weights = {each.scorer: each.weight for each in scores.proposals}
    proposals = [
        answer
        for each in plugins.scorers
        if each.scorer.unit is not ScoreUnit.PREFERENCE
        and each.scorer.kind is not ScorerKind.ILP
        and weights.get(each.scorer.name, 0.0) > 0.0
        and (answer := runner.score(each, weights[each.scorer.name], batch, pairs)) is not None
    ]
    if not proposals:
        return None
    combination = runner.combine(plugins.aggregator, batch, pairs, proposals)
    return None if combination is None else combination.costs


def _problem(batch: Batch, pairs: Pairs, scorer: Scorer, scores: NDArray[np.floating]) -> str:
    """Say so if seconds are of another order than what such runs took: a wrong unit."""
    if scorer.unit is not ScoreUnit.SECONDS or scorer.kind is ScorerKind.HEURISTIC:
        return ""
    answered = np.flatnonzero(~np.isnan(scores))
    some = answered[:: max(len(answered) // _CHECKED_PAIRS, 1)]
    if not batch.knowledge.runs or not len(some):
        return ""
    ratios = scores[some] / run_times(batch, pairs.rows[some], pairs.boards[some])
    ratios = ratios[~np.isnan(ratios)]
    ratio = float(np.median(ratios)) if len(ratios) else 1.0
    if 1.0 / MAX_RATIO <= ratio <= MAX_RATIO:
        return ""
    return f"{ratio:.3g} times the seconds that such runs took; are they in another unit?"


def _alone(proposal: Proposal | None) -> list[Proposal]:
    return [] if proposal is None else [proposal]


def _rewards(
    proposals: Sequence[Proposal],
    last: Proposal | None,
    plugins: Plugins,
    batch: Batch,
    pairs: Pairs,
    runner: PluginRunner,
) -> Mapping[str, float]:
    """Ask the evaluator; the fallback is a reference where no other heuristic is."""
    if plugins.evaluator is None or not proposals or not len(pairs):
        return {}
    rated = list(proposals)
    if last is not None and not any(each.kind.is_rule for each in rated):
        rated.append(last)
    names = {each.scorer for each in proposals}
    found = runner.evaluate(plugins.evaluator, batch, pairs, rated)
    return {name: reward for name, reward in found.items() if name in names}


def _fallback(
    proposals: Sequence[Proposal],
    plugins: Plugins,
    batch: Batch,
    pairs: Pairs,
    runner: PluginRunner,
) -> Proposal | None:
    scorer = plugins.fallback
    if scorer is None:
        return None
    for each in proposals:
        if each.scorer == scorer.name:
            return each
    return runner.score(WeightedScorer(scorer=scorer), 1.0, batch, pairs)


def _filled(
    combined: NDArray[np.float32] | None, last: Proposal | None, pairs: Pairs
) -> NDArray[np.float32]:
    """Return scores without any NaN."""
    if combined is None:
        combined = np.full(len(pairs), np.nan, dtype=np.float32)
    missing = np.isnan(combined)
    if not missing.any():
        return combined
    otherwise = (
        np.full(len(pairs), NEUTRAL, dtype=np.float32)
        if last is None
        else relative_scores(pairs, last)
    )
    return np.nan_to_num(np.where(missing, otherwise, combined), nan=NEUTRAL)
