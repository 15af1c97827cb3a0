"""Subscriptions to messages, and the log of these messages."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import BrowserUser, Caller
from edgeyard.benchmark_api.pages.forms import Form, SignedInForm, json_body
from edgeyard.benchmark_api.pages.page import page, see_other
from edgeyard.benchmark_api.routes import subscriptions
from edgeyard.benchmark_api.routes.context import Context, Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.errors import EdgeyardError, Forbidden, InvalidInput, NotFound
from edgeyard.scheduler.model.subscriptions import Channel, Topic, alert_types

router = PageRouter()

SHOWN = 50
"""Messages on the page."""

_TOPICS = {
    Topic.USER: "your benchmarks and alerts (or those of a user)",
    Topic.CAMPAIGN: "a campaign",
    Topic.SERIES: "a series",
    Topic.BOARD: "a board",
    Topic.LAB: "the lab",
}


@router.get("/ui/subscriptions")
def listed(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """Subscriptions, and the newest messages."""
    return _listed(request, caller, context, Form())


@router.post("/ui/subscriptions")
def add(request: Request, form: SignedInForm, caller: BrowserUser, context: Ctx) -> Response:
    """Subscribe; what is refused stays as it was typed, with the reason."""
    wanted: dict[str, object] = {"topic": form.text("topic"), "channel": form.text("channel")}
    if form.text("only") == "alerts":
        wanted["events"] = list(alert_types())
    if about := form.text("about"):
        wanted["about"] = about
    try:
        subscriptions.add(json_body(**wanted), caller, context)
    except (InvalidInput, NotFound, Forbidden) as error:
        return _listed(request, caller, context, form, _mistakes(error))
    return see_other("/ui/subscriptions", "subscribed")


@router.post("/ui/subscriptions/{subscription_id}/remove")
def remove(form: SignedInForm, subscription_id: str, caller: BrowserUser, context: Ctx) -> Response:
    """Remove a subscription."""
    subscriptions.remove(subscription_id, caller, context)
    return see_other("/ui/subscriptions", "unsubscribed")


def channels(context: Context) -> list[str]:
    """Return the ways by which this server sends messages."""
    mail = context.services.settings.smtp_host is not None
    return [each.value for each in Channel if each is not Channel.MAIL or mail]


def _listed(
    request: Request,
    caller: Caller,
    context: Context,
    typed: Form,
    wrong: Mapping[str, str] | None = None,
) -> Response:
    topics = {
        topic.value: words
        for topic, words in _TOPICS.items()
        if topic is not Topic.LAB or caller.is_operator
    }
    return page(
        request,
        "subscriptions",
        caller,
        status=422 if wrong else 200,
        subscriptions=subscriptions.list_subscriptions(caller, context).content.items,
        messages=subscriptions.list_deliveries(caller, context, limit=SHOWN).content.items,
        topics=topics,
        channels=channels(context),
        typed=typed,
        wrong=wrong or {},
    )


def _mistakes(error: EdgeyardError) -> dict[str, str]:
    """Return what is wrong, by the field that it stands next to."""
    if not isinstance(error, InvalidInput):
        return {"topic" if isinstance(error, Forbidden) else "about": str(error)}
    return {
        each.pointer.strip("/"): each.reason + (f": {each.accepted}" if each.accepted else "")
        for each in error.errors
    }
