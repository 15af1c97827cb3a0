"""Users and their tokens."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from urllib.parse import urlsplit

from fastapi.responses import Response

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import (
    AccountHolder,
    AnyCaller,
    Caller,
    Operator,
    Submitter,
    allows,
    new_token,
    token_hash,
)
from edgeyard.benchmark_api.routes.context import Body, Context, Ctx, Flag
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import (
    PasswordIn,
    TokenIn,
    UserChange,
    UserIn,
    WebhookIn,
    parse,
)
from edgeyard.errors import Conflict, Forbidden, InvalidInput, NotAuthenticated, NotFound
from edgeyard.scheduler.engine import credentials, quotas
from edgeyard.scheduler.engine.charging import OWN_USERS
from edgeyard.scheduler.model.acts import difference
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.quotas import QUOTA_NAMES, quotas_of
from edgeyard.scheduler.model.strict_json import time_to_json
from edgeyard.scheduler.model.subscriptions import Channel, first_subscriptions
from edgeyard.scheduler.model.users import ApiToken, Login, Role, User
from edgeyard.scheduler.model.webhooks import Webhook, WebhookFormat
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/v1", tags=["accounts"])

_PASSWORD_OUTLIVES_TOKEN = (
    "the token that you use expires, and an address or a password would outlive it: use an "
    "operator's token that does not expire, or state current_password to replace the password of "
    "an account"
)

_PROMOTES = (
    "the token that you use expires, and an operator made by it would outlive it: use an "
    "operator's token that does not expire"
)

_WIDENS = (
    "the token that you use expires, and the boards that it gives a host's account would outlive "
    "it: use an operator's token that does not expire"
)

_REDIRECTS = (
    "the token that you use expires, and the webhook that it sets would outlive it: use a token "
    "that does not expire"
)

_KEEPS = (
    "only an operator keeps what a token made, with a token that no other token of the account "
    "made, such as the admin token"
)


@router.get("/me")
def me(caller: AnyCaller) -> Answer[shapes.Me]:
    """Who you are, by your token."""
    return Answer(shapes.Me(user=views.user(caller.user), role=caller.role.value))


@router.get("/users")
def users(caller: Operator, context: Ctx) -> Answer[shapes.Users]:
    """All accounts."""
    with context.services.store.read() as uow:
        return Answer(shapes.Users(items=[views.user(each) for each in uow.accounts.users()]))


@router.post("/users", status_code=201, openapi_extra=accepts("UserIn"))
def add_user(body: Body, caller: Operator, context: Ctx) -> Answer[shapes.User]:
    """Make an account; with an address or a password only by a token that does not expire."""
    request = parse(UserIn, body.tree())
    if request.user_id in OWN_USERS:
        raise InvalidInput.at("/user_id", "is the account of Edgeyard itself", "another id")
    if request.email is not None and caller.expires_at is not None:
        raise Forbidden(_PASSWORD_OUTLIVES_TOKEN)
    if request.role == "operator" and caller.expires_at is not None:
        raise Forbidden(_PROMOTES)
    now = context.services.clock.now()
    user = User(
        user_id=request.user_id,
        role=Role(request.role),
        created_at=now,
        max_priority=request.max_priority,
        max_budget=request.max_budget,
        max_running=request.max_running,
        share=request.share,
        max_lease_s=request.max_lease_s,
        boards=tuple(request.boards),
        group_id=request.group_id,
        **{name: getattr(request, name) for name in QUOTA_NAMES},
    )

    login = _login(
        context, user.user_id, request.email, request.password, now, made_by=caller.token_id
    )

    def add(uow: UnitOfWork) -> None:
        _lock_own(uow, caller)
        _check_group(uow, user.group_id)
        uow.accounts.add_user(user)
        if login is not None:
            uow.accounts.put_login(login)
        uow.log.append(
            _event(now, "user.added", caller, user_id=user.user_id, **difference(None, user))
        )

    context.services.store.transact(add)
    return Answer(views.user(user), 201)


@router.patch("/users/{user_id}", openapi_extra=accepts("UserChange"))
def change_user(user_id: str, body: Body, caller: Operator, context: Ctx) -> Answer[shapes.User]:
    """Change an account; what is not named stays.

    The e-mail address only by a token that does not expire.
    """
    request = parse(UserChange, body.tree())
    if request.email is not None and caller.expires_at is not None:
        raise Forbidden(_PASSWORD_OUTLIVES_TOKEN)
    now = context.services.clock.now()

    def change(uow: UnitOfWork) -> User:
        user = uow.accounts.user(user_id, for_update=True)
        named = request.model_fields_set
        if user_id == caller.user_id and (
            request.disabled or request.role not in (None, "operator")
        ):
            raise Conflict("that would lock you out of your own account")
        changed = replace(
            user,
            role=Role(request.role) if request.role is not None else user.role,
            max_priority=request.max_priority or user.max_priority,
            max_budget=request.max_budget if "max_budget" in named else user.max_budget,
            max_running=request.max_running if "max_running" in named else user.max_running,
            share=user.share if request.share is None else request.share,
            max_lease_s=user.max_lease_s if request.max_lease_s is None else request.max_lease_s,
            boards=user.boards if request.boards is None else tuple(request.boards),
            group_id=request.group_id if "group_id" in named else user.group_id,
            disabled=user.disabled if request.disabled is None else request.disabled,
            **{name: getattr(request, name) for name in QUOTA_NAMES if name in named},
        )
        if caller.expires_at is not None:
            _check_no_wider(user, changed)
        if changed.group_id != user.group_id:
            _check_group(uow, changed.group_id)
        uow.accounts.save_user(changed)
        differing = difference(user, changed)
        if request.email is not None:
            mail = _set_address(uow, caller, user_id, request.email, now)
            differing = {side: {**of, **mail[side]} for side, of in differing.items()}
        uow.log.append(_event(now, "user.changed", caller, user_id=user_id, **differing))
        return changed

    changed = context.services.store.transact(change, frees_space=True)
    context.authenticator.forget()
    context.services.engine.wake()
    return Answer(views.user(changed))


@router.put("/users/{user_id}/password", status_code=204, openapi_extra=accepts("PasswordIn"))
def set_password(user_id: str, body: Body, caller: AccountHolder, context: Ctx) -> Response:
    """Set an account's password, and its e-mail address; its sessions end, and all made in them.

    Operators may set everybody's; others, and operators whose token expires, must state the one
    that the account has.
    """
    request = parse(PasswordIn, body.tree())
    if not caller.may_see(user_id):
        raise NotFound("user", user_id)
    now = context.services.clock.now()
    with context.services.store.read() as uow:
        uow.accounts.user(user_id)
        known = _login_of(uow, user_id)
    email = request.email or (known.email if known else None)
    if email is None:
        raise InvalidInput.at("/email", "is needed: the account has none yet", "an address")
    made_by: str | None = caller.token_id
    if not caller.is_operator or caller.expires_at is not None:
        _check_current(context, caller, known, email, request.current_password)
        made_by = known.made_by if known else None
    login = _login(context, user_id, email, request.password, now, made_by=made_by)

    def change(uow: UnitOfWork) -> None:
        uow.accounts.user(user_id, for_update=True)
        _lock_own(uow, caller)
        if login is not None and _login_of(uow, user_id) == known:
            uow.accounts.put_login(login)
        else:
            raise Conflict("the password was changed by another request")
        credentials.revoke_sessions(uow, user_id, now)
        uow.log.append(
            _event(now, "password.set", caller, user_id=user_id, **_mail_change(known, login))
        )

    context.services.store.transact(change)
    context.authenticator.forget()
    return Response(status_code=204)


@router.delete("/users/{user_id}/password", status_code=204)
def remove_password(user_id: str, caller: Operator, context: Ctx) -> Response:
    """Leave an account without e-mail address and password; its sessions end, as in `PUT`."""
    now = context.services.clock.now()

    def change(uow: UnitOfWork) -> None:
        uow.accounts.user(user_id, for_update=True)
        known = _login_of(uow, user_id)
        uow.accounts.remove_login(user_id)
        credentials.revoke_sessions(uow, user_id, now)
        uow.log.append(
            _event(now, "password.removed", caller, user_id=user_id, **_mail_change(known, None))
        )

    context.services.store.transact(change)
    context.authenticator.forget()
    return Response(status_code=204)


@router.get("/users/{user_id}/webhook")
def webhook(user_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.Webhook]:
    """Show a user's webhook and the state of its deliveries."""
    if not caller.may_see(user_id):
        raise NotFound("user", user_id)
    with context.services.store.read() as uow:
        uow.accounts.user(user_id)
        return Answer(_webhook(uow, user_id))


