"""Who calls: bearer tokens of accounts, and upload tokens of attempts."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.acts import FailedSignIns, door_of, know_route
from edgeyard.benchmark_api.rate_limits import RateLimits
from edgeyard.errors import Forbidden, NotAuthenticated, NotFound
from edgeyard.scheduler.model.acts import acting
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.strict_json import time_to_json
from edgeyard.scheduler.model.users import SUBMITTING, ApiToken, Role, User
from edgeyard.scheduler.ports import Clock, Store

TOKEN_PREFIX = "ey_"
"""Beginning of each token, by which scanners for leaked secrets recognise it."""

CACHE_S = 1.0
"""Maximum time for which a revoked token is still accepted, seconds."""
CACHE_SIZE = 10_000

KNOWN_S = 600.0
"""A token that was valid within this time is looked up although its address has sent too many
invalid ones, seconds."""

_FORM = (
    "send Authorization: Bearer TOKEN, with the access token of a log-in or one that "
    "`edgeyard tokens create` made"
)
SESSION_COOKIE = "edgeyard_session"
"""Cookie of a session in a browser; pages accept it, and nothing else does."""

_LIMITED = frozenset({Role.SUBMITTER, Role.VIEWER})
"""Roles whose requests have the limits of users."""

_READING = frozenset({"GET", "HEAD"})
_READS_ONLY = "a viewer may only read: use the account of a submitter"

_TOKEN_PATTERN = re.compile(r"[A-Za-z0-9_.~+/-]{8,512}=*")


def new_token() -> str:
    """Return a new random token of 256 bits, with the prefix `TOKEN_PREFIX`."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """Return the hash under which a token is stored; 256 random bits need no salt."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def browser_token(secret: str) -> str:
    """Return the token of a session in a browser; no header can carry it, because of its colon.

    Args:
        secret: What the session's cookie holds.
    """
    return f"browser:{secret}"


def is_token(text: str) -> bool:
    """Return whether a text has the form of a token."""
    return _TOKEN_PATTERN.fullmatch(text) is not None


def allows(bound: Role, role: Role) -> bool:
    """Return whether an account or token of one role may have a token of another."""
    reads_only = role is Role.VIEWER and bound is Role.SUBMITTER
    return bound is Role.OPERATOR or role is bound or reads_only


def present_role(token: Role, user: Role) -> Role | None:
    """Return what a token grants now: no more than its user may today; None: nothing.

    Submitters and hosts may different things, so neither's token becomes the other's.
    """
    if allows(user, token):
        return token
    return user if allows(token, user) else None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and what the token allows.

    Attributes:
        token_id: Of the token.
        session_id: Of the session that the token belongs to, if it does.
        expires_at: When the token stops being good; None: never.
    """

    user: User
    role: Role
    token_id: str
    session_id: str | None = None
    expires_at: datetime | None = None

    @property
    def user_id(self) -> str:
        """Id of the caller's account."""
        return self.user.user_id

    @property
    def may_submit(self) -> bool:
        """Return whether they may submit, and change what is their own."""
        return self.role in SUBMITTING

    @property
    def is_operator(self) -> bool:
        """Return whether they may see and change what belongs to others."""
        return self.role is Role.OPERATOR

    def may_see(self, user_id: str) -> bool:
        """Return whether that user's things are visible to the caller."""
        return self.is_operator or user_id == self.user_id


