"""Weights, rewards and faults of scorers, by policy version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerState:
    """One scorer under one version of a policy.

    Attributes:
        policy: Name and version, ``default/1``.
        weight: Learned weight; None: that of the policy.
        rounds: Number of cycles in which the evaluator rewarded it.
        reward_sum: Sum of these rewards.
        outcomes: Number of ended runs that were compared with its scores.
        outcome_sum: Sum of the rewards for these.
        faults: Number of calls that raised, timed out or returned an invalid answer.
        faults_in_row: Faults since its last valid answer.
        suspensions: Times that it was suspended since its last valid answer.
        last_fault: For people; "" if there was none.
        suspended_until: It is not called before; None: it is called.
    """

    policy: str
    scorer: str
    weight: float | None = None
    rounds: int = 0
    reward_sum: float = 0.0
    outcomes: int = 0
    outcome_sum: float = 0.0
    faults: int = 0
    faults_in_row: int = 0
    suspensions: int = 0
    last_fault: str = ""
    last_fault_at: datetime | None = None
    suspended_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRound:
    """One round of rewards, and the weights after it.

    Attributes:
        benchmark_id: The benchmark whose end was rewarded; "" for rewards of the evaluator.
        rewards: By scorer.
        weights: By scorer.
    """

    policy: str
    at: datetime
    rewards: Mapping[str, float]
    weights: Mapping[str, float]
    benchmark_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRating:
    """The scores of a placement, stored until its outcome is known.

    Attributes:
        normalized_scores: By scorer that answers in neither seconds nor failures, of the board that
            was chosen: above a half if it liked it more than others that the benchmark could have
            had.
        predicted_s: By scorer that predicts them, the seconds of the run on that board; plans of
            solvers include waiting and are left out.
        failure_chances: By scorer that predicts it, the probability that the run fails there.
        expected_s: Median over those boards of the predicted run time; None: none was predicted.
    """

    benchmark_id: str
    attempt: int
    policy: str
    normalized_scores: Mapping[str, float]
    expected_s: float | None
    predicted_s: Mapping[str, float] = field(default_factory=dict)
    failure_chances: Mapping[str, float] = field(default_factory=dict)