@router.put("/users/{user_id}/webhook", openapi_extra=accepts("WebhookIn"))
def set_webhook(
    user_id: str, body: Body, caller: Submitter, context: Ctx
) -> Answer[shapes.Webhook]:
    """Set or remove a user's webhook; a new secret is shown once, in this answer.

    A new webhook is subscribed to the user's benchmarks and alerts, that of an operator to the lab
    too; `/v1/subscriptions` has more.

    A token that expires only removes it: a URL that it sets would go on getting the user's events.
    """
    request = parse(WebhookIn, body.tree())
    services = context.services
    if not caller.may_see(user_id):
        raise NotFound("user", user_id)
    if request.url is not None:
        if caller.expires_at is not None:
            raise Forbidden(_REDIRECTS)
        services.webhook_rules.check(request.url, "/url")
    now = services.clock.now()

    def change(uow: UnitOfWork) -> shapes.Webhook:
        secret = None
        user = uow.accounts.user(user_id, for_update=True)
        _lock_own(uow, caller)
        before = _host_of_webhook(uow, user_id)
        mine = uow.subscriptions.all(user_id)
        kept = [each for each in mine if each.channel is Channel.WEBHOOK]
        uow.webhooks.remove(user_id)
        if request.url is not None:
            made = Webhook(
                user_id=user_id,
                url=request.url,
                salt=secrets.token_hex(16),
                created_at=now,
                format=WebhookFormat(request.format),
                made_by=caller.token_id,
            )
            uow.webhooks.put(made)
            for each in kept or first_subscriptions(user, uow.log.last_seq(), now):
                uow.subscriptions.add(each)
            secret = services.webhook_keys.secret(made)
        kind = "webhook.removed" if request.url is None else "webhook.set"
        uow.log.append(
            _event(
                now,
                kind,
                caller,
                user_id=user_id,
                before={"host": before},
                after={"host": _host_of_webhook(uow, user_id)},
            )
        )
        return _webhook(uow, user_id, secret)

    return Answer(services.store.transact(change))