class Authenticator:
    """Turns tokens into callers; knows recent ones without asking the store. Thread-safe."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._recent: dict[str, tuple[float, Caller]] = {}
        self._lookups: dict[str, asyncio.Task[Caller]] = {}
        self._good: dict[str, float] = {}

    async def authenticated(self, token: str) -> Caller:
        """Return `caller`, on the event loop: requests that come together ask the store once.

        Raises:
            NotAuthenticated: As `caller`.
        """
        recent = self.recent(token)
        if recent is not None:
            return recent
        asking = self._lookups.get(token)
        if asking is None:
            asking = asyncio.create_task(run_in_threadpool(self.caller, token))
            self._lookups[token] = asking
            asking.add_done_callback(lambda task: self._answered(token, task))
        # Shielded: one request's end must not cancel it for the others.
        return await asyncio.shield(asking)

    def _answered(self, token: str, task: asyncio.Task[Caller]) -> None:
        del self._lookups[token]
        if not task.cancelled():
            task.exception()  # retrieved, although no request may wait for it any more

    def recent(self, token: str) -> Caller | None:
        """Return the caller, if the token was good within `CACHE_S`; no I/O."""
        known = self._recent.get(token_hash(token))
        if known is None or self._clock.monotonic_s() - known[0] > CACHE_S:
            return None
        return known[1]

    def was_good(self, token: str) -> bool:
        """Return whether the token was good within `KNOWN_S`; it may not be now."""
        at = self._good.get(token_hash(token))
        return at is not None and self._clock.monotonic_s() - at <= KNOWN_S

    def caller(self, token: str) -> Caller:
        """Return the caller, as the store knows it now.

        Raises:
            NotAuthenticated: No such token, expired, revoked, its user is disabled, or no longer
                what the token is for.
        """
        sha256 = token_hash(token)
        now = self._clock.certain()
        asked_at = self._clock.monotonic_s()
        try:
            with self._store.read() as uow:
                known = uow.accounts.token_by_hash(sha256)
                user = uow.accounts.user(known.user_id)
        except NotFound:
            raise NotAuthenticated(
                "no such token is known here: log in again, or send another token"
            ) from None
        role = present_role(known.role, user.role)
        if known.refreshes:
            raise NotAuthenticated(
                "this is a refresh token, which only POST /api/users/token/refresh accepts: send "
                "the "
                "access token"
            )
        refusal = _refusal(known, user, now)
        if refusal is not None:
            self._recent.pop(sha256, None)
            raise NotAuthenticated(refusal)
        if role is None:
            self._recent.pop(sha256, None)
            raise NotAuthenticated(
                f"the token has the role {known.role.value}, which its account no longer has: "
                "send another token"
            )
        caller = Caller(user, role, known.token_id, known.session_id, known.expires_at)
        if len(self._recent) >= CACHE_SIZE:
            self._recent = {}
        self._recent[sha256] = (asked_at, caller)
        if len(self._good) >= CACHE_SIZE:
            self._good = {}
        self._good[sha256] = asked_at
        return caller

    def forget(self) -> None:
        """Ask the store again for every token: accounts were changed here."""
        self._recent = {}


def _refusal(token: ApiToken, user: User, now: datetime) -> str | None:
    """Return why a token is no longer good, and what to do; None: it is good."""
    again = "log in again" if token.session_id is not None else "send another token"
    if user.disabled:
        return f"account {user.user_id} is disabled: ask an operator"
    if token.revoked_at is not None:
        return f"the token was revoked at {time_to_json(token.revoked_at)}: {again}"
    if token.expires_at is None or token.expires_at > now:
        return None
    at = time_to_json(token.expires_at)
    if token.session_id is None:
        return f"the token expired at {at}: {again}"
    return (
        f"the access token expired at {at}: get another one with the refresh token "
        "(POST /api/users/token/refresh), or log in again"
    )


def bearer_token(request: Request) -> str | None:
    """Return the token that the request carries, if it carries one.

    Raises:
        NotAuthenticated: The header is there but malformed.
    """
    header = request.headers.get("authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer":
        raise NotAuthenticated(f"the Authorization header has another scheme: {_FORM}")
    if _TOKEN_PATTERN.fullmatch(token) is None:
        raise NotAuthenticated(f"the token in the Authorization header is malformed: {_FORM}")
    return token


async def still_authenticated(request: Request) -> bool:
    """Return whether the request's token is still valid; long answers check it repeatedly."""
    token = bearer_token(request)
    authenticator: Authenticator = request.app.state.authenticator
    try:
        return token is not None and await authenticator.authenticated(token) is not None
    except NotAuthenticated:
        return False


async def any_caller(request: Request) -> Caller:
    """Return the caller with any good token.

    Raises:
        NotAuthenticated: No good token.
        RateLimited: There were too many requests with it, or too many from its address with
            tokens that were not good.
        TooManyOpenRequests: The user has too many under way.
    """
    token = bearer_token(request)
    if token is None:
        raise NotAuthenticated
    return await _caller_with(request, token)


async def browser_caller(request: Request) -> Caller:
    """Return the caller of a page, by the cookie of their session; any role.

    Raises:
        NotAuthenticated: There is no session, or it has ended.
        RateLimited: As `any_caller`.
        TooManyOpenRequests: As `any_caller`.
    """
    secret = request.cookies.get(SESSION_COOKIE)
    if secret is None or not is_token(secret):
        raise NotAuthenticated("sign in to see this page")
    return await _caller_with(request, browser_token(secret))


