"""Subscriptions to messages, and the log of the messages that were sent, tried or held back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.routes.context import (
    Body,
    Context,
    Ctx,
    Flag,
    visible_campaign,
    visible_series,
)
from edgeyard.benchmark_api.routes.contract import Answer, Router, documented
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import SubscriptionIn, parse
from edgeyard.errors import Forbidden, InvalidInput, NotFound, QuotaExceeded
from edgeyard.scheduler.model.acts import difference
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.series import is_series_id
from edgeyard.scheduler.model.subscriptions import (
    Channel,
    DeliveryState,
    Subscription,
    Topic,
    event_types_of,
    new_subscription_id,
)
from edgeyard.scheduler.ports import BenchmarkFilter, UnitOfWork

router = Router(prefix="/v1/subscriptions", tags=["subscriptions"])
deliveries = Router(prefix="/v1/deliveries", tags=["subscriptions"])

MAX_OF_USER = 1000
"""Subscriptions that a user may have."""

_PAGE = 500


@router.get("")
def list_subscriptions(
    caller: Submitter, context: Ctx, user_id: str | None = None
) -> Answer[shapes.Subscriptions]:
    """Your subscriptions, oldest first; operators see everybody's, or those of a user."""
    with context.services.store.read() as uow:
        found = uow.subscriptions.all(_whose(caller, user_id))
    return Answer(shapes.Subscriptions(items=[views.subscription(each) for each in found]))


@router.post(
    "",
    status_code=201,
    responses=documented(200, shapes.Subscription),
    openapi_extra=accepts("SubscriptionIn"),
)
def add(
    body: Body, caller: Submitter, context: Ctx, dry_run: Flag = False
) -> Answer[shapes.Subscription]:
    """Subscribe to messages about a user, a campaign, a series, a board or the lab.

    Events from now on are sent, each once by a channel, however many subscriptions are for it; and
    only what you may see at that time. Others' benchmarks and the lab are for operators. With
    `dry_run` nothing is stored: only what would be refused is.
    """
    request = parse(SubscriptionIn, body.tree())
    services = context.services
    topic, channel = Topic(request.topic), Channel(request.channel)
    about = request.about or (caller.user_id if topic is Topic.USER else "")
    _check_events(topic, request.events)
    if topic is Topic.LAB and not caller.is_operator:
        raise Forbidden("only operators are sent messages about the lab")
    if topic is Topic.BOARD:
        _check_board(context, about)
    if channel is Channel.MAIL and services.settings.smtp_host is None:
        reason = "this server sends no mail: its operator has not set smtp_host"
        raise InvalidInput.at("/channel", reason, "webhook")
    now = services.clock.now()

    def checked(uow: UnitOfWork) -> Subscription:
        _check_visible(uow, caller, topic, about)
        _check_channel(uow, caller, channel)
        count = len(uow.subscriptions.all(caller.user_id)) + 1
        if count > MAX_OF_USER:
            advice = "remove subscriptions that you do not need"
            whose = f"user {caller.user_id}"
            raise QuotaExceeded("max_subscriptions", MAX_OF_USER, count, whose, advice)
        return Subscription(
            subscription_id=new_subscription_id(),
            user_id=caller.user_id,
            topic=topic,
            about=about,
            channel=channel,
            events=tuple(dict.fromkeys(request.events)),
            created_at=now,
            since_seq=uow.log.last_seq(),
        )

    def store(uow: UnitOfWork) -> Subscription:
        made = checked(uow)
        uow.subscriptions.add(made)
        uow.log.append(_event(context, caller, "subscription.added", None, made))
        return made

    if dry_run:
        with services.store.read() as uow:
            return Answer(views.subscription(checked(uow)))
    return Answer(views.subscription(services.store.transact(store)), 201)


