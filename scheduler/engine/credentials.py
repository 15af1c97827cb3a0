"""Ends of credentials: with each of them ends all that was made with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from edgeyard.scheduler.model.users import ApiToken
from edgeyard.scheduler.ports import UnitOfWork


def revoke(uow: UnitOfWork, token_ids: Sequence[str], now: datetime) -> None:
    """Revoke tokens and all that was made with them.

    That is the tokens that they made, the passwords that they set with the sessions opened since,
    and the webhooks that they set; and all that was made with these.
    """
    ended: list[str] = []
    while token_ids:
        revoked = uow.accounts.revoke_tokens(token_ids, now)
        ended += revoked
        users = uow.accounts.remove_logins(made_by=[*token_ids, *revoked])
        token_ids = [each for user_id in users for each in _sessions(uow, user_id)]
    for hook in uow.webhooks.all():
        if hook.made_by in ended:
            uow.webhooks.remove(hook.user_id)


def revoke_sessions(uow: UnitOfWork, user_id: str, now: datetime) -> None:
    """Revoke all sessions of a user, and all that was made in them."""
    revoke(uow, _sessions(uow, user_id), now)


def keep_made(uow: UnitOfWork, token: ApiToken) -> None:
    """Let what a token made count as made by the token that made it, so that it survives it."""
    uow.accounts.keep_made(token)
    for hook in uow.webhooks.all():
        if hook.made_by == token.token_id:
            uow.webhooks.put(replace(hook, made_by=token.made_by))


def sessions_like(uow: UnitOfWork, token: ApiToken) -> list[str]:
    """Return the sessions of an account that were opened as one of them was, that one too.

    Args:
        token: The session. One that a token opened is like those that the same token opened; one
            that a log-in opened is like all of its account.
    """
    return [
        each.token_id
        for each in uow.accounts.tokens(token.user_id)
        if each.session_id == each.token_id and token.made_by in (None, each.made_by)
    ]


def _sessions(uow: UnitOfWork, user_id: str) -> list[str]:
    """Return the sessions that log-ins opened; others end with the token that opened them."""
    return [
        each.token_id
        for each in uow.accounts.tokens(user_id)
        if each.session_id == each.token_id and each.made_by is None
    ]
