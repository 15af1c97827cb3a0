"""Scorers of the policy that decides: weights, rewards, faults."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import Query

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Submitter
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.scheduler.engine.rewards import policy_key, suspension_reason
from edgeyard.scheduler.framework.registry import WeightedScorer
from edgeyard.scheduler.model.rating import RewardRound, ScorerState

router = Router(prefix="/v1/scorers", tags=["policies"])

_Rounds = Annotated[
    int, Query(ge=0, le=1000, description="Number of the newest rounds of rewards to return.")
]


@router.get("")
def scorers(caller: Submitter, context: Ctx, rounds: _Rounds = 0) -> Answer[shapes.Scorers]:
    """The scorers of the policy that decides, with what was learned of them under its version."""
    services = context.services
    now = services.clock.now()
    with services.store.read() as uow:
        active, _ = services.policies.current(uow)
        key = policy_key(active.policy)
        states = uow.scoring.states(key)
        last = uow.scoring.rounds(key, limit=rounds) if rounds else ()
    weighted_scorers = active.plugins.scorers
    found = [
        states.get(weighted.scorer.name, ScorerState(policy=key, scorer=weighted.scorer.name))
        for weighted in weighted_scorers
    ]
    stated = _shares([weighted.weight for weighted in weighted_scorers])
    weights = _shares(
        [
            weighted.weight if state.weight is None else state.weight
            for weighted, state in zip(weighted_scorers, found, strict=True)
        ]
    )
    items = [
        _item(weighted, state, weight, of_policy, now)
        for weighted, state, weight, of_policy in zip(
            weighted_scorers, found, weights, stated, strict=True
        )
    ]
    return Answer(shapes.Scorers(policy=key, items=items, rounds=[_round(each) for each in last]))


def _shares(weights: Sequence[float]) -> list[float]:
    """Return weights with a sum of 1, which not every aggregator keeps: only their ratios count."""
    total = sum(weights) or 1.0
    return [weight / total for weight in weights]


def _item(
    weighted: WeightedScorer, state: ScorerState, weight: float, stated: float, now: datetime
) -> shapes.Scorer:
    suspended = state.suspended_until is not None and now < state.suspended_until
    return views.same(
        shapes.Scorer,
        state,
        kind=weighted.scorer.kind.value,
        objective=weighted.scorer.objective,
        unit=weighted.scorer.unit.value,
        budget_s=weighted.budget_s,
        weight=weight,
        stated_weight=stated,
        mean_reward=state.reward_sum / state.rounds if state.rounds else None,
        mean_outcome_reward=state.outcome_sum / state.outcomes if state.outcomes else None,
        suspended_until=state.suspended_until if suspended else None,
        suspension_reason=suspension_reason(state) if suspended else "",
    )


def _round(each: RewardRound) -> shapes.RewardRound:
    # Not whose run it was: its owner's business.
    after = "outcome" if each.benchmark_id else "cycle"
    return views.same(shapes.RewardRound, each, after=after)