@router.delete("/{subscription_id}", status_code=204)
def remove(subscription_id: str, caller: Submitter, context: Ctx) -> Response:
    """Remove a subscription; messages that wait already are still sent."""

    def forget(uow: UnitOfWork) -> None:
        user_id = None if caller.is_operator else caller.user_id
        gone = uow.subscriptions.remove(subscription_id, user_id)
        uow.log.append(_event(context, caller, "subscription.removed", gone, None))

    context.services.store.transact(forget, frees_space=True)
    return Response(status_code=204)


@deliveries.get("")
def list_deliveries(
    caller: Submitter,
    context: Ctx,
    user_id: str | None = None,
    state: DeliveryState | None = None,
    limit: Annotated[int, Query(ge=1, le=_PAGE)] = 100,
    cursor: str | None = None,
) -> Answer[shapes.Deliveries]:
    """The log of messages to you, newest first; operators see everybody's, or those to a user.

    It states what was sent, where to, when, and how the last try went. Messages that have ended are
    kept as long as events (`retain_events_s`).
    """
    with context.services.store.read() as uow:
        found, following = uow.deliveries.page(
            user_id=_whose(caller, user_id), state=state, limit=limit, cursor=cursor
        )
    return Answer(
        shapes.Deliveries(items=[views.delivery(each) for each in found], next_cursor=following)
    )


def _whose(caller: Caller, user_id: str | None) -> str | None:
    if user_id is not None and not caller.may_see(user_id):
        raise NotFound("user", user_id)
    return user_id if caller.is_operator else caller.user_id


def _check_events(topic: Topic, events: list[str]) -> None:
    known = event_types_of(topic)
    for position, each in enumerate(events):
        if each not in known:
            raise InvalidInput.at(
                f"/events/{position}", f"{topic.value} has no such event", ", ".join(known)
            )


def _check_board(context: Context, target_uid: str) -> None:
    boards = context.services.engine.boards()
    if all(each.board.target_uid != target_uid for each in boards):
        raise NotFound("board", target_uid)


def _check_visible(uow: UnitOfWork, caller: Caller, topic: Topic, about: str) -> None:
    """Refuse a subscription to what the caller may not see, or what does not exist."""
    if topic is Topic.USER:
        if not caller.may_see(about):
            raise NotFound("user", about)
        uow.accounts.user(about)
    elif topic is Topic.CAMPAIGN:
        visible_campaign(uow, about, caller)
    elif topic is Topic.SERIES and is_series_id(about):
        visible_series(uow, about, caller)
    elif topic is Topic.SERIES:
        user_id = None if caller.is_operator else caller.user_id
        which = BenchmarkFilter(user_id=user_id, series=about)
        if uow.benchmarks.page(which, limit=1, cursor=None)[0]:
            return
        if all(each.series != about for each in uow.schedules.all(user_id) if each.active):
            raise NotFound("series", about)


def _check_channel(uow: UnitOfWork, caller: Caller, channel: Channel) -> None:
    """Refuse a channel that leads nowhere."""
    try:
        if channel is Channel.MAIL:
            uow.accounts.login(caller.user_id)
        else:
            uow.webhooks.of(caller.user_id)
    except NotFound:
        reason, accepted = _MISSING[channel]
        raise InvalidInput.at("/channel", reason, accepted) from None


_MISSING: Mapping[Channel, tuple[str, str]] = {
    Channel.MAIL: (
        "your account has no e-mail address",
        "an operator sets one: edgeyard users update ID --email ADDRESS",
    ),
    Channel.WEBHOOK: (
        "you have no webhook",
        "set one first: edgeyard users update ID --webhook-url URL",
    ),
}


def _event(
    context: Context,
    caller: Caller,
    kind: str,
    before: Subscription | None,
    after: Subscription | None,
) -> Event:
    subject = after or before
    return Event(
        at=context.services.clock.now(),
        kind=kind,
        user_id=caller.user_id,
        data={
            "subscription_id": "" if subject is None else subject.subscription_id,
            **difference(before, after),
        },
    )
