"""Subscriptions of users to events, and the messages that these lead to."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache

from edgeyard.scheduler.model.event_types import EVENT_TYPES
from edgeyard.scheduler.model.users import Role, User


class Topic(StrEnum):
    """What a subscription is about."""

    USER = "user"  # a user's benchmarks and alerts, mostly one's own
    CAMPAIGN = "campaign"  # the benchmarks of a campaign
    SERIES = "series"  # the benchmarks and alerts of a lineage, or of one of its series
    BOARD = "board"  # the state of a board, and alerts on it
    LAB = "lab"  # boards, servers, models and plugins; for operators


class Channel(StrEnum):
    """The way by which a message is sent."""

    MAIL = "mail"  # to the e-mail address of the account
    WEBHOOK = "webhook"  # to the webhook of the account


class DeliveryState(StrEnum):
    """Where a message is."""

    WAITING = "waiting"  # not sent yet, or tried without success and tried again
    SENT = "sent"
    FAILED = "failed"  # given up
    LIMITED = "limited"  # not sent: the user has had as many as they get in a day
    WITHHELD = "withheld"  # not sent: the user may no longer see what it is about


LIMIT_MESSAGE = "message.limit"
"""Type of the message that states that a user is sent nothing more until the next day."""

_FOR_SUBSCRIBERS = frozenset({"board.drained", "board.resumed"})
"""Acts of operators: subscriptions to boards are sent these, and those to the lab are not."""

_OF_TOPIC: Mapping[Topic, tuple[str, ...]] = {
    Topic.USER: ("benchmark.", "alert."),
    Topic.CAMPAIGN: ("benchmark.",),
    Topic.SERIES: ("benchmark.", "alert."),
    Topic.BOARD: ("board.", "alert."),
}
"""Prefixes of a topic's event types; `Topic.LAB` has the types that no user owns."""


@cache  # each new event is compared with each subscription
def event_types_of(topic: Topic) -> tuple[str, ...]:
    """Return the types of events that a subscription to this topic can be sent, by name."""
    sent = [kind for kind, each in EVENT_TYPES.items() if each.sent]
    if topic is Topic.LAB:
        private = ("benchmark.", "alert.")
        return tuple(
            kind for kind in sent if not kind.startswith(private) and kind not in _FOR_SUBSCRIBERS
        )
    return tuple(kind for kind in sent if kind.startswith(_OF_TOPIC[topic]))


def alert_types() -> tuple[str, ...]:
    """Return the types of events of alerts."""
    return tuple(each for each in event_types_of(Topic.SERIES) if each.startswith("alert."))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A user's subscription to messages about events.

    Attributes:
        about: Id of the user, campaign or board; name of the lineage, or id of the series; "" for
            the lab.
        events: Types of events that are sent; (): all of `event_types_of` the topic.
        since_seq: Number of the last event before it: earlier ones are not sent.
    """

    subscription_id: str
    user_id: str
    topic: Topic
    about: str
    channel: Channel
    events: tuple[str, ...]
    created_at: datetime
    since_seq: int

    def wants(self, kind: str) -> bool:
        """Return whether it is for events of this type."""
        return kind in event_types_of(self.topic) and (not self.events or kind in self.events)


def first_subscriptions(user: User, since_seq: int, now: datetime) -> tuple[Subscription, ...]:
    """Return what a new webhook is subscribed to: the user's own things, and the operators' lab."""
    topics = [(Topic.USER, user.user_id)]
    if user.role is Role.OPERATOR:
        topics.append((Topic.LAB, ""))
    return tuple(
        Subscription(
            subscription_id=new_subscription_id(),
            user_id=user.user_id,
            topic=topic,
            about=about,
            channel=Channel.WEBHOOK,
            events=(),
            created_at=now,
            since_seq=since_seq,
        )
        for topic, about in topics
    )


def new_subscription_id() -> str:
    """Return an id that no subscription has."""
    return f"sub-{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message to a user by one channel: at most one for each event.

    Attributes:
        subscription_id: The subscription that it was made for.
        kind: Type of the message: that of its event, or `LIMIT_MESSAGE`.
        owner_id: Owner of its subject: it is sent only to this user and to operators; None: every
            user may receive it.
        for_operators: It is sent only to operators.
        body: JSON of what happened, from which the message is made; a webhook of Edgeyard's own
            format is sent and signed it as it is.
        recipient: Where the last try went: an e-mail address, or the host of a webhook; "" before
            the first.
        tries: Tries so far.
        error: Why the last try failed, or why it was not sent; "" otherwise.
        next_at: Earliest time of the next try; None: there is none.
    """

    delivery_id: str
    event_seq: int
    user_id: str
    subscription_id: str
    channel: Channel
    kind: str
    benchmark_id: str | None
    owner_id: str | None
    for_operators: bool
    body: str
    created_at: datetime
    next_at: datetime | None
    state: DeliveryState = DeliveryState.WAITING
    recipient: str = ""
    tries: int = 0
    error: str = ""
    ended_at: datetime | None = None


def may_receive(user: User, owner_id: str | None, *, for_operators: bool) -> bool:
    """Return whether a user may get messages about a thing.

    Args:
        user: As the account is now.
        owner_id: Owner of the thing; None: everybody may see it.
        for_operators: Only operators may receive them.
    """
    if user.disabled or user.role is Role.HOST:
        return False
    if user.role is Role.OPERATOR:
        return True
    return not for_operators and owner_id in (None, user.user_id)
