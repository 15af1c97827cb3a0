"""The repository of webhooks and their deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.webhooks import Delivery, Webhook


class Webhooks(Protocol):
    """Stores webhooks and pending deliveries."""

    def put(self, webhook: Webhook) -> None:
        """Set a user's webhook, replacing an earlier one."""
        ...

    def remove(self, user_id: str) -> None:
        """Remove a user's webhook and its pending deliveries, if there are any."""
        ...

    def of(self, user_id: str) -> Webhook:
        """Return a user's webhook.

        Raises:
            NotFound: The user has none.
        """
        ...

    def all(self) -> Sequence[Webhook]:
        """Return all webhooks, in order of user."""
        ...

    def set_seen(self, seq: int) -> None:
        """Record that the events up to this number were processed for all webhooks."""
        ...

    def set_last_error(self, user_id: str, last_error: str) -> None:
        """Record why the last delivery failed; "" if it succeeded."""
        ...

    def add_delivery(self, delivery: Delivery) -> None:
        """Store a delivery unless its user has one of the same event."""
        ...

    def due_users(self, now: datetime) -> Sequence[str]:
        """Return users with deliveries that are due."""
        ...

    def due(self, user_id: str, now: datetime, *, limit: int) -> Sequence[Delivery]:
        """Return a user's deliveries that are due, oldest event first."""
        ...

    def postpone(self, user_id: str, now: datetime, until: datetime, *, max_tries: int) -> int:
        """Count a failed try for all of a user's deliveries that are due, and postpone them.

        Returns:
            How many were dropped after ``max_tries`` failed tries.
        """
        ...

    def remove_delivery(self, event_seq: int, user_id: str) -> None:
        """Remove a delivery that was made to a user."""
        ...

    def count_deliveries(self, user_id: str) -> int:
        """Return the number of a user's pending deliveries."""
        ...
