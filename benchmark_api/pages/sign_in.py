"""Sign in with a token, a password or the link of the server's start; sign out."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.auth import SESSION_COOKIE, Caller, browser_caller, count_failure
from edgeyard.benchmark_api.pages.forms import PublicForm, SignedInForm
from edgeyard.benchmark_api.pages.page import is_secure, page, see_other, set_cookie
from edgeyard.benchmark_api.rate_limits import RateLimits
from edgeyard.benchmark_api.routes import browser_sessions
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.routes.platform.sessions import checked_password
from edgeyard.errors import Forbidden, NotAuthenticated

router = PageRouter()

_OWN_PAGE = re.compile(r"/ui(?:[/?][A-Za-z0-9._~%!$&'()*+,;=:@/?-]*)?")
_LOOPBACK = re.compile(r"127\.\d+\.\d+\.\d+|::/64")
"""Addresses as `RateLimits.address` writes them."""

_SignedIn = Annotated[Caller, Depends(browser_caller)]


@router.get("/ui/sign-in")
def sign_in_page(request: Request) -> Response:
    """The form for signing in."""
    limits_of(request).count_address(request.scope)
    return page(request, "sign_in", None, email="", back=own_page(_wanted(request)))


@router.post("/ui/sign-in")
async def sign_in(request: Request, form: PublicForm, context: Ctx) -> Response:
    """Open a session with a token, or with an e-mail address and a password."""
    limits = limits_of(request)
    request.state.next_page = own_page(form.text("next"))
    request.state.email = form.text("email")
    try:
        if token := form.text("token"):
            limits.check_failures(request.scope)
            secret = await browser_sessions.by_token(context, token)
        else:
            address = limits.address(request.scope)
            checked = await checked_password(
                context, form.text("email"), form.get("password", ""), address
            )
            secret = await run_in_threadpool(browser_sessions.by_password, context, checked)
    except NotAuthenticated:
        await count_failure(request)
        raise
    return _signed_in(request, secret, request.state.next_page)


@router.get("/ui/sign-in/link")
def link_page(request: Request, code: str = "") -> Response:
    """Where the link of the server's start leads: one button, since reading must change nothing."""
    limits_of(request).count_address(request.scope)
    return page(request, "link", None, code=code)


@router.post("/ui/sign-in/link")
async def sign_in_by_link(request: Request, form: PublicForm, context: Ctx) -> Response:
    """Open the session of a link; over the network only by TLS."""
    limits = limits_of(request)
    limits.check_failures(request.scope)
    if not is_secure(request) and not _LOOPBACK.fullmatch(limits.address(request.scope)):
        raise Forbidden(
            "a link signs in on the server's own machine, or by TLS: sign in with a token"
        )
    try:
        token_id = context.links.take(form.text("code"))
    except NotAuthenticated:
        await count_failure(request)
        raise
    secret = await run_in_threadpool(browser_sessions.opened_by, context, token_id)
    return _signed_in(request, secret, "/ui")


@router.post("/ui/sign-out")
async def sign_out(
    request: Request, form: SignedInForm, caller: _SignedIn, context: Ctx
) -> Response:
    """End the session; with ``everywhere`` those in other browsers, too."""
    everywhere = bool(form.text("everywhere"))
    end = partial(browser_sessions.end, context, caller, everywhere=everywhere)
    await run_in_threadpool(end)
    answer = see_other("/ui", "signed-out-everywhere" if everywhere else "signed-out")
    answer.delete_cookie(SESSION_COOKIE, path="/ui", httponly=True, secure=is_secure(request))
    return answer


def own_page(path: str) -> str:
    """Return a path if it is one of a page of ours, otherwise that of the first page."""
    return path if _OWN_PAGE.fullmatch(path) else "/ui"


def _wanted(request: Request) -> str:
    return request.query_params.get("next", "")


def limits_of(request: Request) -> RateLimits:
    """Return what bounds requests of an address."""
    limits: RateLimits = request.app.state.rate_limits
    return limits


def _signed_in(request: Request, secret: str, path: str) -> Response:
    answer = see_other(path)
    set_cookie(request, answer, SESSION_COOKIE, secret)
    return answer
