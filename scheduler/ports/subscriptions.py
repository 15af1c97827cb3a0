"""The repositories of subscriptions, of the messages that they lead to, and of what is reported."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.lab_conditions import LabCondition
from edgeyard.scheduler.model.subscriptions import Channel, Delivery, DeliveryState, Subscription


class Subscriptions(Protocol):
    """Stores subscriptions, and how far the log of events was read for them."""

    def add(self, subscription: Subscription) -> None:
        """Store a subscription.

        Raises:
            Conflict: The user has one of the same topic, thing and channel.
        """
        ...

    def remove(self, subscription_id: str, user_id: str | None) -> Subscription:
        """Remove a subscription and return it; what is to be sent already is sent.

        Args:
            subscription_id: Which.
            user_id: Whose it has to be; None: anybody's.

        Raises:
            NotFound: There is none.
        """
        ...

    def get(self, subscription_id: str, user_id: str | None) -> Subscription:
        """Return a subscription; arguments and errors as of `remove`."""
        ...

    def all(self, user_id: str | None = None) -> Sequence[Subscription]:
        """Return the subscriptions of a user, or of all, oldest first."""
        ...

    def seen_seq(self) -> int:
        """Return the number of the last event that was processed for all subscriptions."""
        ...

    def set_seen_seq(self, seq: int) -> None:
        """Record that the events up to this number were processed for all subscriptions."""
        ...


class Deliveries(Protocol):
    """Stores the messages to users, those that wait and those that have ended."""

    def add(self, delivery: Delivery) -> None:
        """Store a delivery unless there is one of its id."""
        ...

    def count(self, user_id: str, channel: Channel, since: datetime) -> int:
        """Return how many of a user's messages were made since then, without limited ones."""
        ...

    def waiting(self, user_id: str, channel: Channel) -> int:
        """Return how many of a user's messages wait for a channel."""
        ...

    def due_recipients(self, now: datetime) -> Sequence[tuple[str, Channel]]:
        """Return users with messages that are due, each with the channel."""
        ...

    def due(
        self, user_id: str, channel: Channel, now: datetime, *, limit: int
    ) -> Sequence[Delivery]:
        """Return a user's messages that are due by a channel, oldest event first."""
        ...

    def end(
        self,
        delivery_id: str,
        state: DeliveryState,
        now: datetime,
        *,
        recipient: str = "",
        error: str = "",
    ) -> None:
        """Record how a message ended; a try is counted where ``recipient`` names one."""
        ...

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
        """Count a failed try for all of a user's messages that are due, and postpone them.

        Args:
            user_id: Whose.
            channel: By which they are sent.
            now: The time.
            until: When they are tried again.
            max_tries: Failed tries after which a message is given up.
            recipient: Where the message went.
            error: Why it was not sent.
            only: The id of the only message that was refused; None: nothing can be sent.

        Returns:
            How many were given up after ``max_tries`` failed tries.
        """
        ...

    def page(
        self, *, user_id: str | None, state: DeliveryState | None, limit: int, cursor: str | None
    ) -> tuple[Sequence[Delivery], str | None]:
        """Return messages, newest first, and the cursor of the next page; None: there is none.

        Args:
            user_id: Whose; None: everybody's.
            state: Only those; None: all.
            limit: Maximum number.
            cursor: As an earlier page returned it; None: begin with the newest.

        Raises:
            InvalidInput: The cursor is malformed.
        """
        ...


class LabConditions(Protocol):
    """Stores the conditions of the lab that were reported and have not ended."""

    def all(self) -> Sequence[LabCondition]:
        """Return them, by name."""
        ...

    def put(self, condition: LabCondition) -> None:
        """Store one, replacing an earlier one of its name."""
        ...

    def remove(self, name: str) -> None:
        """Forget one, if it is there."""
        ...
