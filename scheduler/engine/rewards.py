"""Rewards of scorers, the weights that follow from them, and suspensions after faults.

A scorer is rewarded twice, each time by a number in [0, 1], and each time the policy's aggregator
changes the weights:

1. In each cycle that places something, by the evaluator. Its rewards rest on expectations, so they
   move the weights by `EVALUATOR_SHARE` of what outcomes do.
2. When a run has ended, by how it ended, whichever policy is active by then. A scorer that predicts
   is rewarded by its error: one of seconds, where the run led to a result, and one of failures,
   where the end says something of model or board (with p, and f = 1 for a failure, else 0; the
   Brier score: Brier, "Verification of forecasts expressed in terms of probability", Monthly
   Weather Review 1950)::

       reward_s = min(run_s, predicted_s) / max(run_s, predicted_s)
       reward_s = 1 - (p - f)^2

   The others are rewarded by whether they liked a board that did well::

       outcome  = 0 where the board failed, else 1 / (1 + (run_s / expected_s)^4)
       reward_s = 1/2 + (score_s - 1/2) (2 outcome - 1)

   with the scorer's normalized score of the chosen board
   (`edgeyard.scheduler.framework.relative.normalized_scores`: a half where it found the boards
   alike), and the median over the boards that could have been chosen of the run time that was
   expected. The outcome is 1/2 where it took as long as elsewhere, 0.94 at half the time, 0.06
   at twice the time. So who liked a board that did well, or disliked one that did badly, gets more
   than a half; who said nothing of it is not rewarded. Ends that say nothing of the board (the
   model failed, it was cancelled) and runs of which nothing was expected are passed over.
   Plans of solvers, whose seconds include waiting, are judged by the evaluator alone.

Weights follow from how a scorer did against the weighted mean of those in its own unit: a reward
for seconds and one for failures have no scale in common, and answers are averaged within a unit.

A scorer that fails `SUSPEND_AFTER_FAULTS` times in a row is suspended: it is not asked for
`SUSPENSION_S`, twice as long each further time, `MAX_SUSPENSION_S` at most. After a suspension one
more fault suspends it again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.decide.scores import Scores
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.protocols import Proposal, ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.framework.relative import normalized_scores
from edgeyard.scheduler.framework.runner import Fault, PluginRunner
from edgeyard.scheduler.model.attempt import Outcome
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.model.rating import PlacementRating, RewardRound, ScorerState
from edgeyard.scheduler.model.times import time_text
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.scheduler.prediction.estimates import INCONCLUSIVE_FAILURES, run_times

SUSPEND_AFTER_FAULTS = 3
SUSPENSION_S = 300.0
MAX_SUSPENSION_S = 3600.0

SETTLE_S = 5.0
"""Interval between checks for ended runs, which nothing waits for."""

EVALUATOR_SHARE = 0.25
"""Share of a difference between the evaluator's rewards that weights learn."""

_AT_ONCE = 500  # ends in one transaction
_SHARPNESS = 4.0
_SAMPLE = 32
"""Boards whose expected run times make a placement's: a median moves little beyond."""

_PREDICTIONS = (ScoreUnit.SECONDS, ScoreUnit.FAILURE)
"""Units of what an outcome shows to be right or wrong."""

_BOARD_FAILED = frozenset(
    {
        FailureCategory.BOARD_FAULT.value,
        FailureCategory.THERMAL.value,
        FailureCategory.TIMEOUT.value,
        FailureCategory.UPLOAD.value,
        FailureCategory.UNKNOWN.value,
    }
)


def policy_key(policy: Policy) -> str:
    """Return the key of what is learned under one version of a policy: ``default/1``."""
    return f"{policy.name}/{policy.version}"


def recalled(uow: UnitOfWork, knowledge: Knowledge, policy: Policy, now: datetime) -> Knowledge:
    """Return the knowledge with what is remembered of the policy's scorers."""
    return _with(knowledge, uow.scoring.states(policy_key(policy)), now)


