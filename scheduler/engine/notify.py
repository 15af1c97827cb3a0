"""Sends messages about events to the users that subscribed to them, each message once.

The event log is followed from the last event that was processed. The messages to subscribers
become rows in the store in the same transaction, so that neither a crash nor a restart loses or
doubles them; the rows remain as the log of what was sent. A receiver may still get a message twice
if its answer was lost; both have the same id.

A message is not sent if its user may no longer see what it is about: that is checked when a
message is made, and again before each try.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from urllib.parse import quote, urlencode, urlsplit

from edgeyard.errors import EdgeyardError, NotFound, RunFailed, UrlRefused
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.engine.metrics import Observe
from edgeyard.scheduler.model.checks import CHECK_TAG
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.event_types import EVENT_TYPES
from edgeyard.scheduler.model.registered_models import ModelState
from edgeyard.scheduler.model.series import SeriesKey, is_series_id
from edgeyard.scheduler.model.strict_json import time_to_json
from edgeyard.scheduler.model.subscriptions import (
    LIMIT_MESSAGE,
    Channel,
    Delivery,
    DeliveryState,
    Subscription,
    Topic,
    may_receive,
)
from edgeyard.scheduler.model.users import User
from edgeyard.scheduler.model.webhooks import Webhook, WebhookFormat
from edgeyard.scheduler.ports import Clock, MailSend, Sent, Store, UnitOfWork, WebhookPost

logger = logging.getLogger(__name__)

BACK_OFF_S = (10.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 3 * 3600.0, 6 * 3600.0, 12 * 3600.0)
"""Waits between the tries: ten in a day, then a message is given up."""

_BATCH = 1000
_AT_ONCE = 50
"""Messages to one user before the log is read again."""

_TURN_S = 2.0
"""Time of a thread for one receiver, after which others have their turn."""

_WAIT = (408, 425, 429)
"""Answers that ask to try again later."""

SENDERS: Mapping[Channel, int] = {Channel.WEBHOOK: 8, Channel.MAIL: 2}
"""Users who are sent messages at the same time: a receiver that does not answer holds one thread
for the time-out of a request, and then waits for its back-off. Channels do not share threads, so
that a mail server that hangs delays no webhook."""

MAX_DELIVERY_WAIT_S = 1.0
"""Maximum wait of one reading of the log for the messages that it has begun to send."""

_SEEN_EVERY = 10_000
"""Events without a subscriber after which it is stored that they were processed."""

_OF_BENCHMARKS, _OF_ALERTS, _OF_BOARDS = "benchmark.", "alert.", "board."
_OF_MODELS = "model.state"
_REPORTED_STATES = frozenset({ModelState.SHADOW, ModelState.ACTIVE, ModelState.RETIRED})
"""A new candidate changes nothing, and may come every day."""

_NOT_SENT = ("before", "after")
"""Data of events that only the log of acts has."""

Sign = Callable[[Webhook, bytes, datetime], Mapping[str, str]]
"""Headers that prove to the receiver who sends the body, and when."""

WriteChat = Callable[[WebhookFormat, Mapping[str, object]], bytes]
"""Writes what happened as the body that a chat service takes."""

MessagesPerDay = Callable[[Channel], int]
"""Maximum number of messages that a user is sent in a day (UTC) by a channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """The ways by which messages are sent.

    Attributes:
        post: Posts to webhooks.
        sign: Signs what is posted.
        write_chat: Writes the bodies of webhooks whose format is that of a chat service.
        mail: Sends mail.
    """

    post: WebhookPost
    sign: Sign
    write_chat: WriteChat
    mail: MailSend


