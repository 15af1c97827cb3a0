"""Webhooks: where messages to users are posted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class WebhookFormat(StrEnum):
    """What a webhook is posted."""

    EDGEYARD = "edgeyard"  # all that is known of the event, for programs
    SLACK = "slack"  # a text for people, as Slack's incoming webhooks take it
    MATTERMOST = "mattermost"  # a text for people, in Markdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """The URL to which messages to a user are posted.

    Attributes:
        salt: Its secret is derived from this and from a key that is stored elsewhere.
        last_error: Why the last delivery failed; "" if it succeeded.
        made_by: ``token_id`` of the token that set it.
    """

    user_id: str
    url: str
    salt: str
    created_at: datetime
    format: WebhookFormat = WebhookFormat.EDGEYARD
    last_error: str = ""
    made_by: str | None = None
