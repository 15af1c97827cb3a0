"""How a page is made: template, headers, times and texts; and pages of errors."""

from __future__ import annotations

import gzip
import json
import re
import secrets
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2.compiler import CodeGenerator, Frame
from jinja2.nodes import Expr
from markupsafe import Markup, escape
from starlette.routing import Match

from edgeyard.benchmark_api.auth import SESSION_COOKIE, Caller, browser_caller
from edgeyard.benchmark_api.figures.concurrency import concurrency_sentence
from edgeyard.benchmark_api.figures.load import load_sentence
from edgeyard.benchmark_api.figures.soaks import soak_sentence
from edgeyard.benchmark_api.installed import installed
from edgeyard.benchmark_api.pages import assets
from edgeyard.benchmark_api.pages.filters import options_of
from edgeyard.benchmark_api.pages.forms import FORM_COOKIE, csrf_token
from edgeyard.benchmark_api.pages.measured import (
    measured,
    numbers_in_words,
)
from edgeyard.benchmark_api.problems import ProblemAnswer
from edgeyard.benchmark_api.routes.context import Context
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.sdk.energy import energy_sentence
from edgeyard.benchmark_api.sdk.generation import generation_text
from edgeyard.errors import EdgeyardError
from edgeyard.scheduler.model.times import time_text

_T = TypeVar("_T")

_QUICK = 3
"""Level of compression of what is made for one request."""

MAX_TEXT = 300
"""Characters that a page shows of any one text in a table."""

_SIMULATOR = ("edgeyard.simulator.pages",)
"""Adds pages where it is installed."""

_NAVIGATION = (
    ("/ui", "Overview"),
    ("/ui/boards", "Boards"),
    ("/ui/queue", "Queue"),
    ("/ui/benchmarks", "Benchmarks"),
    ("/ui/submit", "Submit"),
    ("/ui/compare", "Compare"),
)
_NAVIGATION_OF_OPERATORS = (("/ui/usage", "Usage"), ("/ui/events", "Log of acts"))
_BEHIND = {
    "/ui/compare": ("/ui/history", "/ui/alerts", "/ui/checks"),
    "/ui/policies": ("/ui/models", "/ui/simulations"),
}
"""Pages that the tabs of an entry of the navigation lead to."""


_TYPE_WORDS = {
    "TYPE1": "latency",
    "TYPE2": "accuracy",
    "TYPE3": "training",
    "GENAI": "language model",
}
"""What Edgeyard's own types measure."""

_UNIT_WORDS = {"failure": "probability", "preference": "preference from 0 to 1"}
"""Units of scorers whose names do not state what their numbers are."""

_NOTICES = {
    "drained": "The board is drained: what runs on it ends, nothing new is placed there.",
    "resumed": "The board is back in service.",
    "leased": "The board is leased.",
    "lease-released": "The lease has ended.",
    "lifted": "The quarantine is lifted.",
    "probed": "The board is probed as soon as it could run something.",
    "quarantined": "The board is in quarantine.",
    "held": "The benchmark is held: it is not placed until it is released.",
    "released": "The benchmark waits for a board again.",
    "cancelled": "The benchmark is cancelled.",
    "prioritised": "The benchmark has its new priority.",
    "submitted": "It is submitted.",
    "scheduled": "The schedule is made: a benchmark is submitted at each of its times. "
    "`edgeyard schedules list` shows it.",
    "retried": "This is the new benchmark; it repeats the other one.",
    "check-cancelled": "The check is cancelled.",
    "alert-resolved": "The alert is resolved. If its level comes back, it is reopened.",
    "alert-dismissed": "The alert is dismissed.",
    "subscribed": "You are subscribed: events from now on are sent.",
    "unsubscribed": "The subscription is removed.",
    "share-revoked": "The link is revoked: its address is not found any more.",
    "policy-active": "The policy decides from the next cycle on.",
    "policy-active-ended": "The configured policy decides from the next cycle on.",
    "policy-shadow": "The policy decides as the shadow from the next cycle on, without effect.",
    "policy-shadow-ended": "There is no shadow policy any more.",
    "model-promoted": "The model is promoted.",
    "model-rolled-back": "The model is rolled back.",
    "signed-out": "You are signed out.",
    "signed-out-everywhere": "You are signed out, here and in other browsers.",
}
"""What acts did, by the word that the page's address carries: never a text of somebody."""