def message_type(event: Event) -> str | None:
    """Return the type under which an event is sent to subscribers; None: it is not."""
    kind = event.kind
    if kind == "benchmark.status":
        again = event.data.get("retry") is True
        kind = f"{_OF_BENCHMARKS}{'requeued' if again else event.data.get('status')}"
    if kind == _OF_MODELS and event.data.get("state") not in _REPORTED_STATES:
        return None
    return kind if kind in EVENT_TYPES and EVENT_TYPES[kind].sent else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """An event that is sent, with what subscriptions name.

    Attributes:
        owner_id: Owner of the benchmark or alert that it is about; None: it is about the lab.
        series: Lineage and id of the series that it is about.
    """

    event: Event
    kind: str
    owner_id: str | None
    campaign_id: str | None
    series: frozenset[str]
    target_uid: str | None

    @property
    def topics(self) -> Iterator[tuple[Topic, str]]:
        """Yield what subscriptions to it are about."""
        for topic, about in (
            (Topic.USER, self.owner_id),
            (Topic.CAMPAIGN, self.campaign_id),
            *((Topic.SERIES, each) for each in self.series),
            (Topic.BOARD, self.target_uid),
        ):
            if about is not None:
                yield topic, about
        yield Topic.LAB, ""


class _Subscriptions:
    """All subscriptions, by what they are about: a message is compared with its own alone."""

    def __init__(self, found: Sequence[Subscription]) -> None:
        self._about: dict[tuple[Topic, str], list[tuple[int, Subscription]]] = {}
        for place, each in enumerate(found):
            about = "" if each.topic is Topic.LAB else each.about
            self._about.setdefault((each.topic, about), []).append((place, each))

    def of(self, message: _Message) -> list[Subscription]:
        """Return those that want a message, in the order in which they were found."""
        found = {
            place: each
            for topic in message.topics
            for place, each in self._about.get(topic, ())
            if message.event.seq > each.since_seq and each.wants(message.kind)
        }
        return [found[place] for place in sorted(found)]