async def _caller_with(request: Request, token: str) -> Caller:
    caller: Caller | None = getattr(request.state, "caller", None)
    if caller is not None:  # several parts of one request ask
        return caller
    authenticator: Authenticator = request.app.state.authenticator
    rate_limits: RateLimits = request.app.state.rate_limits
    if not authenticator.was_good(token):
        rate_limits.check_failures(request.scope)
    try:
        caller = await authenticator.authenticated(token)
    except NotAuthenticated:
        await count_failure(request)
        raise
    who = acting()
    if who is not None:
        know_route(who, request.scope)
        who.user_id, who.token_id = caller.user_id, caller.token_id
    count_caller(rate_limits, caller, token)
    if caller.role in _LIMITED:
        rate_limits.open_request(request.scope, caller.user_id)
    request.state.caller = caller
    return caller


async def count_failure(request: Request) -> None:
    """Count a failed sign-in of the request's address."""
    failed: FailedSignIns = request.app.state.failed_sign_ins
    rate_limits: RateLimits = request.app.state.rate_limits
    door = door_of(request.scope)
    await run_in_threadpool(failed.count, rate_limits.address(request.scope), door)


def count_caller(rate_limits: RateLimits, caller: Caller, token: str) -> None:
    """Count a request of an account.

    Raises:
        RateLimited: There were too many with this token.
    """
    trusted = caller.role not in _LIMITED
    rate_limits.count_token(token_hash(token), caller.user_id, trusted=trusted)


async def submitter(request: Request) -> Caller:
    """Return a caller who may use benchmarks and files: submitters, operators, viewers to read.

    Raises:
        Forbidden: A host's token, or a viewer's for more than reading.
    """
    return only_reads(no_host(await any_caller(request)), request)


async def account_holder(request: Request) -> Caller:
    """Return a caller who may change their own account: all but hosts.

    Raises:
        Forbidden: A host's token.
    """
    return no_host(await any_caller(request))


def no_host(caller: Caller) -> Caller:
    """Return a caller who may see benchmarks and files.

    Raises:
        Forbidden: A host's token.
    """
    if caller.role is Role.HOST:
        raise Forbidden("a host's token is for downloads and uploads only")
    return caller


def only_reads(caller: Caller, request: Request) -> Caller:
    """Return the caller, if a request of this method is allowed to them.

    Raises:
        Forbidden: A viewer's, for more than reading.
    """
    if not caller.may_submit and request.method not in _READING:
        raise Forbidden(_READS_ONLY)
    return caller


async def operator(request: Request) -> Caller:
    """Return a caller who may run the lab.

    Raises:
        Forbidden: Not an operator.
    """
    return only_operator(await any_caller(request))


def only_operator(caller: Caller) -> Caller:
    """Return a caller who may run the lab.

    Raises:
        Forbidden: Not an operator.
    """
    if not caller.is_operator:
        raise Forbidden("only operators may do this: use the account of an operator")
    return caller


AnyCaller = Annotated[Caller, Depends(any_caller)]
Submitter = Annotated[Caller, Depends(submitter)]
"""Who may use benchmarks and files; a viewer may read them."""
AccountHolder = Annotated[Caller, Depends(account_holder)]
Reader = AccountHolder
"""Who may read benchmarks and files, viewers too, by a POST that changes nothing."""
Operator = Annotated[Caller, Depends(operator)]


async def _browser_user(request: Request) -> Caller:
    return only_reads(no_host(await browser_caller(request)), request)


async def browser_submitter(request: Request) -> Caller:
    """Return the caller of a page on which jobs are submitted.

    Raises:
        Forbidden: The session of a host or a viewer.
    """
    caller = no_host(await browser_caller(request))
    if not caller.may_submit:
        raise Forbidden(_READS_ONLY)
    return caller


async def _browser_operator(request: Request) -> Caller:
    return only_operator(await browser_caller(request))


BrowserUser = Annotated[Caller, Depends(_browser_user)]
"""A `Submitter` who uses a page."""
BrowserSubmitter = Annotated[Caller, Depends(browser_submitter)]
"""Who may submit, for pages that do nothing else."""
BrowserOperator = Annotated[Caller, Depends(_browser_operator)]
"""An `Operator` who uses a page."""


def is_upload_token(attempt: Attempt, token: str) -> bool:
    """Return whether a token is the attempt's upload token, also after the attempt's end."""
    known = attempt.upload_token_sha256
    return known is not None and hmac.compare_digest(known, token_hash(token))
