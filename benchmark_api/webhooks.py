"""Signing and sending webhooks.

A receiver checks ``X-Edgeyard-Signature: t=<unix seconds>,v1=<hex>``: ``v1`` is the HMAC-SHA256 of
``<t>.<body>`` under the secret that was shown when the webhook was set, and ``t`` must be recent,
so that what was overheard can't be sent again later.

The database holds no secret: each is made of the server's own key, a file of the data folder, and
the webhook's salt.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from edgeyard.atomic_files import open_atomically
from edgeyard.benchmark_api.bounded_http import never
from edgeyard.benchmark_api.fetch import AddressRules, Resolver, in_time, opened, resolved
from edgeyard.scheduler.model.webhooks import Webhook

SIGNATURE = "X-Edgeyard-Signature"
KEY_FILE = "webhook.key"

_KEY_BYTES = 32
_TIMEOUT_S = 10.0
"""The whole request may take so long. A receiver takes the message and answers; its own work can
wait."""


class WebhookKeys:
    """Makes the secrets of webhooks. Thread-safe."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def of_folder(cls, data_dir: Path) -> WebhookKeys:
        """Return one with the key of a data folder, which is made at the first start."""
        path = data_dir / KEY_FILE
        if not path.exists():
            with open_atomically(path, mode=0o600, sync=True) as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
        return cls(path.read_bytes())

    def secret(self, webhook: Webhook) -> str:
        """Return what its owner was shown when it was set."""
        text = f"{webhook.user_id}\0{webhook.salt}".encode()
        digest = hmac.new(self._key, text, hashlib.sha256).digest()
        return "whsec_" + base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def sign(self, webhook: Webhook, body: bytes, at: datetime) -> Mapping[str, str]:
        """Implement `edgeyard.scheduler.engine.notify.Sign`."""
        return {SIGNATURE: signature(self.secret(webhook), body, int(at.timestamp()))}


def signature(secret: str, body: bytes, at: int) -> str:
    """Return the header's value, for a time in Unix seconds."""
    text = f"{at}.".encode() + body
    return f"t={at},v1={hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()}"


class WebhookSender:
    """Posts to users' URLs within the address rules; redirects are not followed. Thread-safe."""

    def __init__(
        self,
        rules: AddressRules,
        *,
        resolve: Resolver = resolved,
    ) -> None:
        self._rules = rules
        self._resolve = resolve

    def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        cancelled: Callable[[], bool] = never,
    ) -> int:
        """Implement `edgeyard.scheduler.ports.WebhookPost.post`; the answer's body is not read."""
        target = self._rules.check(url)
        ends_at = time.monotonic() + _TIMEOUT_S
        resolve = in_time(self._resolve, ends_at, cancelled)
        address = self._rules.addresses(target, resolve)[0]
        with opened(
            target,
            address,
            method="POST",
            headers={"Content-Type": "application/json", **headers},
            content=body,
            timeout_s=_TIMEOUT_S,
            ends_at=ends_at,
            cancelled=cancelled,
        ) as response:
            return response.status_code
