"""Users and their tokens."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import datetime

from fastapi import APIRouter
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import (
    AnyCaller,
    Caller,
    Operator,
    Submitter,
    allows,
    new_token,
    token_hash,
)
from edgeyard.benchmark_api.routes.context import Body, Ctx, answer
from edgeyard.benchmark_api.routes.documented import accepts, answers
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import (
    TokenIn,
    UserChange,
    UserIn,
    WebhookIn,
    parse,
)
from edgeyard.errors import Conflict, Forbidden, InvalidInput, NotFound
from edgeyard.scheduler.engine import quotas
from edgeyard.scheduler.engine.charging import PROBER
from edgeyard.scheduler.model.quotas import QUOTA_NAMES, quotas_of
from edgeyard.scheduler.model.records import ApiToken, Event, Role, User, Webhook
from edgeyard.scheduler.model.wire import JsonObject, time_to_json, token_to_json, user_to_json
from edgeyard.scheduler.ports import UnitOfWork

router = APIRouter(prefix="/v1", tags=["accounts"])


@router.get("/me", responses=answers(200, shapes.Me))
def me(caller: AnyCaller) -> Response:
    """Who you are, by your token."""
    return answer({"user": user_to_json(caller.user), "role": caller.role.value})


@router.get("/users", responses=answers(200, shapes.Users))
def users(caller: Operator, context: Ctx) -> Response:
    """All accounts."""
    with context.services.store.read() as uow:
        return answer({"items": [user_to_json(user) for user in uow.accounts.users()]})


@router.post(
    "/users",
    status_code=201,
    responses=answers(201, shapes.User),
    openapi_extra=accepts("UserIn"),
)
def add_user(body: Body, caller: Operator, context: Ctx) -> Response:
    """Make an account."""
    asked = parse(UserIn, body.tree())
    if asked.user_id == PROBER:
        raise InvalidInput.at("/user_id", "is Edgeyard's own", "another id")
    now = context.services.clock.now()
    user = User(
        user_id=asked.user_id,
        role=Role(asked.role),
        created_at=now,
        max_priority=asked.max_priority,
        max_budget=asked.max_budget,
        max_running=asked.max_running,
        share=asked.share,
        max_lease_s=asked.max_lease_s,
        boards=tuple(asked.boards),
        **{name: getattr(asked, name) for name in QUOTA_NAMES},
    )

    def add(uow: UnitOfWork) -> None:
        uow.accounts.add_user(user)
        uow.log.append(_event(now, "user.added", caller, user_id=user.user_id))

    context.services.store.transact(add)
    return answer(user_to_json(user), 201)


@router.patch(
    "/users/{user_id}", responses=answers(200, shapes.User), openapi_extra=accepts("UserChange")
)
def change_user(user_id: str, body: Body, caller: Operator, context: Ctx) -> Response:
    """Change an account; what is not named stays."""
    asked = parse(UserChange, body.tree())
    now = context.services.clock.now()

    def change(uow: UnitOfWork) -> User:
        user = uow.accounts.user(user_id, to_change=True)
        named = asked.model_fields_set
        if user_id == caller.user_id and (asked.disabled or asked.role not in (None, "operator")):
            raise Conflict("that would lock you out of your own account")
        changed = replace(
            user,
            role=Role(asked.role) if asked.role is not None else user.role,
            max_priority=asked.max_priority or user.max_priority,
            max_budget=asked.max_budget if "max_budget" in named else user.max_budget,
            max_running=asked.max_running if "max_running" in named else user.max_running,
            share=user.share if asked.share is None else asked.share,
            max_lease_s=user.max_lease_s if asked.max_lease_s is None else asked.max_lease_s,
            boards=user.boards if asked.boards is None else tuple(asked.boards),
            disabled=user.disabled if asked.disabled is None else asked.disabled,
            **{name: getattr(asked, name) for name in QUOTA_NAMES if name in named},
        )
        uow.accounts.save_user(changed)
        uow.log.append(_event(now, "user.changed", caller, user_id=user_id))
        return changed

    changed = context.services.store.transact(change)
    context.authenticator.forget()
    context.services.engine.wake()
    return answer(user_to_json(changed))


@router.get("/users/{user_id}/webhook", responses=answers(200, shapes.Webhook))
def webhook(user_id: str, caller: Submitter, context: Ctx) -> Response:
    """Where a user is told what became of their benchmarks, and how that goes."""
    if not caller.may_see(user_id):
        raise NotFound("user", user_id)
    with context.services.store.read() as uow:
        uow.accounts.user(user_id)
        return answer(_webhook(uow, user_id))


@router.put(
    "/users/{user_id}/webhook",
    responses=answers(200, shapes.Webhook),
    openapi_extra=accepts("WebhookIn"),
)
def set_webhook(user_id: str, body: Body, caller: Submitter, context: Ctx) -> Response:
    """Set or remove a user's webhook; a new secret is shown once, in this answer."""
    asked = parse(WebhookIn, body.tree())
    services = context.services
    if not caller.may_see(user_id):
        raise NotFound("user", user_id)
    if asked.url is not None:
        services.webhook_rules.check(asked.url, "/url")
    now = services.clock.now()

    def change(uow: UnitOfWork) -> JsonObject:
        shown: dict[str, object] = {}
        uow.accounts.user(user_id, to_change=True)
        uow.webhooks.remove(user_id)
        if asked.url is not None:
            made = Webhook(
                user_id=user_id,
                url=asked.url,
                salt=secrets.token_hex(16),
                created_at=now,
                seen_seq=uow.log.last_seq(),
            )
            uow.webhooks.put(made)
            shown = {"secret": services.webhook_keys.secret(made)}
        kind = "webhook.removed" if asked.url is None else "webhook.set"
        uow.log.append(_event(now, kind, caller, user_id=user_id))
        return _webhook(uow, user_id) | shown

    return answer(services.store.transact(change))


