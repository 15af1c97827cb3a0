"""Webhooks, and the deliveries that are still to be made."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import delete, func, select, update

from edgeyard.errors import NotFound
from edgeyard.scheduler.model.webhooks import Delivery, Webhook
from edgeyard.scheduler.store.rows import flat_row
from edgeyard.scheduler.store.tables import deliveries, webhooks
from edgeyard.scheduler.store.transaction import Transaction


class SqlWebhooks:
    """`edgeyard.scheduler.ports.Webhooks` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def put(self, webhook: Webhook) -> None:
        """Set a user's, in place of the one there was."""
        self._tx.replace(webhooks, flat_row(webhook))

    def remove(self, user_id: str) -> None:
        """Drop a user's with all that was still to be told to it; no error if there is none."""
        self._tx.run(delete(deliveries).where(deliveries.c.user_id == user_id))
        self._tx.run(delete(webhooks).where(webhooks.c.user_id == user_id))

    def of(self, user_id: str) -> Webhook:
        """Raises NotFound."""
        row = self._tx.row(select(webhooks).where(webhooks.c.user_id == user_id))
        if row is None:
            raise NotFound("webhook", user_id)
        return Webhook(**cast("dict[str, Any]", dict(row)))

    def all(self) -> Sequence[Webhook]:
        """Everybody's."""
        rows = self._tx.rows(select(webhooks).order_by(webhooks.c.user_id))
        return [Webhook(**cast("dict[str, Any]", dict(row))) for row in rows]

    def set_seen(self, seq: int) -> None:
        """All events up to this one have been looked at for all of them."""
        self._tx.run(update(webhooks).where(webhooks.c.seen_seq < seq).values(seen_seq=seq))

    def set_trouble(self, user_id: str, trouble: str) -> None:
        """What was wrong with the last delivery; "" when nothing was."""
        self._tx.run(
            update(webhooks)
            .where(webhooks.c.user_id == user_id, webhooks.c.trouble != trouble)
            .values(trouble=trouble)
        )

    def add_delivery(self, delivery: Delivery) -> None:
        """Idempotent by the event."""
        self._tx.insert(deliveries, flat_row(delivery))

    def due_users(self, now: datetime) -> Sequence[str]:
        """Users who have deliveries whose time has come."""
        rows = self._tx.rows(
            select(deliveries.c.user_id).where(deliveries.c.next_at <= now).distinct()
        )
        return sorted(str(row["user_id"]) for row in rows)

    def due(self, user_id: str, now: datetime, *, limit: int) -> Sequence[Delivery]:
        """A user's deliveries whose time has come, oldest event first."""
        rows = self._tx.rows(
            select(deliveries)
            .where(deliveries.c.user_id == user_id, deliveries.c.next_at <= now)
            .order_by(deliveries.c.event_seq)
            .limit(limit)
        )
        return [Delivery(**cast("dict[str, Any]", dict(row))) for row in rows]

    def postpone(self, user_id: str, now: datetime, until: datetime, *, max_tries: int) -> int:
        """Count a failed try of all of a user's that are due, and keep them until then.

        Returns:
            How many were dropped, since they failed ``max_tries`` times.
        """
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

    def remove_delivery(self, event_seq: int) -> None:
        """It was made."""
        self._tx.run(delete(deliveries).where(deliveries.c.event_seq == event_seq))

    def count_deliveries(self, user_id: str) -> int:
        """How many are still to be made."""
        return cast(
            int,
            self._tx.value(
                select(func.count()).select_from(deliveries).where(deliveries.c.user_id == user_id)
            ),
        )


if TYPE_CHECKING:
    from edgeyard.scheduler.ports import Webhooks

    _: Webhooks = SqlWebhooks(cast(Transaction, None))
