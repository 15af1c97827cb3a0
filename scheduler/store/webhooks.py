"""Webhooks, and the deliveries that are still to be made."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import bindparam, delete, func, select, update

from edgeyard.errors import NotFound
from edgeyard.scheduler.model.webhooks import Delivery, Webhook
from edgeyard.scheduler.ports import Webhooks
from edgeyard.scheduler.store.rows import flat_row
from edgeyard.scheduler.store.tables import deliveries, webhooks
from edgeyard.scheduler.store.transaction import Transaction

_WEBHOOKS = select(webhooks).order_by(webhooks.c.user_id)
_DUE_USERS = select(deliveries.c.user_id).where(deliveries.c.next_at <= bindparam("now")).distinct()


class SqlWebhooks(Webhooks):
    """`Webhooks` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def put(self, webhook: Webhook) -> None:
        self._tx.replace(webhooks, flat_row(webhook))

    def remove(self, user_id: str) -> None:
        self._tx.run(delete(deliveries).where(deliveries.c.user_id == user_id))
        self._tx.run(delete(webhooks).where(webhooks.c.user_id == user_id))

    def of(self, user_id: str) -> Webhook:
        row = self._tx.row(select(webhooks).where(webhooks.c.user_id == user_id))
        if row is None:
            raise NotFound("webhook", user_id)
        return Webhook(**cast("dict[str, Any]", dict(row)))

    def all(self) -> Sequence[Webhook]:
        rows = self._tx.rows(_WEBHOOKS)
        return [Webhook(**cast("dict[str, Any]", dict(row))) for row in rows]

    def set_seen(self, seq: int) -> None:
        self._tx.run(update(webhooks).where(webhooks.c.seen_seq < seq).values(seen_seq=seq))

    def set_last_error(self, user_id: str, last_error: str) -> None:
        self._tx.run(
            update(webhooks)
            .where(webhooks.c.user_id == user_id, webhooks.c.last_error != last_error)
            .values(last_error=last_error)
        )

    def add_delivery(self, delivery: Delivery) -> None:
        self._tx.insert(deliveries, flat_row(delivery))

    def due_users(self, now: datetime) -> Sequence[str]:
        rows = self._tx.rows(_DUE_USERS, {"now": now})
        return sorted(str(row["user_id"]) for row in rows)

    def due(self, user_id: str, now: datetime, *, limit: int) -> Sequence[Delivery]:
        rows = self._tx.rows(
            select(deliveries)
            .where(deliveries.c.user_id == user_id, deliveries.c.next_at <= now)
            .order_by(deliveries.c.event_seq)
            .limit(limit)
        )
        return [Delivery(**cast("dict[str, Any]", dict(row))) for row in rows]

    def postpone(self, user_id: str, now: datetime, until: datetime, *, max_tries: int) -> int:
        self._tx.run(
            update(deliveries)
            .where(deliveries.c.user_id == user_id, deliveries.c.next_at <= now)
            .values(tries=deliveries.c.tries + 1, next_at=until)
        )
        dropped = self._tx.run(
            delete(deliveries).where(
                deliveries.c.user_id == user_id, deliveries.c.tries >= max_tries
            )
        )
        return dropped.rowcount

    def remove_delivery(self, event_seq: int, user_id: str) -> None:
        self._tx.run(
            delete(deliveries).where(
                deliveries.c.event_seq == event_seq, deliveries.c.user_id == user_id
            )
        )

    def count_deliveries(self, user_id: str) -> int:
        return cast(
            int,
            self._tx.value(
                select(func.count()).select_from(deliveries).where(deliveries.c.user_id == user_id)
            ),
        )