class Notifier:
    """Follows the log and sends the messages, those of a user by a channel in turn by one thread.

    Args:
        per_day: See `MessagesPerDay`.
        max_wait_s: How long `run` waits for the messages that it has begun to send.
        executor: Sends the messages; None: `SENDERS` threads.
    """

    def __init__(
        self,
        store: Store,
        outbound: Outbound,
        clock: Clock,
        observe: Observe,
        public_url: str,
        *,
        per_day: MessagesPerDay,
        max_wait_s: float = MAX_DELIVERY_WAIT_S,
        executor: Executor | None = None,
    ) -> None:
        self._store = store
        self._outbound = outbound
        self._clock = clock
        self._observe = observe
        self._public_url = public_url
        self._per_day = per_day
        self._max_wait_s = max_wait_s
        self._read_up_to = 0
        self._closing = threading.Event()
        self._senders: Mapping[Channel, Executor] = {
            channel: executor or ThreadPoolExecutor(count, f"edgeyard-{channel.value}")
            for channel, count in SENDERS.items()
        }
        self._sending: dict[tuple[str, Channel], Future[None]] = {}

    def run(self) -> None:
        """Read what is new in the log, then begin to send the messages that are due. One thread."""
        self._follow()
        self._deliver()

    def close(self) -> None:
        """Give up what is being sent; it is sent again after the next start."""
        self._closing.set()
        for each in self._senders.values():
            each.shutdown(wait=False, cancel_futures=True)

    def _follow(self) -> None:
        while True:
            with self._store.read() as uow:
                seen = uow.subscriptions.seen_seq()
                events = uow.log.events(after=max(seen, self._read_up_to), limit=_BATCH)
                sent = [(each, kind) for each in events if (kind := message_type(each))]
                subscriptions = uow.subscriptions.all() if sent else ()
                messages = _messages(uow, sent) if subscriptions else ()
            if not events:
                return
            by_topic = _Subscriptions(subscriptions)
            wanted = [(message, each) for message in messages for each in by_topic.of(message)]
            last = events[-1].seq
            if wanted or last >= seen + _SEEN_EVERY:
                self._store.transact(partial(self._add_deliveries, wanted, last))
            self._read_up_to = last
            if len(events) < _BATCH:
                return

    def _add_deliveries(
        self, wanted: Sequence[tuple[_Message, Subscription]], last: int, uow: UnitOfWork
    ) -> None:
        now = self._clock.now()
        day = now.replace(hour=0, minute=0, second=0, microsecond=0)
        users: dict[str, User | None] = {}
        added: set[str] = set()
        counts: dict[tuple[str, Channel], int] = {}
        for message, subscription in wanted:
            user_id, channel = subscription.user_id, subscription.channel
            if user_id not in users:
                users[user_id] = _user(uow, user_id)
            made = self._delivery(message, subscription, now)
            if made.delivery_id in added or not _may_receive(users[user_id], made):
                continue
            added.add(made.delivery_id)
            key = (user_id, channel)
            if key not in counts:
                counts[key] = uow.deliveries.count(user_id, channel, day)
            uow.deliveries.add(self._limited(made, counts[key], day))
            counts[key] += 1
        uow.subscriptions.set_seen_seq(last)

    def _delivery(self, message: _Message, subscription: Subscription, now: datetime) -> Delivery:
        event, kind = message.event, message.kind
        thing = _thing(message)
        body = {
            "id": f"evt-{event.seq}",
            "type": kind,
            "text": EVENT_TYPES[kind].text,
            "at": time_to_json(event.at),
            "benchmark_id": event.benchmark_id,
            "url": f"{self._public_url}/v1/{thing}",
            "page": f"{self._public_url}/ui/{thing if thing != _NO_THING else ''}".rstrip("/"),
            "series_page": self._series_page(message),
            "data": {name: each for name, each in event.data.items() if name not in _NOT_SENT},
        }
        user_id, channel = subscription.user_id, subscription.channel
        return Delivery(
            delivery_id=f"{event.seq}-{channel.value}-{user_id}",
            event_seq=event.seq,
            user_id=user_id,
            subscription_id=subscription.subscription_id,
            channel=channel,
            kind=kind,
            benchmark_id=event.benchmark_id,
            owner_id=message.owner_id,
            for_operators=subscription.topic is Topic.LAB,
            body=json.dumps(body, allow_nan=False),
            created_at=now,
            next_at=now,
        )

    def _series_page(self, message: _Message) -> str | None:
        """Return the page of the series that an alert is of; None: it is no alert."""
        if not message.kind.startswith(_OF_ALERTS):
            return None
        data = message.event.data
        names = {"series": "lineage", "target_uid": "target_uid", "runtime": "runtime"}
        query = {name: data[of] for name, of in names.items() if data.get(of)}
        return f"{self._public_url}/ui/history?{urlencode(query)}"

    def _limited(self, made: Delivery, count: int, day: datetime) -> Delivery:
        """Return a message as the limit of the day leaves it.

        Args:
            made: The message.
            count: Messages to its user by its channel on this day so far.
            day: Its beginning.
        """
        limit = self._per_day(made.channel)
        if count < limit:
            return made
        if count > limit:
            return replace(
                made,
                state=DeliveryState.LIMITED,
                next_at=None,
                ended_at=made.created_at,
                error=f"{limit} messages were sent on this day",
            )
        first = json.loads(made.body)
        until = time_to_json(day + timedelta(days=1))
        body = {
            "id": first["id"],
            "type": LIMIT_MESSAGE,
            "text": f"{limit} messages were sent today; nothing more is sent until {until}",
            "at": time_to_json(made.created_at),
            "benchmark_id": None,
            "url": f"{self._public_url}/v1/deliveries",
            "page": f"{self._public_url}/ui/subscriptions",
            "series_page": None,
            "data": {"limit": limit, "until": until, "first_not_sent": first["text"]},
        }
        return replace(
            made, kind=LIMIT_MESSAGE, benchmark_id=None, body=json.dumps(body, allow_nan=False)
        )

    def _deliver(self) -> None:
        with self._store.read() as uow:
            due = uow.deliveries.due_recipients(self._clock.now())
        self._sending = {key: future for key, future in self._sending.items() if not future.done()}
        for key in due:
            if key not in self._sending:
                self._sending[key] = self._senders[key[1]].submit(self._guarded, *key)
        wait(self._sending.values(), self._max_wait_s)

    def _guarded(self, user_id: str, channel: Channel) -> None:
        try:
            self._deliver_to(user_id, channel)
        except EdgeyardError as error:
            logger.warning(
                "messages put off",
                extra={"event": "message.put_off", "user_id": user_id, "reason": str(error)},
            )
        except Exception:
            logger.exception("messages broke", extra={"event": "message.broke"})

    def _deliver_to(self, user_id: str, channel: Channel) -> None:
        with self._store.read() as uow:
            due = uow.deliveries.due(user_id, channel, self._clock.now(), limit=_AT_ONCE)
        until_s = self._clock.monotonic_s() + _TURN_S
        for delivery in due:
            # What does not answer is not asked again for each of its messages.
            if self._closing.is_set() or not self._one(delivery):
                return
            if self._clock.monotonic_s() > until_s:
                return  # a receiver that is slow does not keep the thread from others

    def _one(self, delivery: Delivery) -> bool:
        """Try to send one message; return whether the next one may be tried at once."""
        user_id, channel = delivery.user_id, delivery.channel
        with self._store.read() as uow:
            may = _may_receive(_user(uow, user_id), delivery)
            hook = _webhook(uow, user_id) if channel is Channel.WEBHOOK else None
            address = _address(uow, user_id) if channel is Channel.MAIL else ""
        if not may:
            self._withhold(delivery)
            return True
        if channel is Channel.MAIL:
            recipient = address or "nobody"
            sent = self._mailed(address, delivery)
        elif hook is None:
            return True  # it was removed meanwhile, with its messages
        else:
            recipient = urlsplit(hook.url).hostname or "webhook"
            sent = self._posted(hook, delivery)

        def note(uow: UnitOfWork) -> int:
            now = self._clock.now()
            if channel is Channel.WEBHOOK:
                uow.webhooks.set_last_error(user_id, sent.error)
            if not sent.error or sent.final:
                state = DeliveryState.FAILED if sent.error else DeliveryState.SENT
                uow.deliveries.end(
                    delivery.delivery_id, state, now, recipient=recipient, error=sent.error
                )
                return int(sent.final)
            wait_s = BACK_OFF_S[min(delivery.tries, len(BACK_OFF_S) - 1)]
            return uow.deliveries.postpone(
                user_id,
                channel,
                now,
                now + timedelta(seconds=wait_s),
                max_tries=len(BACK_OFF_S) + 1,
                recipient=recipient,
                error=sent.error,
                only=delivery.delivery_id if sent.refused else None,
            )

        given_up = self._store.transact(note)
        result = "failed" if sent.error else "delivered"
        self._observe("messages_total", 1, {"channel": channel.value, "result": result})
        if given_up:
            labels = {"channel": channel.value, "result": "given_up"}
            self._observe("messages_total", given_up, labels)
        if sent.error:
            logger.warning(
                "message not sent",
                extra={
                    "event": "message.failed",
                    "channel": channel.value,
                    "user_id": user_id,
                    "event_seq": delivery.event_seq,
                    "tries": delivery.tries + 1,
                    "given_up": given_up,
                    "reason": sent.error,
                },
            )
        return not sent.error or sent.final or sent.refused

    def _withhold(self, delivery: Delivery) -> None:
        self._store.transact(
            lambda uow: uow.deliveries.end(
                delivery.delivery_id,
                DeliveryState.WITHHELD,
                self._clock.now(),
                error="the user may no longer see what the message is about",
            )
        )

    def _mailed(self, address: str, delivery: Delivery) -> Sent:
        if not address:
            return Sent("the account has no e-mail address", final=True)
        failpoint("mail:before")
        sent = self._outbound.mail.send(
            address, delivery.delivery_id, json.loads(delivery.body), self._closing.is_set
        )
        failpoint("mail:after")
        return sent

    def _posted(self, hook: Webhook, delivery: Delivery) -> Sent:
        body = delivery.body.encode()
        if hook.format is not WebhookFormat.EDGEYARD:
            body = self._outbound.write_chat(hook.format, json.loads(delivery.body))
        headers = self._outbound.sign(hook, body, self._clock.now())
        try:
            failpoint("webhook:before")
            status = self._outbound.post.post(hook.url, body, headers, self._closing.is_set)
            failpoint("webhook:after")
        except UrlRefused as error:
            return Sent(error.errors[0].reason)
        except RunFailed as error:
            return Sent(error.sentence)
        if 200 <= status < 300:
            return Sent()
        # 408 and 429 ask to wait, and 5xx are troubles of the receiver: with all messages
        return Sent(f"it answered {status}", refused=400 <= status < 500 and status not in _WAIT)