def _with(knowledge: Knowledge, states: Mapping[str, ScorerState], now: datetime) -> Knowledge:
    return replace(
        knowledge,
        weights={name: each.weight for name, each in states.items() if each.weight is not None},
        suspended={
            name: suspension_reason(each)
            for name, each in states.items()
            if each.suspended_until is not None and now < each.suspended_until
        },
    )


def suspension_reason(state: ScorerState) -> str:
    """Return why a scorer is not asked, and until when; "" if it is asked."""
    if state.suspended_until is None:
        return ""
    return (
        f"suspended until {time_text(state.suspended_until)} after "
        f"{state.faults_in_row} faults in a row; the last: {state.last_fault}"
    )


class Scorekeeper:
    """Stores what cycles show of the scorers. One thread."""

    def __init__(self) -> None:
        self._settled_at: datetime | None = None
        self._failing: set[str] = set()

    def recall(
        self, uow: UnitOfWork, knowledge: Knowledge, policy: Policy, now: datetime
    ) -> Knowledge:
        """Return `recalled`, and remember which scorers failed last."""
        states = uow.scoring.states(policy_key(policy))
        self._failing = {name for name, each in states.items() if each.faults_in_row}
        return _with(knowledge, states, now)

    def has_news(self, result: CycleResult) -> bool:
        """Return whether a cycle that placed nothing is stored for the faults of its scorers."""
        return bool(_faults(result)) or bool(self._failing & _answered(result))

    def keep(
        self,
        uow: UnitOfWork,
        policy: Policy,
        plugins: Plugins,
        result: CycleResult,
        placed: Mapping[str, int],
        now: datetime,
    ) -> None:
        """Keep a cycle's faults, and where it placed something its rewards and ratings.

        Args:
            uow: Open for writing.
            policy: The cycle's.
            plugins: The cycle's.
            result: The cycle.
            placed: Number of the attempt, by benchmark.
            now: Of the faults.
        """
        key = policy_key(policy)
        faults = _faults(result)
        if faults or self._failing:
            states = uow.scoring.states(key)
            for name in sorted({*faults, *(self._failing & _answered(result))}):
                state = states.get(name, ScorerState(policy=key, scorer=name))
                fault = faults.get(name)
                changed = _recovered(state) if fault is None else _faulted(state, fault, now)
                if changed != state:
                    uow.scoring.save(changed)
        if not placed:
            return
        if result.rewards:
            _learn(uow, plugins, key, result.rewards, now)
        uow.scoring.add_ratings(_ratings(key, result, placed))

    def settle(self, uow: UnitOfWork, policy: Policy, plugins: Plugins, now: datetime) -> None:
        """Hold what scorers said of placements against how they ended."""
        self._settled_at = now
        ended = uow.scoring.ended_ratings(limit=_AT_ONCE)
        for rating, outcome in ended:
            rewards = outcome_rewards(rating, outcome)
            if not rewards:
                continue
            if rating.policy == policy_key(policy):
                _learn(uow, plugins, rating.policy, rewards, now, rating.benchmark_id)
            else:
                _count(uow, rating.policy, rewards, {}, outcome=True)
        uow.scoring.remove_ratings([rating for rating, _ in ended])

    def is_due(self, now: datetime) -> bool:
        """Return whether it is time to look for runs that ended."""
        return self._settled_at is None or now - self._settled_at >= timedelta(seconds=SETTLE_S)

    def settles(self, uow: UnitOfWork, now: datetime) -> bool:
        """Return whether something has ended that `settle` would take."""
        self._settled_at = now
        return bool(uow.scoring.ended_ratings(limit=1))


def outcome_rewards(rating: PlacementRating, outcome: Outcome) -> Mapping[str, float]:
    """Return the rewards by scorer; those of whose answer the outcome says nothing are left out."""
    return {
        **_liking(rating, outcome),
        **_accuracy_of_seconds(rating, outcome),
        **_brier_scores(rating, outcome),
    }