@router.get("/tokens")
def tokens(caller: AnyCaller, context: Ctx, user_id: str | None = None) -> Answer[shapes.Tokens]:
    """Your tokens; operators see everybody's. Each ends with the token that `made_by` names."""
    if not caller.is_operator:
        if user_id not in (None, caller.user_id):
            raise NotFound("user", user_id or "")
        user_id = caller.user_id
    with context.services.store.read() as uow:
        return Answer(shapes.Tokens(items=views.tokens(uow.accounts.tokens(user_id))))


@router.post("/tokens", status_code=201, openapi_extra=accepts("TokenIn"))
def add_token(body: Body, caller: AnyCaller, context: Ctx) -> Answer[shapes.Token]:
    """Make a token: shown once, in this answer, and stored only as its hash.

    It ends with the token that you use.
    """
    request = parse(TokenIn, body.tree())
    services = context.services
    now = services.clock.now()
    user_id = request.user_id or caller.user_id
    if not caller.may_see(user_id):
        raise NotFound("user", user_id)
    if request.expires_at is not None and request.expires_at <= now:
        raise InvalidInput.at("/expires_at", "is in the past", "a time in the future")
    expires_at = _no_later(request.expires_at, caller)
    secret = new_token()

    def add(uow: UnitOfWork) -> ApiToken:
        user = uow.accounts.user(user_id, for_update=True)
        _lock_own(uow, caller)
        role = Role(request.role) if request.role is not None else _default_role(user, caller)
        if not allows(user.role, role) or not allows(caller.role, role):
            raise Forbidden(f"a token may not be {role.value} here: that is above its account")
        token = ApiToken(
            token_id=f"token-{secrets.token_hex(8)}",
            user_id=user_id,
            role=role,
            sha256=token_hash(secret),
            label=request.label,
            created_at=now,
            expires_at=expires_at,
            made_by=caller.token_id,
        )
        uow.accounts.add_token(token)
        quotas.check_tokens(uow, user_id, quotas_of(user, services.settings.quotas), now)
        uow.log.append(
            _event(
                now,
                "token.added",
                caller,
                token_id=token.token_id,
                user_id=user_id,
                **difference(None, token),
            )
        )
        return token

    token = services.store.transact(add)
    return Answer(views.token(token, secret), 201)