_NO_THING = "events"


def _thing(message: _Message) -> str:
    """Return the path of what a message is about, below that of the API and of the pages."""
    data, kind = message.event.data, message.kind
    for beginning, collection, thing_id in (
        (_OF_BENCHMARKS, "benchmarks", message.event.benchmark_id),
        (_OF_ALERTS, "alerts", data.get("change_id")),
        (_OF_BOARDS, "boards", message.target_uid),
        (_OF_MODELS, "models", data.get("model")),
    ):
        if kind.startswith(beginning) and thing_id:
            return f"{collection}/{quote(str(thing_id))}"
    return _NO_THING


def _messages(uow: UnitOfWork, sent: Sequence[tuple[Event, str]]) -> Sequence[_Message]:
    """Return events with what subscriptions name: the campaign and the series of a benchmark.

    Runs of checks, which confirm an alert too, are not reported one by one.
    """
    ids = {each.benchmark_id for each, _ in sent if each.benchmark_id is not None}
    benchmarks = {each.benchmark_id: each for each in uow.benchmarks.get_many(sorted(ids))}
    messages = []
    for event, kind in sent:
        benchmark = benchmarks.get(event.benchmark_id or "")
        if benchmark is not None and CHECK_TAG in benchmark.description.tags:
            continue  # a check has a result of its own, and a dozen of runs
        of_somebody = kind.startswith((_OF_BENCHMARKS, _OF_ALERTS))
        lineages, series_ids = [event.data.get("lineage")], [event.data.get("series_id")]
        if benchmark is not None:
            lineages.append(benchmark.series)
            if (key := SeriesKey.of(benchmark)) is not None:
                series_ids.append(key.series_id)
        # A subscription to an id is not for a lineage that somebody named like it.
        names = [*series_ids, *(each for each in lineages if not is_series_id(str(each)))]
        about_board = kind.startswith((_OF_BOARDS, _OF_ALERTS))
        target_uid = event.data.get("target_uid") if about_board else None
        messages.append(
            _Message(
                event=event,
                kind=kind,
                owner_id=(event.user_id or "") if of_somebody else None,
                campaign_id=None if benchmark is None else benchmark.campaign_id,
                series=frozenset(str(each) for each in names if each),
                target_uid=None if target_uid is None else str(target_uid),
            )
        )
    return messages


def _user(uow: UnitOfWork, user_id: str) -> User | None:
    try:
        return uow.accounts.user(user_id)
    except NotFound:
        return None


def _may_receive(user: User | None, delivery: Delivery) -> bool:
    return user is not None and may_receive(
        user, delivery.owner_id, for_operators=delivery.for_operators
    )


def _webhook(uow: UnitOfWork, user_id: str) -> Webhook | None:
    try:
        return uow.webhooks.of(user_id)
    except NotFound:
        return None


def _address(uow: UnitOfWork, user_id: str) -> str:
    try:
        return uow.accounts.login(user_id).email
    except NotFound:
        return ""