def _accuracy_of_seconds(rating: PlacementRating, outcome: Outcome) -> Mapping[str, float]:
    run_s = outcome.run_s
    if outcome.failure_category is not None or not run_s:
        return {}
    return {
        name: min(run_s, predicted_s) / max(run_s, predicted_s)
        for name, predicted_s in rating.predicted_s.items()
    }


def _brier_scores(rating: PlacementRating, outcome: Outcome) -> Mapping[str, float]:
    if outcome.failure_category in INCONCLUSIVE_FAILURES:
        return {}
    failed = float(outcome.failure_category is not None)
    return {
        name: 1.0 - (min(max(chance, 0.0), 1.0) - failed) ** 2
        for name, chance in rating.failure_chances.items()
    }


def _liking(rating: PlacementRating, outcome: Outcome) -> Mapping[str, float]:
    if outcome.failure_category in _BOARD_FAILED:
        well = 0.0
    elif outcome.failure_category is not None or not outcome.run_s or not rating.expected_s:
        return {}
    else:
        ratio = min(outcome.run_s / rating.expected_s, 1e6)
        well = 1.0 / (1.0 + ratio**_SHARPNESS)
    return {
        name: 0.5 + (min(max(score, 0.0), 1.0) - 0.5) * (2.0 * well - 1.0)
        for name, score in rating.normalized_scores.items()
    }


def _learn(
    uow: UnitOfWork,
    plugins: Plugins,
    key: str,
    rewards: Mapping[str, float],
    now: datetime,
    benchmark_id: str = "",
) -> None:
    prior = {weighted.scorer.name: weighted.weight for weighted in plugins.scorers}
    known = uow.scoring.states(key)
    current = {name: each.weight for name, each in known.items() if each.weight is not None}
    units = {weighted.scorer.name: weighted.scorer.unit for weighted in plugins.scorers}
    present = {name: reward for name, reward in rewards.items() if name in units}
    compared = _within_units(present, {**prior, **current}, units)
    if not benchmark_id:
        compared = {name: 0.5 + EVALUATOR_SHARE * (r - 0.5) for name, r in compared.items()}
    weights = PluginRunner(lock=plugins.lock).learn(plugins.aggregator, prior, current, compared)
    _count(uow, key, rewards, weights, outcome=bool(benchmark_id))
    uow.scoring.add_round(
        RewardRound(policy=key, at=now, rewards=rewards, weights=weights, benchmark_id=benchmark_id)
    )


def _within_units(
    rewards: Mapping[str, float], weights: Mapping[str, float], units: Mapping[str, ScoreUnit]
) -> Mapping[str, float]:
    """Return a half, more or less what a scorer gained over the mean of those in its unit.

    The mean is weighted, so that the weights of a unit keep their sum, whatever its rewards are.
    """
    total: defaultdict[ScoreUnit, float] = defaultdict(float)
    mass: defaultdict[ScoreUnit, float] = defaultdict(float)
    for name, reward in rewards.items():
        total[units[name]] += weights[name] * reward
        mass[units[name]] += weights[name]
    return {
        name: min(max(0.5 + reward - total[units[name]] / mass[units[name]], 0.0), 1.0)
        if mass[units[name]]
        else 0.5
        for name, reward in rewards.items()
    }


def _count(
    uow: UnitOfWork,
    key: str,
    rewards: Mapping[str, float],
    weights: Mapping[str, float],
    *,
    outcome: bool,
) -> None:
    """Add rewards up, and keep weights."""
    known = uow.scoring.states(key)
    for name in sorted({*rewards, *weights}):
        state = known.get(name, ScorerState(policy=key, scorer=name))
        reward = rewards.get(name)
        if reward is not None and outcome:
            state = replace(
                state, outcomes=state.outcomes + 1, outcome_sum=state.outcome_sum + reward
            )
        elif reward is not None:
            state = replace(state, rounds=state.rounds + 1, reward_sum=state.reward_sum + reward)
        uow.scoring.save(replace(state, weight=weights.get(name, state.weight)))