@router.get("/tokens", responses=answers(200, shapes.Tokens))
def tokens(caller: AnyCaller, context: Ctx, user_id: str | None = None) -> Response:
    """Your tokens; operators see everybody's."""
    if not caller.is_operator:
        if user_id not in (None, caller.user_id):
            raise NotFound("user", user_id or "")
        user_id = caller.user_id
    with context.services.store.read() as uow:
        return answer({"items": [token_to_json(each) for each in uow.accounts.tokens(user_id)]})


@router.post(
    "/tokens",
    status_code=201,
    responses=answers(201, shapes.Token),
    openapi_extra=accepts("TokenIn"),
)
def add_token(body: Body, caller: AnyCaller, context: Ctx) -> Response:
    """Make a token: shown once, in this answer, and stored only as its hash."""
    asked = parse(TokenIn, body.tree())
    services = context.services
    now = services.clock.now()
    user_id = asked.user_id or caller.user_id
    if not caller.may_see(user_id):
        raise NotFound("user", user_id)
    if asked.expires_at is not None and asked.expires_at <= now:
        raise InvalidInput.at("/expires_at", "is in the past", "a time to come")
    expires_at = _no_later(asked.expires_at, caller)
    secret = new_token()

    def add(uow: UnitOfWork) -> ApiToken:
        user = uow.accounts.user(user_id, to_change=True)
        role = Role(asked.role) if asked.role is not None else _default_role(user, caller)
        if not allows(user.role, role) or not allows(caller.role, role):
            raise Forbidden(f"a token may not be {role.value} here: that is above its account")
        token = ApiToken(
            token_id=f"token-{secrets.token_hex(8)}",
            user_id=user_id,
            role=role,
            sha256=token_hash(secret),
            label=asked.label,
            created_at=now,
            expires_at=expires_at,
        )
        uow.accounts.add_token(token)
        quotas.check_tokens(uow, user_id, quotas_of(user, services.settings.quotas), now)
        uow.log.append(_event(now, "token.added", caller, token_id=token.token_id))
        return token

    token = services.store.transact(add)
    return answer(token_to_json(token) | {"token": secret}, 201)


@router.delete("/tokens/{token_id}", status_code=204)
def revoke(token_id: str, caller: AnyCaller, context: Ctx) -> Response:
    """Revoke a token: within a second, no server takes it any more."""
    now = context.services.clock.now()

    def change(uow: UnitOfWork) -> None:
        mine = uow.accounts.tokens(None if caller.is_operator else caller.user_id)
        token = next((each for each in mine if each.token_id == token_id), None)
        if token is None:
            raise NotFound("token", token_id)
        if not allows(caller.role, token.role):
            raise Forbidden(f"a {caller.role.value}'s token can't revoke a {token.role.value}'s")
        if token.revoked_at is None:
            uow.accounts.save_token(replace(token, revoked_at=now))
            uow.log.append(_event(now, "token.revoked", caller, token_id=token_id))

    context.services.store.transact(change)
    context.authenticator.forget()
    return Response(status_code=204)


def _webhook(uow: UnitOfWork, user_id: str) -> JsonObject:
    try:
        hook = uow.webhooks.of(user_id)
    except NotFound:
        return {"user_id": user_id, "url": None, "created_at": None, "waiting": 0, "trouble": ""}
    return {
        "user_id": user_id,
        "url": hook.url,
        "created_at": time_to_json(hook.created_at),
        "waiting": uow.webhooks.waiting(user_id),
        "trouble": hook.trouble,
    }


def _no_later(expires_at: datetime | None, caller: Caller) -> datetime | None:
    """When a new token expires: a token makes none that outlives it.

    Raises:
        InvalidInput: A later time is asked for.
    """
    if caller.expires_at is None:
        return expires_at
    if expires_at is not None and expires_at > caller.expires_at:
        raise InvalidInput.at(
            "/expires_at",
            "is after the end of the token that you use",
            f"at most {time_to_json(caller.expires_at)}",
        )
    return expires_at or caller.expires_at


def _default_role(user: User, caller: Caller) -> Role:
    return user.role if allows(caller.role, user.role) else caller.role


def _event(now: datetime, kind: str, caller: Caller, **data: str) -> Event:
    return Event(at=now, kind=kind, user_id=caller.user_id, data={**data, "by": caller.user_id})