@router.delete("/tokens/{token_id}", status_code=204)
def revoke(token_id: str, caller: AnyCaller, context: Ctx, keep_made: Flag = False) -> Response:
    """Revoke a token and all that was made with it; within a second, no server takes them any more.

    That is the tokens that it made, passwords and webhooks that it set, and what was made with
    these. With ``keep_made`` (operators) they stay, as if made by the token that made it. Tokens
    that another token of their account made revoke only themselves and what they made.
    """
    now = context.services.clock.now()

    def change(uow: UnitOfWork) -> None:
        _lock_own(uow, caller)
        mine = uow.accounts.tokens(None if caller.is_operator else caller.user_id)
        token = next((each for each in mine if each.token_id == token_id), None)
        if token is None:
            raise NotFound("token", token_id)
        if not allows(caller.role, token.role):
            raise Forbidden(f"a {caller.role.value}'s token can't revoke a {token.role.value}'s")
        by_id = {each.token_id: each for each in mine}
        _check_may_revoke(caller, token, by_id)
        if keep_made and (not caller.is_operator or _maker(caller, by_id) is not None):
            raise Forbidden(_KEEPS)
        if keep_made and token.session_id is not None:
            raise InvalidInput.at("/keep_made", "a session keeps nothing", "another token")
        if token.revoked_at is None:
            if keep_made:
                credentials.keep_made(uow, token)
            credentials.revoke(uow, [token_id], now)
            uow.log.append(
                _event(
                    now,
                    "token.revoked",
                    caller,
                    token_id=token_id,
                    user_id=token.user_id,
                    **difference(token, replace(token, revoked_at=now)),
                )
            )

    context.services.store.transact(change, frees_space=True)
    context.authenticator.forget()
    return Response(status_code=204)


def _check_group(uow: UnitOfWork, group_id: str | None) -> None:
    """Refuse a group that does not exist; otherwise lock it, so that it is not removed meanwhile.

    Raises:
        InvalidInput: There is none.
    """
    if group_id is None:
        return
    try:
        uow.accounts.group(group_id, for_update=True)
    except NotFound:
        known = ", ".join(each.group_id for each in uow.accounts.groups()[:20])
        raise InvalidInput.at(
            "/group_id",
            f"{group_id} is no group: an operator makes it with edgeyard groups add {group_id}",
            known or "none: there is no group yet",
        ) from None


def _lock_own(uow: UnitOfWork, caller: Caller) -> None:
    """Let nobody revoke the caller's token while something is made with it.

    Raises:
        NotAuthenticated: Somebody has, after the request began.
    """
    try:
        revoked_at = uow.accounts.token(caller.token_id, for_update=True).revoked_at
    except NotFound:
        raise NotAuthenticated("the session ended a moment ago: log in again") from None
    if revoked_at is not None:
        raise NotAuthenticated("the token was revoked a moment ago: send another token")


def _check_may_revoke(caller: Caller, token: ApiToken, by_id: Mapping[str, ApiToken]) -> None:
    """Refuse to let a token end those of its account that it was not made to end.

    A person who finds a token may make others with it, but not end those of its owner.

    Raises:
        Forbidden: It made the caller's token, or is another one of an account whose token made it.
    """
    own_session = caller.session_id is not None and caller.session_id == token.session_id
    if own_session or caller.token_id in _line(token, by_id):
        return
    if token.token_id in _line(by_id[caller.token_id], by_id):
        raise Forbidden("the token that you use was made with it: use that one to revoke it")
    maker = _maker(caller, by_id)
    if maker is not None and token.user_id == caller.user_id:
        raise Forbidden(
            f"the token that you use was made with {maker}, and revokes only itself and what it "
            "made: use that one, or log in"
        )


def _maker(caller: Caller, by_id: Mapping[str, ApiToken]) -> str | None:
    """Return the token of the caller's own account that made theirs; None: an operator or log-in.

    An operator's token that another account's token made counts as given by an operator.
    """
    # What made a session that a token opened, is that token; what made one of a log-in is nothing.
    made_by = by_id[caller.session_id or caller.token_id].made_by
    maker = None if made_by is None else by_id.get(made_by)
    return None if maker is None or maker.user_id != caller.user_id else maker.token_id