def _navigation(caller: Caller | None, path: str) -> list[tuple[str, str, bool]]:
    """Return address and name of each entry of the navigation, and whether the page is of it."""
    operator = caller is not None and caller.is_operator
    submits = caller is not None and caller.may_submit
    parts = ("policies", "models" if operator else "", "simulations" if _has_simulator() else "")
    entries = [
        *(each for each in _NAVIGATION if submits or each[0] != "/ui/submit"),
        ("/ui/policies", ", ".join(filter(None, parts)).capitalize()),
        *(_NAVIGATION_OF_OPERATORS if operator else ()),
    ]
    return [
        (
            href,
            name,
            path == href or (href != "/ui" and path.startswith((href, *_BEHIND.get(href, ())))),
        )
        for href, name in entries
    ]


def page(
    request: Request,
    template: str,
    caller: Caller | None,
    *,
    status: int = 200,
    **values: Any,
) -> Response:
    """Return a page.

    Args:
        template: Name in ``templates/pages``, without ``.html.j2``.
        caller: Who is signed in; None: nobody.
        values: What the template shows.
    """
    context: Context = request.app.state.context
    nonce = secrets.token_urlsafe(16)
    secret = request.cookies.get(SESSION_COOKIE if caller else FORM_COOKIE)
    new_secret = None if caller or secret else secrets.token_urlsafe(32)
    text = (
        _environment()
        .get_template(f"{template}.html.j2")
        .render(
            values
            | {
                "viewer": caller,
                "lab": context.services.settings,
                "nonce": nonce,
                "csrf": csrf_token(secret or new_secret or ""),
                "navigation": _navigation(caller, request.url.path),
                "notice": _NOTICES.get(request.query_params.get("done", ""), ""),
                "now": context.services.clock.now(),
            }
        )
    )
    text = text.replace(
        f">{_NONE}</td>", f" data-none>{_NONE}</td>"
    )  # phones leave out what is not there
    answer = HTMLResponse(
        status_code=status,
        headers={
            "Content-Security-Policy": policy(nonce),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",  # addresses of shared pages are secrets
        },
    )
    _fill(request, answer, text.encode())
    if new_secret:
        set_cookie(request, answer, FORM_COOKIE, new_secret)
    return answer


def _fill(request: Request, answer: Response, body: bytes) -> None:
    """Give an answer its body, compressed where the client takes that."""
    answer.headers["Vary"] = "Accept-Encoding"
    if "gzip" in request.headers.get("accept-encoding", ""):
        answer.headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, _QUICK, mtime=0)
    answer.body = body
    answer.headers["Content-Length"] = str(len(body))


def policy(nonce: str) -> str:
    """Return the Content-Security-Policy of a page: no script, style or eval but its files."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def set_cookie(request: Request, answer: Response, name: str, value: str) -> None:
    """Set a cookie that scripts can't read, and that only pages get."""
    answer.set_cookie(
        name, value, path="/ui", httponly=True, samesite="lax", secure=is_secure(request)
    )


def is_secure(request: Request) -> bool:
    """Return whether browsers reach this server by TLS."""
    context: Context = request.app.state.context
    return request.url.scheme == "https" or context.services.public_url.startswith("https:")


def see_other(path: str, done: str = "") -> Response:
    """Send the browser to another page after a form.

    Args:
        done: Which sentence of `_NOTICES` it shows.
    """
    joint = "&" if "?" in path else "?"
    return RedirectResponse(path + (f"{joint}done={done}" if done else ""), 303)


