"""Rewards of scorers, the weights that follow from them, and suspensions after faults.

A scorer is rewarded twice, each time by a number in [0, 1], and each time the policy's aggregator
changes the weights:

1. In each cycle that places something, by the evaluator, which compares the scorers' answers.
2. When a run has ended, by how it ended, whichever policy is active by then::

       outcome  = 0 where the board failed, else 1 / (1 + (run_s / expected_s)^4)
       reward_s = 1/2 + (score_s - 1/2) (2 outcome - 1)

   with the scorer's normalized score of the chosen board
   (`edgeyard.scheduler.framework.relative.normalized_scores`: a half where it found the boards
   alike), and the median over the boards that could have been chosen of the run time that was
   expected. The outcome is 1/2 where it took as long as elsewhere, 0.94 at half the time, 0.06
   at twice the time. So who liked a board that did well, or disliked one that did badly, gets more
   than a half; who said nothing of it is not rewarded. Ends that say nothing of the board (the
   model failed, it was cancelled) and runs of which nothing was expected are passed over.

A scorer that fails `SUSPEND_AFTER_FAULTS` times in a row is suspended: it is not asked for
`SUSPENSION_S`, twice as long each further time, `MAX_SUSPENSION_S` at most. After a suspension one
more fault suspends it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.framework.relative import normalized_scores
from edgeyard.scheduler.framework.runner import Fault, PluginRunner
from edgeyard.scheduler.model.attempt import Outcome
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.model.rating import PlacementRating, RewardRound, ScorerState
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.scheduler.prediction.estimates import run_times

SUSPEND_AFTER_FAULTS = 3
SUSPENSION_S = 300.0
MAX_SUSPENSION_S = 3600.0

SETTLE_S = 5.0
"""Between two checks for runs that ended: nothing waits for them."""

_AT_ONCE = 500  # ends in one transaction
_SHARPNESS = 4.0
_SAMPLE = 32
"""Boards whose expected run times make a placement's: a median moves little beyond."""

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
    """With what is remembered of the policy's scorers."""
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
        f"suspended until {state.suspended_until:%Y-%m-%dT%H:%M:%SZ} after "
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
    """Return the rewards by scorer; empty if the outcome says nothing of the board."""
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
    weights = PluginRunner(lock=plugins.lock).learn(plugins.aggregator, prior, current, rewards)
    _count(uow, key, rewards, weights, outcome=bool(benchmark_id))
    uow.scoring.add_round(
        RewardRound(policy=key, at=now, rewards=rewards, weights=weights, benchmark_id=benchmark_id)
    )


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
        normalized = {
            each.scorer: float(normalized_scores(scores.pairs, each)[pair])
            for each in scores.proposals
            if not each.fallback
        }
        ratings.append(
            PlacementRating(
                benchmark_id=benchmark_id,
                attempt=attempt,
                policy=key,
                normalized_scores={
                    name: score for name, score in normalized.items() if not math.isnan(score)
                },
                expected_s=expected[row],
            )
        )
    return ratings


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
