"""What users may have, have and used; what boards cost."""

from __future__ import annotations

from collections.abc import Collection

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Operator, Submitter
from edgeyard.benchmark_api.routes.context import Body, Context, Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.routes.groups import group_of
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import CreditsIn, RateIn, parse
from edgeyard.errors import InvalidInput, NotFound
from edgeyard.scheduler.engine import charging
from edgeyard.scheduler.model.accounts import USAGE_HALF_LIFE_S
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/v1", tags=["accounts"])

_CHARGES = 20
"""The newest so many are shown."""


@router.get("/users/{user_id}/account")
def account(user_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.Account]:
    """A user's credits, quotas, group, use and charges; your own, or anybody's for operators."""
    if not caller.may_see(user_id):
        raise NotFound("user", user_id)
    with context.services.store.read() as uow:
        return Answer(_account(uow, user_id, context))


@router.post("/users/{user_id}/credits", openapi_extra=accepts("CreditsIn"))
def give(user_id: str, body: Body, caller: Operator, context: Ctx) -> Answer[shapes.Account]:
    """Set how many credits an account has, or add some."""
    request = parse(CreditsIn, body.tree())
    named = request.model_fields_set
    if len(named) != 1 or (named == {"add"} and request.add is None):
        raise InvalidInput.at("", "states neither or both of credits and add", "one of the two")
    services = context.services
    now = services.clock.now()

    def change(uow: UnitOfWork) -> shapes.Account:
        uow.accounts.user(user_id)
        if request.add is not None:
            charging.add_credits(uow, user_id, request.add, now, caller.user_id)
        else:
            charging.set_credits(uow, user_id, request.credits, now, caller.user_id)
        return _account(uow, user_id, context)

    changed = services.store.transact(change)
    services.engine.wake()
    return Answer(changed)


@router.get("/rates")
def rates(caller: Submitter, context: Ctx) -> Answer[shapes.Rates]:
    """What a second on a board costs, by family."""
    with context.services.store.read() as uow:
        return Answer(_rates(uow, context))


@router.put("/rates/{family}", openapi_extra=accepts("RateIn"))
def set_rate(family: str, body: Body, caller: Operator, context: Ctx) -> Answer[shapes.Rates]:
    """Set a family's rate; attempts that were placed before keep theirs."""
    request = parse(RateIn, body.tree())
    services = context.services
    if family not in _families(context):
        raise NotFound("family", family)

    def change(uow: UnitOfWork) -> shapes.Rates:
        before = uow.credits.rates().get(family, 1.0)
        uow.credits.set_rate(family, request.rate)
        uow.log.append(_event(context, caller, family, before, request.rate))
        return _rates(uow, context)

    changed = services.store.transact(change)
    services.engine.wake()
    return Answer(changed)


def _account(uow: UnitOfWork, user_id: str, context: Context) -> shapes.Account:
    user = uow.accounts.user(user_id)
    balance = uow.credits.balance(user_id)
    return views.same(
        shapes.Account,
        user,
        group=group_of(uow, user, context.services.clock.now()),
        credits=balance.credits,
        credits_left=balance.credits_left,
        reserved=balance.reserved,
        spent=balance.spent,
        usage_board_s=round(balance.usage_s(context.services.clock.now()), 3),
        usage_half_life_s=USAGE_HALF_LIFE_S,
        running=uow.credits.running(user_id),
        charges=[views.charge(each) for each in uow.credits.charges(user_id, limit=_CHARGES)],
        idle_times=[
            views.idle_time(each) for each in uow.credits.idle_times(user_id, limit=_CHARGES)
        ],
    )


def _families(context: Context) -> Collection[str]:
    return context.offers.now().families


def _rates(uow: UnitOfWork, context: Context) -> shapes.Rates:
    known = dict.fromkeys(sorted(_families(context)), 1.0)
    return shapes.Rates(rates={**known, **uow.credits.rates()})


def _event(context: Context, caller: Caller, family: str, before: float, rate: float) -> Event:
    data = {
        "family": family,
        "rate": rate,
        "by": caller.user_id,
        "before": {"rate": before},
        "after": {"rate": rate},
    }
    now = context.services.clock.now()
    return Event(at=now, kind="rate.set", user_id=caller.user_id, data=data)
