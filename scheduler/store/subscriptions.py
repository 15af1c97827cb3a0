"""Subscriptions, the messages that they lead to, and the conditions that were reported."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import bindparam, delete, func, select, update

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model.lab_conditions import LabCondition
from edgeyard.scheduler.model.subscriptions import (
    Channel,
    Delivery,
    DeliveryState,
    Subscription,
    Topic,
)
from edgeyard.scheduler.ports import Deliveries, LabConditions, Subscriptions
from edgeyard.scheduler.store.cursors import newest_page
from edgeyard.scheduler.store.rows import Row, flat_row
from edgeyard.scheduler.store.tables import (
    deliveries,
    lab_conditions,
    subscription_mark,
    subscriptions,
)
from edgeyard.scheduler.store.transaction import Transaction

_DUE = (
    select(deliveries.c.user_id, deliveries.c.channel)
    .where(deliveries.c.next_at.is_not(None), deliveries.c.next_at <= bindparam("now"))
    .distinct()
)
_CONDITIONS = select(lab_conditions).order_by(lab_conditions.c.name)
_SEEN = select(subscription_mark.c.seen_seq)


class SqlSubscriptions(Subscriptions):
    """`Subscriptions` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add(self, subscription: Subscription) -> None:
        if not self._tx.insert(subscriptions, flat_row(subscription)):
            raise Conflict("there is such a subscription already: remove it first")

    def remove(self, subscription_id: str, user_id: str | None) -> Subscription:
        found = self.get(subscription_id, user_id)
        self._tx.run(
            delete(subscriptions).where(subscriptions.c.subscription_id == subscription_id)
        )
        return found

    def get(self, subscription_id: str, user_id: str | None) -> Subscription:
        row = self._tx.row(
            select(subscriptions).where(subscriptions.c.subscription_id == subscription_id)
        )
        if row is None or user_id not in (None, row["user_id"]):
            raise NotFound("subscription", subscription_id)
        return _subscription(row)

    def all(self, user_id: str | None = None) -> Sequence[Subscription]:
        which = select(subscriptions)
        if user_id is not None:
            which = which.where(subscriptions.c.user_id == user_id)
        order = which.order_by(subscriptions.c.created_at, subscriptions.c.subscription_id)
        return [_subscription(row) for row in self._tx.rows(order)]

    def seen_seq(self) -> int:
        return cast(int, self._tx.value(_SEEN))

    def set_seen_seq(self, seq: int) -> None:
        self._tx.run(
            update(subscription_mark).where(subscription_mark.c.seen_seq < seq).values(seen_seq=seq)
        )


class SqlDeliveries(Deliveries):
    """`Deliveries` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add(self, delivery: Delivery) -> None:
        self._tx.insert(deliveries, flat_row(delivery))

    def count(self, user_id: str, channel: Channel, since: datetime) -> int:
        counted = select(func.count()).where(
            deliveries.c.user_id == user_id,
            deliveries.c.channel == channel.value,
            deliveries.c.created_at >= since,
            deliveries.c.state != DeliveryState.LIMITED.value,
        )
        return cast(int, self._tx.value(counted))

    def waiting(self, user_id: str, channel: Channel) -> int:
        counted = select(func.count()).where(
            deliveries.c.user_id == user_id,
            deliveries.c.channel == channel.value,
            deliveries.c.next_at.is_not(None),
        )
        return cast(int, self._tx.value(counted))

    def due_recipients(self, now: datetime) -> Sequence[tuple[str, Channel]]:
        rows = self._tx.rows(_DUE, {"now": now})
        return sorted((str(row["user_id"]), Channel(str(row["channel"]))) for row in rows)

    def due(
        self, user_id: str, channel: Channel, now: datetime, *, limit: int
    ) -> Sequence[Delivery]:
        rows = self._tx.rows(
            select(deliveries)
            .where(
                deliveries.c.user_id == user_id,
                deliveries.c.channel == channel.value,
                deliveries.c.next_at <= now,
            )
            .order_by(deliveries.c.event_seq)
            .limit(limit)
        )
        return [_delivery(row) for row in rows]

    def end(
        self,
        delivery_id: str,
        state: DeliveryState,
        now: datetime,
        *,
        recipient: str = "",
        error: str = "",
    ) -> None:
        tried = {"recipient": recipient, "tries": deliveries.c.tries + 1} if recipient else {}
        self._tx.run(
            update(deliveries)
            .where(deliveries.c.delivery_id == delivery_id)
            .values(state=state.value, error=error, next_at=None, ended_at=now, **tried)
        )

    def postpone(
        self,
        user_id: str,
        channel: Channel,
        now: datetime,
        until: datetime,
        *,
        max_tries: int,
        recipient: str,
        error: str,
        only: str | None = None,
    ) -> int:
        own = [deliveries.c.user_id == user_id, deliveries.c.channel == channel.value]
        if only is not None:
            own.append(deliveries.c.delivery_id == only)
        self._tx.run(
            update(deliveries)
            .where(*own, deliveries.c.next_at <= now)
            .values(tries=deliveries.c.tries + 1, next_at=until, recipient=recipient, error=error)
        )
        given_up = self._tx.run(
            update(deliveries)
            .where(*own, deliveries.c.next_at.is_not(None), deliveries.c.tries >= max_tries)
            .values(state=DeliveryState.FAILED.value, next_at=None, ended_at=now)
        )
        return given_up.rowcount

    def page(
        self, *, user_id: str | None, state: DeliveryState | None, limit: int, cursor: str | None
    ) -> tuple[Sequence[Delivery], str | None]:
        query = select(deliveries)
        if user_id is not None:
            query = query.where(deliveries.c.user_id == user_id)
        if state is not None:
            query = query.where(deliveries.c.state == state.value)
        rows, following = newest_page(self._tx, query, deliveries.c.delivery_id, limit, cursor)
        return [_delivery(row) for row in rows], following


class SqlLabConditions(LabConditions):
    """`LabConditions` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def all(self) -> Sequence[LabCondition]:
        rows = self._tx.rows(_CONDITIONS)
        return [LabCondition(**cast("dict[str, Any]", dict(row))) for row in rows]

    def put(self, condition: LabCondition) -> None:
        self._tx.replace(lab_conditions, flat_row(condition))

    def remove(self, name: str) -> None:
        self._tx.run(delete(lab_conditions).where(lab_conditions.c.name == name))


def _subscription(row: Row) -> Subscription:
    values = cast("dict[str, Any]", dict(row))
    return Subscription(
        **{
            **values,
            "topic": Topic(values["topic"]),
            "channel": Channel(values["channel"]),
        }
    )


def _delivery(row: Row) -> Delivery:
    values = cast("dict[str, Any]", dict(row))
    return Delivery(
        **{
            **values,
            "channel": Channel(values["channel"]),
            "state": DeliveryState(values["state"]),
        }
    )
