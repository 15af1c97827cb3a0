"""Webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import delete, select, update

from edgeyard.errors import NotFound
from edgeyard.scheduler.model.subscriptions import Channel
from edgeyard.scheduler.model.webhooks import Webhook, WebhookFormat
from edgeyard.scheduler.ports import Webhooks
from edgeyard.scheduler.store.rows import Row, flat_row
from edgeyard.scheduler.store.tables import deliveries, subscriptions, webhooks
from edgeyard.scheduler.store.transaction import Transaction

_WEBHOOKS = select(webhooks).order_by(webhooks.c.user_id)


class SqlWebhooks(Webhooks):
    """`Webhooks` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def put(self, webhook: Webhook) -> None:
        self._tx.replace(webhooks, flat_row(webhook))

    def remove(self, user_id: str) -> None:
        by_webhook = Channel.WEBHOOK.value
        self._tx.run(
            delete(deliveries).where(
                deliveries.c.user_id == user_id,
                deliveries.c.channel == by_webhook,
                deliveries.c.next_at.is_not(None),
            )
        )
        self._tx.run(
            delete(subscriptions).where(
                subscriptions.c.user_id == user_id, subscriptions.c.channel == by_webhook
            )
        )
        self._tx.run(delete(webhooks).where(webhooks.c.user_id == user_id))

    def of(self, user_id: str) -> Webhook:
        row = self._tx.row(select(webhooks).where(webhooks.c.user_id == user_id))
        if row is None:
            raise NotFound("webhook", user_id)
        return _webhook(row)

    def all(self) -> Sequence[Webhook]:
        return [_webhook(row) for row in self._tx.rows(_WEBHOOKS)]

    def set_last_error(self, user_id: str, last_error: str) -> None:
        self._tx.run(
            update(webhooks)
            .where(webhooks.c.user_id == user_id, webhooks.c.last_error != last_error)
            .values(last_error=last_error)
        )


def _webhook(row: Row) -> Webhook:
    values = cast("dict[str, Any]", dict(row))
    return Webhook(**{**values, "format": WebhookFormat(values["format"])})
