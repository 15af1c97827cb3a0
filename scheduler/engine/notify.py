"""Reports outcomes of benchmarks to their users' webhooks, models' states to operators': each once.

The event log is followed from the last event that each webhook has seen. Events that its owner is
to know become rows in the store in the same transaction, so that neither a crash nor a restart
loses or doubles them. A receiver may still get a delivery twice if its answer was lost; both have
the same id.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from edgeyard.errors import EdgeyardError, NotFound, RunFailed, UrlRefused
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.engine.metrics import Observe
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.event_types import EVENT_TYPES
from edgeyard.scheduler.model.registered_models import ModelState
from edgeyard.scheduler.model.strict_json import time_to_json
from edgeyard.scheduler.model.users import Role
from edgeyard.scheduler.model.webhooks import Delivery, Webhook
from edgeyard.scheduler.ports import Clock, Store, UnitOfWork, WebhookPost

logger = logging.getLogger(__name__)

BACK_OFF_S = (10.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 3 * 3600.0, 6 * 3600.0, 12 * 3600.0)
"""Waits between the tries: ten in a day, then a delivery is given up."""

_BATCH = 1000
_AT_ONCE = 50
"""Deliveries to one user before the log is read again."""

SENDERS = 8
"""Users who are sent deliveries at the same time: a receiver that does not answer holds one thread
for the time-out of a request, and then waits for its back-off."""

MAX_DELIVERY_WAIT_S = 1.0
"""Maximum wait of one reading of the log for the deliveries that it has begun."""

_SEEN_EVERY = 10_000
"""Events of others after which it is stored that they were seen."""

_OF_BENCHMARKS = "benchmark."
_OF_MODELS = "model.state"
_REPORTED_STATES = frozenset({ModelState.SHADOW, ModelState.ACTIVE, ModelState.RETIRED})
"""A new candidate changes nothing, and may come every day."""

Sign = Callable[[Webhook, bytes, datetime], Mapping[str, str]]
"""Headers that prove to the receiver who sends the body, and when."""


def message_type(event: Event) -> str | None:
    """Return the type under which an event is sent to its benchmark's owner; None: it is not."""
    kind = event.kind
    if kind == "benchmark.status":
        again = event.data.get("retry") is True
        kind = f"{_OF_BENCHMARKS}{'requeued' if again else event.data.get('status')}"
    return kind if kind.startswith(_OF_BENCHMARKS) and _is_sent(kind) else None


def _is_sent(kind: str) -> bool:
    return kind in EVENT_TYPES and EVENT_TYPES[kind].sent


def is_for_operators(event: Event) -> bool:
    """Return whether all operators are sent an event: a model was promoted or rolled back."""
    is_reported = event.kind == _OF_MODELS and event.data.get("state") in _REPORTED_STATES
    return is_reported and _is_sent(event.kind)


