"""Webhooks and deliveries to them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """The URL to which events of a user's benchmarks are posted.

    Attributes:
        salt: Its secret is derived from this and from a key that is stored elsewhere.
        seen_seq: Number of the last event that was processed for it.
        last_error: Why the last delivery failed; "" if it succeeded.
        made_by: ``token_id`` of the token that set it.
    """

    user_id: str
    url: str
    salt: str
    created_at: datetime
    seen_seq: int
    last_error: str = ""
    made_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event that is still to be posted to its owner's webhook.

    Attributes:
        body: JSON, as it is sent and signed.
        tries: Failed tries so far.
        next_at: Earliest time of the next try.
    """

    event_seq: int
    user_id: str
    body: str
    tries: int
    next_at: datetime
