"""Links that show one thing to people without an account: made, listed, revoked, and opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from markupsafe import Markup

from edgeyard.benchmark_api.auth import BrowserUser, Caller
from edgeyard.benchmark_api.figures.results import comparison_figures, front_figures
from edgeyard.benchmark_api.pages.compare import unpack
from edgeyard.benchmark_api.pages.forms import SignedInForm, json_body
from edgeyard.benchmark_api.pages.page import page, see_other
from edgeyard.benchmark_api.pages.results import drawn, result_figures, stated_fields
from edgeyard.benchmark_api.pages.sign_in import limits_of
from edgeyard.benchmark_api.routes import benchmarks, campaigns, results, shares
from edgeyard.benchmark_api.routes.context import Context, Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.errors import InvalidInput, NotFound
from edgeyard.scheduler.model.benchmark import TERMINAL
from edgeyard.scheduler.model.shares import Share, ShareKind

router = PageRouter()

_NOT_SHOWN = ("user_id", "submit_time", "extra")
"""Fields of a job that a shared page leaves out: what might name users."""

_GONE = (
    "This link does not exist, was revoked, or has ended. Ask the person who sent it for a new one."
)


@router.get("/ui/shares")
def listed(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """Links, newest first."""
    return _listed(request, caller, context, None)


@router.post("/ui/shares")
def add(request: Request, form: SignedInForm, caller: BrowserUser, context: Ctx) -> Response:
    """Make a link; its address is shown on the page that answers, and never again."""
    wanted: dict[str, object] = {
        name: form.text(name)
        for name in ("benchmark_id", "campaign_id", "label")
        if form.text(name)
    }
    if packed := form.text("ids"):
        baseline, ids = form.text("baseline"), unpack(packed)
        first = [baseline] if baseline in ids else []
        wanted["benchmark_ids"] = [*first, *(each for each in ids if each not in first)]
    if days := form.text("days"):
        max_days = shares.MAX_LASTS.days
        if not (
            days.isascii() and days.isdecimal() and len(days) < 5 and 1 <= int(days) <= max_days
        ):
            raise InvalidInput.at("/days", f"{days!r} is no number of days", f"1 to {max_days}")
        wanted["expires_at"] = context.services.clock.now() + timedelta(days=int(days))
    made = shares.add(json_body(**wanted), caller, context).content
    return _listed(request, caller, context, made)


@router.post("/ui/shares/{share_id}/revoke")
def revoke(form: SignedInForm, share_id: str, caller: BrowserUser, context: Ctx) -> Response:
    """Revoke a link."""
    shares.remove(share_id, caller, context)
    return see_other("/ui/shares", "share-revoked")


@router.get("/ui/shared/{secret}")
def shared(request: Request, secret: str, context: Ctx) -> Response:
    """What a link shows: nothing may be done there, and nobody is named."""
    limits_of(request).count_address(request.scope)
    try:
        share, reader = shares.opened(secret, context)
        values = _SHOWN[share.kind](share, reader, context)
    except NotFound:
        raise NotFound("shared page", "", _GONE) from None
    return page(request, "shared", None, share=share, **values)


def _listed(
    request: Request, caller: Caller, context: Context, made: shapes.Share | None
) -> Response:
    found = shares.list_shares(caller, context).content.items
    return page(request, "shares", caller, shares=found, made=made)


def _benchmark(share: Share, reader: Caller, context: Context) -> Mapping[str, Any]:
    shown = benchmarks.show(share.benchmark_ids[0], reader, context).content
    found = results.results(shown.benchmark_id, reader, context).content
    description = {
        name: value for name, value in shown.description.items() if name not in _NOT_SHOWN
    }
    return {
        "benchmark": shown,
        "results": found,
        "figures": result_figures(found, context),
        "stated_fields": stated_fields(description),
        "ended": shown.status in TERMINAL,
    }


def _campaign(share: Share, reader: Caller, context: Context) -> Mapping[str, Any]:
    campaign = campaigns.show(share.campaign_id or "", reader, context).content
    rows = results.rows(reader, context, campaign_id=share.campaign_id).content.items
    return {"campaign": campaign, "rows": rows, "figures": comparison(rows)}


def _comparison(share: Share, reader: Caller, context: Context) -> Mapping[str, Any]:
    rows = results.rows(reader, context, benchmark_id=list(share.benchmark_ids)).content.items
    return {"rows": rows, "figures": comparison(rows)}


def comparison(rows: Sequence[shapes.ResultRow]) -> list[Markup]:
    """Return the figures that show results side by side."""
    shown = [as_json(each) for each in rows]
    return drawn([*comparison_figures(shown), *front_figures(shown)])


_SHOWN = {
    ShareKind.BENCHMARK: _benchmark,
    ShareKind.CAMPAIGN: _campaign,
    ShareKind.COMPARISON: _comparison,
}
