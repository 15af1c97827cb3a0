"""Log in with an e-mail address and a password, and refresh access tokens."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from anyio import CapacityLimiter, to_thread
from fastapi import Request

from edgeyard.benchmark_api.auth import count_failure, new_token, present_role, token_hash
from edgeyard.benchmark_api.rate_limits import RateLimits
from edgeyard.benchmark_api.routes.context import Context, Ctx, read_small
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.schemas import platform as shapes
from edgeyard.benchmark_api.schemas.fields import MAX_PASSWORD, normalized_email
from edgeyard.errors import InvalidInput, NotAuthenticated, NotFound, TooManyLogins
from edgeyard.scheduler.engine import credentials
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.users import ApiToken, Login, Role, User
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/api/users", tags=["platform"])

MAX_BODY_BYTES = 16 * 1024
MAX_HASHES = 4
"""Passwords that are checked at the same time: each takes 32 MiB and a core."""
MAX_TOKENS = 1000
"""Tokens of all sessions of a user that are good at the same time."""

_WRONG = "the e-mail address or the password is wrong"
_OVER = "the refresh token is unknown, expired or revoked: log in again"


@dataclass(frozen=True, slots=True)
class _Session:
    access: str
    refresh: str


@router.post("/login", openapi_extra=accepts("LoginIn"))
async def login(request: Request, context: Ctx) -> Answer[shapes.Session]:
    """Log in; the access token is good at ``/v1`` too."""
    tree = (await read_small(request, MAX_BODY_BYTES)).tree()
    email, password = tree.get("email"), tree.get("password")
    if not isinstance(email, str) or not isinstance(password, str):
        raise InvalidInput.at("", "email and password are needed", "an object of two texts")
    rate_limits: RateLimits = request.app.state.rate_limits
    address = rate_limits.address(request.scope)
    try:
        checked = await checked_password(context, email, password, address)
    except NotAuthenticated:
        await count_failure(request)
        raise
    opened = await to_thread.run_sync(
        context.services.store.transact, partial(_opened, context, checked)
    )
    return Answer(shapes.Session(access_token=opened.access, refresh_token=opened.refresh))


@router.post("/token/refresh", openapi_extra=accepts("RefreshIn"))
async def refresh(request: Request, context: Ctx) -> Answer[shapes.RefreshAnswer]:
    """Get another access token; the refresh token stays good until it expires or is revoked."""
    tree = (await read_small(request, MAX_BODY_BYTES)).tree()
    token = tree.get("refresh")
    if not isinstance(token, str):
        raise NotAuthenticated("no refresh token was sent: log in again")
    access = await to_thread.run_sync(_refreshed, context, token)
    return Answer(shapes.RefreshAnswer(access=access))


def _hashes(context: Context) -> CapacityLimiter:
    """Return what bounds the hashes of this server; made on its event loop."""
    if context.passwords.limiter is None:
        context.passwords.limiter = CapacityLimiter(MAX_HASHES)
    return context.passwords.limiter


async def checked_password(context: Context, email: str, password: str, address: str) -> Login:
    """Return what is stored of an account's password, if it is that password.

    Args:
        email: As it was typed.
        address: That it was sent from.

    Raises:
        NotAuthenticated: It is not; or there is no such account, or it is disabled.
        TooManyLogins: It was tried too often.
    """
    return await to_thread.run_sync(
        partial(_checked, context, email, password, address), limiter=_hashes(context)
    )


def _checked(context: Context, text: str, password: str, address: str) -> Login:
    email = normalized_email(text) or ""
    passwords = context.passwords
    passwords.limits.check(email, address)
    known = _known(context, email)
    right = len(password) <= MAX_PASSWORD and passwords.hasher.verify(
        password, known[0].password_hash if known else None
    )
    if not right or known is None or known[1].disabled:
        passwords.limits.failed(email, address)
        raise NotAuthenticated(_WRONG)
    passwords.limits.succeeded(email, address)
    return known[0]


def _known(context: Context, email: str) -> tuple[Login, User] | None:
    with context.services.store.read() as uow:
        try:
            login = uow.accounts.login_by_email(email)
            return login, uow.accounts.user(login.user_id)
        except NotFound:
            return None


def user_of(uow: UnitOfWork, checked: Login) -> User:
    """Return the account of a password that was checked.

    Raises:
        NotAuthenticated: Password or account were changed since.
    """
    try:
        user = uow.accounts.user(checked.user_id, for_update=True)
        current = uow.accounts.login(user.user_id)
    except NotFound:
        raise NotAuthenticated(_WRONG) from None
    if current != checked or user.disabled:
        raise NotAuthenticated(_WRONG)
    return user


def _opened(context: Context, checked: Login, uow: UnitOfWork) -> _Session:
    services = context.services
    now = services.clock.now()
    user = user_of(uow, checked)
    uow.accounts.remove_expired_sessions(user.user_id, services.clock.certain())
    made = _Session(new_token(), new_token())
    session_id = f"token-{secrets.token_hex(8)}"
    uow.accounts.add_token(
        ApiToken(
            token_id=session_id,
            user_id=user.user_id,
            role=user.role,
            sha256=token_hash(made.refresh),
            label="log-in by password",
            created_at=now,
            expires_at=now + timedelta(seconds=services.settings.refresh_token_s),
            refreshes=True,
            session_id=session_id,
        )
    )
    _add_access(uow, context, user, user.role, made.access, session_id, now, None)
    data = {"session_id": session_id, "by": user.user_id}
    uow.log.append(Event(at=now, kind="session.opened", user_id=user.user_id, data=data))
    return made


def _refreshed(context: Context, token: str) -> str:
    services = context.services
    made = new_token()

    def add(uow: UnitOfWork) -> None:
        now = services.clock.now()
        try:
            known = uow.accounts.token_by_hash(token_hash(token))
            known = uow.accounts.token(known.token_id, for_update=True)
            user = uow.accounts.user(known.user_id)
        except NotFound:
            raise NotAuthenticated(_OVER) from None
        if not known.refreshes:
            raise NotAuthenticated("this is an access token: send the refresh token, or log in")
        role = present_role(known.role, user.role)
        over = known.expires_at is not None and known.expires_at <= services.clock.certain()
        if over or known.revoked_at is not None or user.disabled or role is None:
            raise NotAuthenticated(_OVER)
        uow.accounts.remove_expired_sessions(user.user_id, services.clock.certain())
        _add_access(uow, context, user, role, made, known.token_id, now, known.expires_at)

    services.store.transact(add)
    return made


def _add_access(
    uow: UnitOfWork,
    context: Context,
    user: User,
    role: Role,
    token: str,
    session_id: str,
    now: datetime,
    session_ends: datetime | None,
) -> None:
    expires_at = now + timedelta(seconds=context.services.settings.access_token_s)
    make_room(uow, user, session_id, now)
    uow.accounts.add_token(
        ApiToken(
            token_id=f"token-{secrets.token_hex(8)}",
            user_id=user.user_id,
            role=role,
            sha256=token_hash(token),
            label="access by password",
            created_at=now,
            expires_at=expires_at if session_ends is None else min(expires_at, session_ends),
            session_id=session_id,
            made_by=session_id,
        )
    )


def make_room(uow: UnitOfWork, user: User, session_id: str, now: datetime) -> None:
    """End the user's oldest session without a valid access token if there are too many.

    The platform's client logs out without a request, so scripts leave a session behind each time.

    Raises:
        TooManyLogins: All of them have one.
    """
    valid = [
        each
        for each in uow.accounts.tokens(user.user_id)
        if each.session_id is not None
        and each.revoked_at is None
        and (each.expires_at is None or each.expires_at > now)
    ]
    if len(valid) < MAX_TOKENS:
        return
    access = [each for each in valid if not each.refreshes]
    in_use = {session_id, *(each.session_id for each in access)}
    idle = [each for each in valid if each.session_id not in in_use]
    if not idle:
        first_s = min(((each.expires_at or now) - now).total_seconds() for each in access)
        raise TooManyLogins(
            "open_sessions", MAX_TOKENS, f"user {user.user_id}", max(1.0, first_s), "open sessions"
        )
    oldest = min(idle, key=lambda each: each.created_at)
    credentials.revoke(uow, [oldest.token_id], now)
    data = {"session_id": oldest.session_id, "by": user.user_id, "reason": "too many sessions"}
    uow.log.append(Event(at=now, kind="session.ended", user_id=user.user_id, data=data))