def _line(token: ApiToken, by_id: Mapping[str, ApiToken]) -> Iterator[str]:
    """Yield the ids of a token, of the one that made it, and so on."""
    following: ApiToken | None = token
    while following is not None:
        yield following.token_id
        following = by_id.get(following.made_by or "")


def _set_address(
    uow: UnitOfWork, caller: Caller, user_id: str, email: str, now: datetime
) -> Mapping[str, Mapping[str, object]]:
    """Set the e-mail address of an account, whose password stays; return what changed."""
    known = _login_of(uow, user_id)
    new = Login(
        user_id=user_id, email=email, password_hash="", changed_at=now, made_by=caller.token_id
    )
    login = new if known is None else replace(known, email=email)
    _lock_own(uow, caller)
    uow.accounts.put_login(login)
    return _mail_change(known, login)


def _login(
    context: Context,
    user_id: str,
    email: str | None,
    password: str | None,
    now: datetime,
    *,
    made_by: str | None,
) -> Login | None:
    """Return what is stored of an address and its password; hashing that takes a while."""
    if email is None:
        return None
    hashed = "" if password is None else context.passwords.hasher.hash(password)
    return Login(
        user_id=user_id, email=email, password_hash=hashed, changed_at=now, made_by=made_by
    )


def _login_of(uow: UnitOfWork, user_id: str) -> Login | None:
    try:
        return uow.accounts.login(user_id)
    except NotFound:
        return None


def _check_current(
    context: Context, caller: Caller, known: Login | None, email: str, password: str | None
) -> None:
    """Refuse a change by somebody who only has a token, and would have a session after it.

    Raises:
        Forbidden: The password that the account has is not stated, or is another one.
        TooManyLogins: It was tried too often.
    """
    if caller.is_operator and (password is None or known is None or email != known.email):
        raise Forbidden(_PASSWORD_OUTLIVES_TOKEN)
    if known is None or email != known.email:
        raise Forbidden("an operator sets e-mail addresses, and an account's first password")
    context.passwords.limits.check(known.email, "")
    if not context.passwords.hasher.verify(password or "", known.password_hash):
        context.passwords.limits.failed(known.email, "")
        raise Forbidden("current_password is not the password that the account has")


def _webhook(uow: UnitOfWork, user_id: str, secret: str | None = None) -> shapes.Webhook:
    try:
        hook = uow.webhooks.of(user_id)
    except NotFound:
        return shapes.Webhook(
            user_id=user_id, url=None, format=None, created_at=None, waiting=0, last_error=""
        )
    return shapes.Webhook(
        user_id=user_id,
        url=hook.url,
        format=hook.format.value,
        created_at=hook.created_at,
        waiting=uow.deliveries.waiting(user_id, Channel.WEBHOOK),
        last_error=hook.last_error,
        secret=secret,
    )


def _no_later(expires_at: datetime | None, caller: Caller) -> datetime | None:
    """Return when a new token expires: not after the token that creates it.

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


def _check_no_wider(before: User, after: User) -> None:
    """Refuse a change that gives the tokens of an account rights that they do not have.

    Raises:
        Forbidden: It becomes, or is again, an operator, or the host of further boards.
    """
    gained = after.role is not before.role or (before.disabled and not after.disabled)
    if after.role is Role.OPERATOR and gained:
        raise Forbidden(_PROMOTES)
    wider = gained or not all(before.serves(board) for board in after.boards)
    if after.role is Role.HOST and after.boards and wider:
        raise Forbidden(_WIDENS)


def _default_role(user: User, caller: Caller) -> Role:
    return user.role if allows(caller.role, user.role) else caller.role


def _mail_change(before: Login | None, after: Login | None) -> Mapping[str, Mapping[str, object]]:
    """Return what the log of acts states of a changed log-in: never its password."""
    return {
        "before": {} if before is None else {"email": before.email},
        "after": {} if after is None else {"email": after.email},
    }


def _host_of_webhook(uow: UnitOfWork, user_id: str) -> str | None:
    """Return the host alone: paths and queries of webhooks often hold secrets."""
    try:
        return urlsplit(uow.webhooks.of(user_id).url).hostname
    except NotFound:
        return None


def _event(now: datetime, kind: str, caller: Caller, **data: object) -> Event:
    return Event(at=now, kind=kind, user_id=caller.user_id, data={**data, "by": caller.user_id})