def _ratings(key: str, result: CycleResult, placed: Mapping[str, int]) -> Sequence[PlacementRating]:
    decided = result.decided
    scores, batch = decided.scores, decided.batch
    expected: dict[int, float | None] = {}
    ratings = []
    for benchmark_id, attempt in placed.items():
        job = decided.row_of_id[benchmark_id]
        row = int(batch.class_of_job[job])
        pair = scores.pairs.at(row, int(decided.assignment.board_of_job[job]))
        if pair is None:
            continue
        if row not in expected:
            expected[row] = _expected_s(result, row)
        by_unit = {unit: _answers(scores, unit, pair) for unit in ScoreUnit}
        ratings.append(
            PlacementRating(
                benchmark_id=benchmark_id,
                attempt=attempt,
                policy=key,
                normalized_scores={
                    name: score
                    for unit in ScoreUnit
                    if unit not in _PREDICTIONS
                    for name, score in by_unit[unit].items()
                },
                expected_s=expected[row],
                predicted_s=by_unit[ScoreUnit.SECONDS],
                failure_chances=by_unit[ScoreUnit.FAILURE],
            )
        )
    return ratings


def _answers(scores: Scores, unit: ScoreUnit, pair: int) -> Mapping[str, float]:
    """Return the answers in a unit about a pair, of those that stated one; see the rating."""
    found = {}
    for each in scores.proposals:
        if each.unit is unit and not each.fallback and not _is_plan(each):
            answer = (
                each.scores if unit in _PREDICTIONS else normalized_scores(scores.pairs, each)
            )[pair]
            if not math.isnan(answer):
                found[each.scorer] = float(answer)
    return found


def _is_plan(proposal: Proposal) -> bool:
    """Return whether seconds include the wait for other runs of a plan."""
    return proposal.unit is ScoreUnit.SECONDS and proposal.kind is ScorerKind.ILP


def _expected_s(result: CycleResult, row: int) -> float | None:
    boards = result.decided.scores.pairs.boards[result.decided.scores.pairs.of(row)]
    boards = boards[:: max(len(boards) // _SAMPLE, 1)]
    found = run_times(result.decided.batch, np.full_like(boards, row), boards)
    found = found[~np.isnan(found)]
    return float(np.median(found)) if len(found) else None


def _faults(result: CycleResult) -> Mapping[str, Fault]:
    """Return the first of each scorer of the policy."""
    names = {weighted.scorer.name for weighted in result.decided.plugins.scorers}
    found: dict[str, Fault] = {}
    for fault in (*result.faults, *result.overruns):
        if fault.plugin in names:
            found.setdefault(fault.plugin, fault)
    return found


def _answered(result: CycleResult) -> set[str]:
    """Return who answered in time; nobody in a cycle without a free board, which takes no time."""
    if not len(result.decided.scores.pairs):
        return set()
    faults = _faults(result)
    return {each.scorer for each in result.decided.scores.proposals if each.scorer not in faults}


def _faulted(state: ScorerState, fault: Fault, now: datetime) -> ScorerState:
    in_row = state.faults_in_row + 1
    state = replace(
        state,
        faults=state.faults + 1,
        faults_in_row=in_row,
        last_fault=str(fault)[:500],
        last_fault_at=now,
    )
    if in_row < SUSPEND_AFTER_FAULTS:
        return state
    suspension_s = min(SUSPENSION_S * 2.0 ** min(state.suspensions, 10), MAX_SUSPENSION_S)
    return replace(
        state,
        suspensions=state.suspensions + 1,
        suspended_until=now + timedelta(seconds=suspension_s),
    )


def _recovered(state: ScorerState) -> ScorerState:
    return replace(state, faults_in_row=0, suspensions=0, suspended_until=None)
