"""Webhooks and deliveries to them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Where a user wants to be told what became of their benchmarks.

    Attributes:
        salt: Its secret is made of this and of a key that is not stored here.
        seen_seq: Events up to this one have been looked at for it.
        trouble: What was wrong with the last delivery; "" when nothing was.
    """

    user_id: str
    url: str
    salt: str
    created_at: datetime
    seen_seq: int
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event that is still to be told to its owner's webhook.

    Attributes:
        body: JSON, as it is sent and signed.
        tries: That failed so far.
        next_at: Not before.
    """

    event_seq: int
    user_id: str
    body: str
    tries: int
    next_at: datetime