async def problem_page(request: Request, answer: ProblemAnswer) -> Response:
    """Return an error as a page, with what to do about it."""
    found = json.loads(bytes(answer.body))
    reading = request.method == "GET"
    back = getattr(request.state, "next_page", None)
    if back is None:
        back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        back = back if reading else _page_above(request)
    caller = await _caller_of(request, answer)
    typed: Mapping[str, str] = getattr(request.state, "typed", {})
    shown = page(
        request,
        "problem",
        caller,
        status=answer.status_code,
        problem=found,
        email=getattr(request.state, "email", ""),
        typed=typed,
        back=back,
        reading=reading,
    )
    for name in ("retry-after", "www-authenticate"):
        if name in answer.headers:
            shown.headers[name] = answer.headers[name]
    return shown


async def _caller_of(request: Request, answer: ProblemAnswer) -> Caller | None:
    """Return who is signed in; None: nobody, or the error is about that.

    A page that does not exist has no route that finds it out.
    """
    caller: Caller | None = getattr(request.state, "caller", None)
    if caller is not None or answer.status_code != 404 or SESSION_COOKIE not in request.cookies:
        return caller
    try:
        return await browser_caller(request)
    except EdgeyardError:
        return None


def _page_above(request: Request) -> str:
    """Return the page that a form is most likely on: the nearest one above its address."""
    path: str = request.scope["path"]
    while path.startswith("/ui/"):
        scope = {**request.scope, "method": "GET", "path": path}
        if any(each.matches(scope)[0] is Match.FULL for each in request.app.router.routes):
            return quote(path)
        path = path.rpartition("/")[0]
    return "/ui"


@cache
def _has_simulator() -> bool:
    return bool(installed(_SIMULATOR))


_has_special = re.compile("[&<>'\"]").search
"""Finds a character that HTML escapes."""


class _CodeGenerator(CodeGenerator):
    """Makes templates escape what they show by `_Environment.html_text`."""

    def _output_child_pre(self, node: Expr, frame: Frame, finalize: Any) -> None:
        if frame.eval_ctx.volatile or not frame.eval_ctx.autoescape or finalize.src is not None:
            super()._output_child_pre(node, frame, finalize)
        else:
            self.write("environment.html_text(")


class _Environment(jinja2.Environment):
    """Escapes most values in a fraction of the time: a long table has thousands of them."""

    code_generator_class = _CodeGenerator

    @staticmethod
    def html_text(value: object) -> str:
        """Return a value as HTML: as `markupsafe.escape`, but what needs no escaping is no new
        object."""
        if type(value) is str and not _has_special(value):
            return value
        if type(value) is Markup:
            return value
        if type(value) is int:
            return str(value)
        return escape(value)


