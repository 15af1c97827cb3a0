"""The repository of webhooks and their deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.webhooks import Delivery, Webhook


class Webhooks(Protocol):
    """Webhooks, and the deliveries that are still to be made."""

    def put(self, webhook: Webhook) -> None:
        """Set a user's, in place of the one there was."""
        ...

    def remove(self, user_id: str) -> None:
        """Drop a user's with all that was still to be told to it; no error if there is none."""
        ...

    def of(self, user_id: str) -> Webhook:
        """Raises NotFound."""
        ...

    def all(self) -> Sequence[Webhook]: ...

    def set_seen(self, seq: int) -> None:
        """All events up to this one have been looked at for all of them."""
        ...

    def set_trouble(self, user_id: str, trouble: str) -> None:
        """What was wrong with the last delivery; "" when nothing was."""
        ...

    def add_delivery(self, delivery: Delivery) -> None:
        """Idempotent by the event."""
        ...

    def due_users(self, now: datetime) -> Sequence[str]:
        """Users who have deliveries whose time has come."""
        ...

    def due(self, user_id: str, now: datetime, *, limit: int) -> Sequence[Delivery]:
        """A user's deliveries whose time has come, oldest event first."""
        ...

    def postpone(self, user_id: str, now: datetime, until: datetime, *, max_tries: int) -> int:
        """Count a failed try of all of a user's that are due, and keep them until then.

        Returns:
            How many were dropped, since they failed ``max_tries`` times.
        """
        ...

    def remove_delivery(self, event_seq: int) -> None:
        """It was made."""
        ...

    def count_deliveries(self, user_id: str) -> int:
        """How many are still to be made."""
        ...
