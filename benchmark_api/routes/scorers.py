"""Scorers of the policy that decides: weights, rewards, faults."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import Submitter
from edgeyard.benchmark_api.routes.context import Ctx, answer
from edgeyard.benchmark_api.routes.documented import answers
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.scheduler.engine.rewards import bench_reason, policy_key
from edgeyard.scheduler.framework.registry import Seat
from edgeyard.scheduler.model.rating import RewardRound, ScorerState
from edgeyard.scheduler.model.wire import JsonObject, time_to_json

router = APIRouter(prefix="/v1/scorers", tags=["policies"])

_Rounds = Annotated[int, Query(ge=0, le=1000, description="Last rounds of rewards to tell.")]


@router.get("", responses=answers(200, shapes.Scorers))
def scorers(caller: Submitter, context: Ctx, rounds: _Rounds = 0) -> Response:
    """The scorers of the policy that decides, with what was learned of them under its version."""
    services = context.services
    now = services.clock.now()
    with services.store.read() as uow:
        active, _ = services.policies.current(uow)
        key = policy_key(active.policy)
        states = uow.scoring.states(key)
        last = uow.scoring.rounds(key, limit=rounds) if rounds else ()
    seats = active.plugins.scorers
    stated = sum(seat.weight for seat in seats) or 1.0
    items = []
    for seat in seats:
        name = seat.scorer.name
        state = states.get(name, ScorerState(policy=key, scorer=name))
        benched = state.benched_until is not None and now < state.benched_until
        items.append(_item(seat, state, stated, benched=benched))
    return answer({"policy": key, "items": items, "rounds": [_round(each) for each in last]})


def _item(seat: Seat, state: ScorerState, stated: float, *, benched: bool) -> JsonObject:
    return {
        "scorer": state.scorer,
        "kind": seat.scorer.kind.value,
        "objective": seat.scorer.objective,
        "budget_s": seat.budget_s,
        "weight": seat.weight / stated if state.weight is None else state.weight,
        "stated_weight": seat.weight / stated,
        "rounds": state.rounds,
        "mean_reward": state.reward_sum / state.rounds if state.rounds else None,
        "outcomes": state.outcomes,
        "mean_outcome_reward": state.outcome_sum / state.outcomes if state.outcomes else None,
        "faults": state.faults,
        "last_fault": state.last_fault,
        "last_fault_at": time_to_json(state.last_fault_at) if state.last_fault_at else None,
        "benched_until": (
            time_to_json(state.benched_until) if benched and state.benched_until else None
        ),
        "bench_reason": bench_reason(state) if benched else "",
    }


def _round(each: RewardRound) -> JsonObject:
    # Not whose run it was: its owner's business.
    return {
        "at": time_to_json(each.at),
        "after": "outcome" if each.benchmark_id else "cycle",
        "rewards": dict(each.rewards),
        "weights": dict(each.weights),
    }
