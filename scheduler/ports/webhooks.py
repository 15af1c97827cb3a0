"""The repository of webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgeyard.scheduler.model.webhooks import Webhook


class Webhooks(Protocol):
    """Stores webhooks."""

    def put(self, webhook: Webhook) -> None:
        """Set a user's webhook, replacing an earlier one."""
        ...

    def remove(self, user_id: str) -> None:
        """Remove a user's webhook, the subscriptions by it, and the messages that wait for it."""
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

    def set_last_error(self, user_id: str, last_error: str) -> None:
        """Record why the last delivery failed; "" if it succeeded."""
        ...