class Notifier:
    """Follows the log and makes the deliveries, those of each user in turn by one thread.

    Args:
        max_wait_s: How long `run` waits for the deliveries that it has begun.
        executor: Makes the deliveries; None: `SENDERS` threads.
    """

    def __init__(
        self,
        store: Store,
        post: WebhookPost,
        sign: Sign,
        clock: Clock,
        observe: Observe,
        public_url: str,
        *,
        max_wait_s: float = MAX_DELIVERY_WAIT_S,
        executor: Executor | None = None,
    ) -> None:
        self._store = store
        self._post = post
        self._sign = sign
        self._clock = clock
        self._observe = observe
        self._public_url = public_url
        self._max_wait_s = max_wait_s
        self._read_up_to = 0
        self._closing = threading.Event()
        self._senders = executor or ThreadPoolExecutor(SENDERS, "edgeyard-webhook")
        self._sending: dict[str, Future[None]] = {}

    def run(self) -> None:
        """Read what is new in the log, then begin the deliveries that are due. One thread."""
        self._follow()
        self._deliver()

    def close(self) -> None:
        """Give up what is being sent; it is sent again after the next start."""
        self._closing.set()
        self._senders.shutdown(wait=False, cancel_futures=True)

    def _follow(self) -> None:
        while True:
            with self._store.read() as uow:
                hooks = {hook.user_id: hook for hook in uow.webhooks.all()}
                if not hooks:
                    return
                seen = min(hook.seen_seq for hook in hooks.values())
                events = uow.log.events(after=max(seen, self._read_up_to), limit=_BATCH)
                operators = _operators(uow, hooks) if any(map(is_for_operators, events)) else ()
            messages = [
                (event, kind, event.user_id or "")
                for event in events
                if (hook := hooks.get(event.user_id or "")) is not None
                and event.seq > hook.seen_seq
                and (kind := message_type(event)) is not None
            ]
            messages += [
                (event, event.kind, user_id)
                for event in filter(is_for_operators, events)
                for user_id in operators
                if event.seq > hooks[user_id].seen_seq
            ]
            if not events:
                return
            last = events[-1].seq
            if messages or last >= seen + _SEEN_EVERY:
                self._store.transact(partial(self._add_deliveries, messages, last))
            self._read_up_to = last
            if len(events) < _BATCH:
                return

    def _add_deliveries(
        self, messages: Sequence[tuple[Event, str, str]], last: int, uow: UnitOfWork
    ) -> None:
        for event, kind, user_id in messages:
            uow.webhooks.add_delivery(self._delivery(event, kind, user_id))
        uow.webhooks.set_seen(last)

    def _delivery(self, event: Event, kind: str, user_id: str) -> Delivery:
        page = (
            f"models/{event.data.get('model')}"
            if is_for_operators(event)
            else f"benchmarks/{event.benchmark_id}"
        )
        body = {
            "id": f"evt-{event.seq}",
            "type": kind,
            "text": EVENT_TYPES[kind].text,
            "at": time_to_json(event.at),
            "benchmark_id": event.benchmark_id,
            "url": f"{self._public_url}/v1/{page}",
            "data": dict(event.data),
        }
        return Delivery(
            event_seq=event.seq,
            user_id=user_id,
            body=json.dumps(body, allow_nan=False),
            tries=0,
            next_at=self._clock.now(),
        )

    def _deliver(self) -> None:
        with self._store.read() as uow:
            due = uow.webhooks.due_users(self._clock.now())
        self._sending = {
            user_id: future for user_id, future in self._sending.items() if not future.done()
        }
        for user_id in due:
            if user_id not in self._sending:
                self._sending[user_id] = self._senders.submit(self._guarded, user_id)
        wait(self._sending.values(), self._max_wait_s)

    def _guarded(self, user_id: str) -> None:
        try:
            self._deliver_to(user_id)
        except EdgeyardError as error:
            logger.warning(
                "deliveries put off",
                extra={"event": "webhook.put_off", "user_id": user_id, "reason": str(error)},
            )
        except Exception:
            logger.exception("deliveries broke", extra={"event": "webhook.broke"})

    def _deliver_to(self, user_id: str) -> None:
        with self._store.read() as uow:
            due = uow.webhooks.due(user_id, self._clock.now(), limit=_AT_ONCE)
        for delivery in due:
            # What does not answer is not asked again for each of its deliveries.
            if self._closing.is_set() or not self._one(delivery):
                return

    def _one(self, delivery: Delivery) -> bool:
        """Try one; whether it was made."""
        with self._store.read() as uow:
            try:
                hook = uow.webhooks.of(delivery.user_id)
            except NotFound:
                return True  # it was removed meanwhile, with its deliveries
        error = self._sent(hook, delivery.body.encode())

        def note(uow: UnitOfWork) -> int:
            uow.webhooks.set_last_error(delivery.user_id, error)
            if not error:
                uow.webhooks.remove_delivery(delivery.event_seq, delivery.user_id)
                return 0
            now = self._clock.now()
            wait_s = BACK_OFF_S[min(delivery.tries, len(BACK_OFF_S) - 1)]
            return uow.webhooks.postpone(
                delivery.user_id,
                now,
                now + timedelta(seconds=wait_s),
                max_tries=len(BACK_OFF_S) + 1,
            )

        dropped = self._store.transact(note)
        self._observe("webhook_deliveries_total", 1, {"result": "failed" if error else "delivered"})
        if dropped:
            self._observe("webhook_deliveries_total", dropped, {"result": "given_up"})
        if error:
            logger.warning(
                "webhook not delivered",
                extra={
                    "event": "webhook.failed",
                    "user_id": delivery.user_id,
                    "event_seq": delivery.event_seq,
                    "tries": delivery.tries + 1,
                    "given_up": dropped,
                    "reason": error,
                },
            )
        return not error

    def _sent(self, hook: Webhook, body: bytes) -> str:
        """Return why it could not be sent; "" when it was."""
        try:
            failpoint("webhook:before")
            status = self._post.post(
                hook.url, body, self._sign(hook, body, self._clock.now()), self._closing.is_set
            )
            failpoint("webhook:after")
        except UrlRefused as error:
            return error.errors[0].reason
        except RunFailed as error:
            return error.sentence
        return "" if 200 <= status < 300 else f"it answered {status}"


def _operators(uow: UnitOfWork, user_ids: Iterable[str]) -> Sequence[str]:
    """Return those of these users who are operators."""
    found = []
    for user_id in user_ids:
        with suppress(NotFound):
            user = uow.accounts.user(user_id)
            if user.role is Role.OPERATOR and not user.disabled:
                found.append(user_id)
    return found
