"""What is remembered of scorers: their weights, rewards and faults, by policy version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerState:
    """One scorer under one version of a policy.

    Attributes:
        policy: Name and version, ``default/1``.
        weight: As learned; None: nothing yet, the policy's own holds.
        rounds: Cycles in which the evaluator rewarded it.
        reward_sum: Of these rewards.
        outcomes: Runs whose end was held against what it had said.
        outcome_sum: Of the rewards for these.
        faults: Times that it raised, stalled or answered nonsense.
        faults_in_row: Since it last answered well.
        benches: Times that it was benched since it last answered well.
        last_fault: In words; "" when there was none.
        benched_until: It is not asked before; None: it is asked.
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
    benches: int = 0
    last_fault: str = ""
    last_fault_at: datetime | None = None
    benched_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRound:
    """What one round of rewards did to the weights.

    Attributes:
        benchmark_id: Whose end it was; "" for a cycle's rewards by the evaluator.
        rewards: By scorer.
        weights: By scorer, after it.
    """

    policy: str
    at: datetime
    rewards: Mapping[str, float]
    weights: Mapping[str, float]
    benchmark_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRating:
    """What the scorers said of a placement, kept until its end shows who was right.

    Attributes:
        worths: By scorer, of the board that was chosen: 0 its least, 1 its most liked of all that
            the benchmark could have had.
        expected_s: Median over those boards of the expected run time; None: nothing was known.
    """

    benchmark_id: str
    attempt: int
    policy: str
    worths: Mapping[str, float]
    expected_s: float | None