@cache
def _environment() -> jinja2.Environment:
    environment = _Environment(
        loader=jinja2.PackageLoader("edgeyard.templates", "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,  # each page would look at the files of its templates
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["asset"] = assets.url
    environment.globals["has_simulator"] = _has_simulator()
    environment.globals["options_of"] = options_of
    environment.filters.update(
        words=words,
        state=state,
        name_of=name_of,
        type_words=type_words,
        unit_words=unit_words,
        measured=measured,
        numbers_in_words=numbers_in_words,
        generation_text=generation_text,
        plain=plain,
        capitalized=capitalized,
        when=when,
        duration=duration,
        number=number,
        percent=percent,
        size=size,
        concurrency_sentence=concurrency_sentence,
        load_sentence=load_sentence,
        soak_sentence=soak_sentence,
        energy_sentence=energy_sentence,
        path=_path,
        merged=lambda pairs, more: {**pairs, **more},
        query=lambda pairs: urlencode([(k, v) for k, v in pairs.items() if v not in (None, "")]),
    )
    return environment


def _path(text: object) -> str:
    """Return a text as a part of an address."""
    part = str(text)
    return part if _is_plain_part(part) else quote(part, safe="")


_is_plain_part = re.compile(r"[\w.~-]+", re.ASCII).fullmatch
"""Whether nothing of a part of an address has to be quoted."""


def page_number(text: str) -> int:
    """Return the number of a page that an address states; 1 where it states none."""
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,5}", text) else 1


def items_of_page(items: Sequence[_T], number: int, size: int) -> tuple[Sequence[_T], int]:
    """Return the items that a page shows, and the number of the last page.

    Args:
        items: Those of all pages, in their order.
        number: Of the page, from 1 on.
        size: Items of one page.
    """
    return items[size * (number - 1) : size * number], max(1, -(-len(items) // size))


_NONE = "–"
"""Stands where a table has nothing to show."""


def words(text: object, limit: int = MAX_TEXT) -> Markup | str:
    """Return a text of somebody for HTML: as `plain`, in its own direction of writing."""
    if type(text) is str and len(text) <= limit and text.isascii() and text.isprintable():
        return text
    shown = plain(text, limit)
    if shown.isascii() or shown == _NONE:  # no letters of another direction
        return shown
    return Markup(f"<bdi>{escape(shown)}</bdi>")


@lru_cache(maxsize=64)
def state(word: str) -> Markup:
    """Return a state or a verdict as HTML; the style sheet colours it by its class."""
    shown = escape(str(word))
    return Markup(f'<span class="state {shown}">{shown}</span>')


def name_of(benchmark: shapes.ListedBenchmark) -> Markup:
    """Return the link to the page of a benchmark: its name, otherwise its id."""
    benchmark_id = benchmark.benchmark_id
    shown = escape(words(benchmark.name or benchmark_id, 80))
    return Markup(f'<a href="/ui/benchmarks/{quote(benchmark_id, safe="")}">{shown}</a>')


def plain(text: object, limit: int = MAX_TEXT) -> str:
    """Return a text of somebody, cut.

    Control characters, which could hide or reorder what stands beside it, are shown as ``�``.
    """
    whole = "" if text is None else str(text).replace("\r\n", "\n")  # forms send both
    cut = whole[:limit] + ("…" if len(whole) > limit else "")
    if cut.isprintable():  # none of the categories below; most are, and tables have thousands
        return cut
    return "".join(
        "\N{REPLACEMENT CHARACTER}"
        if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Co") and each not in "\n\t"
        else each
        for each in cut
    )


def capitalized(text: str) -> str:
    """Return a text with a capital letter at its beginning; all others stay as they are."""
    return text[:1].upper() + text[1:]


def type_words(benchmark_type: object) -> str:
    """Return what a type of benchmark measures; the name of a type that an engine declares."""
    return _TYPE_WORDS.get(str(benchmark_type), str(benchmark_type))


def unit_words(unit: str) -> str:
    """Return what the numbers of a scorer are, by its unit."""
    return _UNIT_WORDS.get(unit, unit)


def type_text(benchmark_type: str) -> str:
    """Return a type of benchmark and what it measures; a type that an engine declares alone."""
    measures = type_words(benchmark_type)
    return benchmark_type if measures == benchmark_type else f"{benchmark_type}: {measures}"


@lru_cache(maxsize=4096)  # pages that are open show the same times again and again
def when(time: datetime | None, missing: str = "–") -> Markup | str:
    """Return a time in UTC, with its zone, as a ``<time>``."""
    if time is None:
        return missing
    text = time_text(time)
    return Markup(f'<time datetime="{text[:10]}T{text[11:19]}Z">{text}</time>')


def duration(seconds: float | None) -> str:
    """Return a duration for people: the two largest of its units."""
    if seconds is None:
        return "–"
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def number(value: float | None, unit: str = "") -> str:
    """Return a number with four significant digits; – where there is none."""
    if value is None:
        return "–"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{text} {unit}" if unit else text


def percent(value: float | None) -> str:
    """Return a share, 0-1, in per cent; – where there is none."""
    return "–" if value is None else number(100 * value, "%")


def size(value: float | None) -> str:
    """Return a size in the unit that fits; – where there is none."""
    if value is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.4g} {unit}"
