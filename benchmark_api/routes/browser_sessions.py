"""Sessions of browsers: how they begin and end; each is a token in the tree of credentials."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta

from edgeyard.benchmark_api.auth import (
    Caller,
    browser_token,
    is_token,
    new_token,
    no_host,
    present_role,
    token_hash,
)
from edgeyard.benchmark_api.routes.context import Context
from edgeyard.benchmark_api.routes.platform import sessions
from edgeyard.errors import NotAuthenticated, NotFound
from edgeyard.scheduler.engine import credentials
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.users import ApiToken, Login, Role, User
from edgeyard.scheduler.ports import UnitOfWork


async def by_token(context: Context, token: str) -> str:
    """Open a session with a token, with whose end it ends; returns the secret of its cookie.

    Raises:
        NotAuthenticated: The token is not good.
        Forbidden: It is a host's.
    """
    if not is_token(token):
        raise NotAuthenticated("this is no token: `edgeyard tokens create` makes one")
    return opened_by(context, no_host(await context.authenticator.authenticated(token)).token_id)


def opened_by(context: Context, token_id: str) -> str:
    """Open a session with a token that was checked; returns the secret of its cookie.

    Raises:
        NotAuthenticated: The token is not good any more.
    """

    def made_by(uow: UnitOfWork) -> tuple[User, ApiToken]:
        try:
            token = uow.accounts.token(token_id, for_update=True)
            user = uow.accounts.user(token.user_id)
        except NotFound:
            raise NotAuthenticated("the token ended a moment ago: send another one") from None
        if token.revoked_at is not None or user.disabled:
            raise NotAuthenticated("the token ended a moment ago: send another one")
        return user, token

    return _opened(context, made_by)


def by_password(context: Context, checked: Login) -> str:
    """Open a session after a password was checked; returns the secret of its cookie.

    Raises:
        NotAuthenticated: Password or account were changed since.
    """
    return _opened(context, lambda uow: (sessions.user_of(uow, checked), None))


def end(context: Context, caller: Caller, *, everywhere: bool) -> None:
    """End the caller's session and what was made in it; or all that were opened as it was.

    Those of a session that a token opened are those of the same token; those of one that a
    password opened are all of the account.
    """
    now = context.services.clock.now()

    def change(uow: UnitOfWork) -> None:
        own = uow.accounts.token(caller.token_id, for_update=True)
        ended = credentials.sessions_like(uow, own) if everywhere else [own.token_id]
        credentials.revoke(uow, ended, now)
        data = {"session_id": own.token_id, "by": caller.user_id, "sessions": len(ended)}
        uow.log.append(Event(at=now, kind="session.ended", user_id=caller.user_id, data=data))

    context.services.store.transact(change, frees_space=True)
    context.authenticator.forget()


def _opened(context: Context, find: Callable[[UnitOfWork], tuple[User, ApiToken | None]]) -> str:
    services = context.services
    secret, token_id = new_token(), f"token-{secrets.token_hex(8)}"

    def add(uow: UnitOfWork) -> None:
        now = services.clock.now()
        user, made_by = find(uow)
        role = user.role if made_by is None else present_role(made_by.role, user.role)
        if role is None:
            raise NotAuthenticated("the account has another role than the token: send another one")
        expires_at = now + timedelta(seconds=services.settings.refresh_token_s)
        if made_by is not None and made_by.expires_at is not None:
            expires_at = min(expires_at, made_by.expires_at)
        uow.accounts.remove_expired_sessions(user.user_id, services.clock.certain())
        sessions.make_room(uow, user, token_id, now)
        uow.accounts.add_token(
            ApiToken(
                token_id=token_id,
                user_id=user.user_id,
                role=role,
                sha256=token_hash(browser_token(secret)),
                label="browser",
                created_at=now,
                expires_at=expires_at,
                session_id=token_id,
                made_by=None if made_by is None else made_by.token_id,
            )
        )
        data = {"session_id": token_id, "by": user.user_id, "browser": True}
        uow.log.append(Event(at=now, kind="session.opened", user_id=user.user_id, data=data))

    services.store.transact(add)
    return secret


def first_token(context: Context, user_id: str) -> str | None:
    """Return the id of an operator's oldest token that is good and does not expire, if any."""
    with context.services.store.read() as uow:
        for token in uow.accounts.tokens(user_id):
            lasts = token.expires_at is None and token.revoked_at is None
            if lasts and token.role is Role.OPERATOR and token.session_id is None:
                return token.token_id
    return None
