"""Groups of users: limits, credits and a share that their members have together."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from fastapi.responses import Response

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Operator, Submitter
from edgeyard.benchmark_api.routes.context import Body, Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import GroupChange, GroupIn, parse
from edgeyard.errors import NotFound
from edgeyard.scheduler.engine import quotas
from edgeyard.scheduler.model.accounts import decayed
from edgeyard.scheduler.model.acts import difference
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.quotas import GROUP_QUOTA_NAMES, USED
from edgeyard.scheduler.model.users import Group, User
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/v1", tags=["accounts"])

_LIMITS = ("credits", "max_running", *GROUP_QUOTA_NAMES)


@router.get("/groups")
def groups(caller: Submitter, context: Ctx) -> Answer[shapes.Groups]:
    """All groups with what they have and may have, for operators; other users see their own."""
    with context.services.store.read() as uow:
        found = [
            each
            for each in uow.accounts.groups()
            if caller.is_operator or each.group_id == caller.user.group_id
        ]
        now = context.services.clock.now()
        return Answer(shapes.Groups(items=[_shown_group(uow, each, now) for each in found]))


@router.get("/groups/{group_id}")
def group(group_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.Group]:
    """A group with what its members have and may have; only operators see all groups."""
    if not caller.is_operator and group_id != caller.user.group_id:
        raise NotFound("group", group_id)
    with context.services.store.read() as uow:
        return Answer(_shown_group(uow, uow.accounts.group(group_id), context.services.clock.now()))


@router.post("/groups", status_code=201, openapi_extra=accepts("GroupIn"))
def add_group(body: Body, caller: Operator, context: Ctx) -> Answer[shapes.Group]:
    """Make a group; `PATCH /v1/users/{user_id}` puts users into it."""
    request = parse(GroupIn, body.tree())
    now = context.services.clock.now()
    made = Group(
        group_id=request.group_id,
        created_at=now,
        share=request.share,
        **{name: getattr(request, name) for name in _LIMITS},
    )

    def add(uow: UnitOfWork) -> shapes.Group:
        uow.accounts.add_group(made)
        uow.log.append(_event(now, "group.added", caller, made.group_id, None, made))
        return _shown_group(uow, made, now)

    return Answer(context.services.store.transact(add), 201)


@router.patch("/groups/{group_id}", openapi_extra=accepts("GroupChange"))
def change_group(group_id: str, body: Body, caller: Operator, context: Ctx) -> Answer[shapes.Group]:
    """Change a group; what is not named stays. What is over a lower limit stays, too."""
    request = parse(GroupChange, body.tree())
    now = context.services.clock.now()
    named = request.model_fields_set

    def change(uow: UnitOfWork) -> shapes.Group:
        before = uow.accounts.group(group_id, for_update=True)
        after = replace(
            before,
            share=before.share if request.share is None else request.share,
            **{name: getattr(request, name) for name in _LIMITS if name in named},
        )
        uow.accounts.save_group(after)
        uow.log.append(_event(now, "group.changed", caller, group_id, before, after))
        return _shown_group(uow, after, now)

    changed = context.services.store.transact(change)
    context.services.engine.wake()
    return Answer(changed)


@router.delete("/groups/{group_id}", status_code=204)
def remove_group(group_id: str, caller: Operator, context: Ctx) -> Response:
    """Remove a group: its members go on without, and what was used stays reported for it."""
    now = context.services.clock.now()

    def remove(uow: UnitOfWork) -> None:
        before = uow.accounts.group(group_id, for_update=True)
        members = list(uow.accounts.members(group_id))
        uow.accounts.remove_group(group_id)
        uow.log.append(
            _event(now, "group.removed", caller, group_id, before, None, members=members)
        )

    context.services.store.transact(remove, frees_space=True)
    context.authenticator.forget()
    context.services.engine.wake()
    return Response(status_code=204)


def group_of(uow: UnitOfWork, user: User, now: datetime) -> shapes.Group | None:
    """Return the group that a user is in, as `group` shows it; None: in none."""
    found = quotas.group_of(uow, user)
    return None if found is None else _shown_group(uow, found, now)


def _shown_group(uow: UnitOfWork, group: Group, now: datetime) -> shapes.Group:
    """Return a group with its members and what they have now."""
    members = list(uow.accounts.members(group.group_id))
    used = [uow.usage.of(user_id, now) for user_id in members]
    running = [each for each in uow.credits.open_charges() if each.group_id == group.group_id]
    return views.same(
        shapes.Group,
        group,
        members=members,
        usage_board_s=round(decayed(group.usage_board_s, group.usage_at, now), 3),
        reserved=sum(each.reserved for each in running),
        running=len(running),
        **{
            USED[name]: sum(getattr(each, USED[name]) for each in used)
            for name in GROUP_QUOTA_NAMES
        },
    )


def _event(
    now: datetime,
    kind: str,
    caller: Caller,
    group_id: str,
    before: Group | None,
    after: Group | None,
    **data: object,
) -> Event:
    facts = {"group_id": group_id, "by": caller.user_id, **data, **difference(before, after)}
    return Event(at=now, kind=kind, user_id=caller.user_id, data=facts)
