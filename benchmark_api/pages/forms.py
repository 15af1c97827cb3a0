"""Forms of pages: what was typed, sent by our own pages alone."""

from __future__ import annotations

import hmac
import secrets
from typing import Annotated
from urllib.parse import parse_qsl

import msgspec
from fastapi import Depends, Request

from edgeyard.benchmark_api.acts import state_reason
from edgeyard.benchmark_api.auth import SESSION_COOKIE, browser_caller, token_hash
from edgeyard.benchmark_api.routes.context import RawBody, read_small
from edgeyard.errors import Forbidden, InvalidInput, NotAuthenticated, TooLarge

FORM_COOKIE = "edgeyard_form"
"""Cookie of somebody who is not signed in, which forms for signing in are bound to."""

_TOKEN_BYTES = 32

MAX_FORM_BYTES = 64 * 1024
MAX_FIELDS = 100

_FOREIGN = (
    "the form was not sent from a page of this server, or its page is from before you signed in: "
    "go back, reload the page and send it again"
)


class Form(dict[str, str]):
    """Fields of a form; of several of one name, the last."""

    def text(self, name: str) -> str:
        """Return a field without blanks around it; "" where it is missing."""
        return self.get(name, "").strip()


def csrf_token(secret: str) -> str:
    """Return what each form of a page carries, which only somebody with the cookie can know.

    It is another text each time, since pages are compressed: from the sizes of pages that contain
    one text again and again next to a guess, somebody who sees them pass could find the text (the
    attack BREACH).
    """
    mask = secrets.token_bytes(_TOKEN_BYTES)
    return (mask + _masked(_token(secret), mask)).hex()


def is_csrf_token(text: str, secret: str) -> bool:
    """Return whether a text is one of those that `csrf_token` returns for a secret."""
    try:
        given = bytes.fromhex(text)
    except ValueError:
        return False
    mask, masked = given[:_TOKEN_BYTES], given[_TOKEN_BYTES:]
    whole = len(given) == 2 * _TOKEN_BYTES
    return whole and hmac.compare_digest(_masked(masked, mask), _token(secret))


def _token(secret: str) -> bytes:
    return bytes.fromhex(token_hash(f"form:{secret}"))


def _masked(token: bytes, mask: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(token, mask, strict=True))


def json_body(**fields: object) -> RawBody:
    """Return a body as `/v1` takes it."""
    return RawBody(msgspec.json.encode(fields), "application/json")


async def _signed_in_form(request: Request) -> Form:
    try:
        await browser_caller(request)
    except NotAuthenticated:
        # What was typed is kept on the page that says that the session has ended.
        request.state.typed = await _fields(request)
        raise
    form = await _checked(request, SESSION_COOKIE)
    state_reason(form.text("reason"))
    return form


async def _public_form(request: Request) -> Form:
    return await _checked(request, FORM_COOKIE)


async def _checked(request: Request, cookie: str) -> Form:
    """Return the fields of a form that a page of ours has sent.

    Raises:
        Forbidden: It comes from elsewhere.
    """
    form = await _fields(request)
    check_sent(request, form, cookie)
    return form


def check_sent(request: Request, form: Form, cookie: str) -> None:
    """Refuse a form that no page of ours has sent.

    Args:
        request: The request that sent it.
        form: Its fields.
        cookie: Name of the cookie that it is bound to.

    Raises:
        Forbidden: It comes from elsewhere.
    """
    site = request.headers.get("sec-fetch-site", "same-origin")
    secret = request.cookies.get(cookie, "")
    known = is_csrf_token(form.get("csrf", ""), secret)
    if not secret or not known or site not in ("same-origin", "none"):
        raise Forbidden(_FOREIGN)


async def _fields(request: Request) -> Form:
    try:
        body = await read_small(request, MAX_FORM_BYTES)
    except TooLarge as error:
        raise TooLarge("the form", MAX_FORM_BYTES) from error
    try:
        pairs = parse_qsl(
            body.data.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
        )
    except ValueError:
        raise InvalidInput.at("", "is no form", "fields of a form in UTF-8") from None
    return Form(pairs)


SignedInForm = Annotated[Form, Depends(_signed_in_form)]
"""A form of somebody who is signed in; what they may do, the route checks."""
PublicForm = Annotated[Form, Depends(_public_form)]
"""A form for signing in."""
