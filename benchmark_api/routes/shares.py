"""Links that show one thing, read-only, to everybody who has them."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import datetime, timedelta

from fastapi.responses import Response

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Submitter, present_role, token_hash
from edgeyard.benchmark_api.routes.context import (
    Body,
    Context,
    Ctx,
    named,
    visible,
    visible_campaign,
)
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import ShareIn, parse
from edgeyard.errors import InvalidInput, NotFound, QuotaExceeded
from edgeyard.scheduler.model.acts import difference
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.shares import Share, ShareKind
from edgeyard.scheduler.model.users import Role
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/v1/shares", tags=["shares"])

LASTS = timedelta(days=30)
"""How long a link lasts whose end nobody stated."""
MAX_LASTS = timedelta(days=365)
MAX_OF_USER = 1000
"""Links that a user may have at a time."""


@router.get("")
def list_shares(caller: Submitter, context: Ctx) -> Answer[shapes.Shares]:
    """Your links, newest first; operators see everybody's. None shows its address again."""
    user_id = None if caller.is_operator else caller.user_id
    with context.services.store.read() as uow:
        found = uow.shares.of(user_id, context.services.clock.certain())
    return Answer(shapes.Shares(items=[views.share(each) for each in found]))


@router.post("", status_code=201, openapi_extra=accepts("ShareIn"))
def add(body: Body, caller: Submitter, context: Ctx) -> Answer[shapes.Share]:
    """Make a link to a benchmark, a campaign or a comparison, for people without an account.

    It shows what you may see, without names of users, until it ends, is revoked, or the token that
    made it is revoked (a link that was made after a log-in: until the password is changed). The
    answer alone holds its address; only a hash of it is stored.
    """
    request = parse(ShareIn, body.tree())
    services = context.services
    now = services.clock.now()
    expires_at = request.expires_at or now + LASTS
    if caller.expires_at is not None and request.expires_at is None and caller.session_id is None:
        expires_at = min(expires_at, caller.expires_at)
    _check_end(expires_at, now)
    secret = secrets.token_urlsafe(32)

    def store(uow: UnitOfWork) -> Share:
        ids: list[str] = []
        if request.campaign_id is not None:
            visible_campaign(uow, request.campaign_id, caller)
            kind = ShareKind.CAMPAIGN
        elif request.benchmark_ids is not None:
            ids, kind = list(dict.fromkeys(request.benchmark_ids)), ShareKind.COMPARISON
        else:
            ids, kind = [request.benchmark_id or ""], ShareKind.BENCHMARK
        ids = named(uow, ids, caller)
        for each in ids:
            visible(uow, each, caller)
        made = Share(
            share_id=f"share-{secrets.token_hex(8)}",
            user_id=caller.user_id,
            kind=kind,
            benchmark_ids=tuple(ids),
            campaign_id=request.campaign_id,
            options=request.options,
            sha256=_hash(secret),
            label=request.label,
            created_at=now,
            expires_at=expires_at,
            made_by=_maker(uow, caller),
        )
        uow.shares.add(made)
        count = len(uow.shares.of(caller.user_id, now))
        if count > MAX_OF_USER:
            advice = "revoke links that nobody needs"
            whose = f"user {caller.user_id}"
            raise QuotaExceeded("max_shares", MAX_OF_USER, count, whose, advice)
        uow.log.append(_event(context, caller, "share.added", made, (None, made)))
        return made

    made = services.store.transact(store)
    return Answer(views.share(made, views.url(services, "ui", "shared", secret)), 201)


@router.delete("/{share_id}", status_code=204)
def remove(share_id: str, caller: Submitter, context: Ctx) -> Response:
    """Revoke a link: from now on its address is not found."""

    def forget(uow: UnitOfWork) -> None:
        user_id = None if caller.is_operator else caller.user_id
        gone = uow.shares.remove(share_id, user_id, context.services.clock.certain())
        uow.log.append(_event(context, caller, "share.removed", gone, (gone, None)))

    context.services.store.transact(forget, frees_space=True)
    return Response(status_code=204)


def opened(secret: str, context: Context) -> tuple[Share, Caller]:
    """Return the link of a secret, and the caller as whom its page reads.

    Raises:
        NotFound: There is none, it has ended, all that it shows was deleted, or who made it may
            not use this server any more.
    """
    now = context.services.clock.certain()
    with context.services.store.read() as uow:
        share = uow.shares.by_hash(_hash(secret), now)
        user = uow.accounts.user(share.user_id)
        role = None if user.disabled else _role(uow, share, user.role, now)
        deleted = uow.benchmarks.deleted(share.benchmark_ids)
    kept = tuple(each for each in share.benchmark_ids if each not in deleted)
    if role is None or role is Role.HOST or (share.benchmark_ids and not kept):
        raise NotFound("shared page", "of this address")
    return replace(share, benchmark_ids=kept), Caller(user, role, share.made_by or share.share_id)


def _role(uow: UnitOfWork, share: Share, role: Role, now: datetime) -> Role | None:
    """Return the role that a link reads with; None: what it was made with is no longer valid."""
    try:
        if share.made_by is None:
            changed_at = uow.accounts.login(share.user_id).changed_at
            return role if changed_at <= share.created_at else None
        token = uow.accounts.token(share.made_by)
    except NotFound:
        return None
    ended = token.expires_at is not None and token.expires_at <= now
    return None if ended or token.revoked_at is not None else present_role(token.role, role)


def _maker(uow: UnitOfWork, caller: Caller) -> str | None:
    """Return the token with which the link ends, too: of a session, the one that opened it."""
    if caller.session_id is None:
        return caller.token_id
    return uow.accounts.token(caller.session_id).made_by


def _check_end(expires_at: datetime, now: datetime) -> None:
    if expires_at <= now:
        raise InvalidInput.at("/expires_at", "has passed", "a later time")
    if expires_at > now + MAX_LASTS:
        raise InvalidInput.at(
            "/expires_at", "is too far away", f"at most {MAX_LASTS.days} days from now"
        )


def _hash(secret: str) -> str:
    return token_hash(f"share:{secret}")


def _event(
    context: Context,
    caller: Caller,
    kind: str,
    share: Share,
    change: tuple[Share | None, Share | None],
) -> Event:
    of_one = share.kind is ShareKind.BENCHMARK
    return Event(
        at=context.services.clock.now(),
        kind=kind,
        benchmark_id=share.benchmark_ids[0] if of_one else None,
        user_id=caller.user_id,
        data={"share_id": share.share_id, **difference(*change)},
    )
