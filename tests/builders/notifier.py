"""A notifier as a server has it, on a test's store and clock."""

from __future__ import annotations

from collections.abc import Callable

from edgeyard.benchmark_api.fetch import AddressRules
from edgeyard.benchmark_api.mail import MailSender, MailSettings
from edgeyard.benchmark_api.messages import Messages
from edgeyard.benchmark_api.webhooks import WebhookKeys, WebhookSender
from edgeyard.scheduler.engine.metrics import Observe
from edgeyard.scheduler.engine.notify import Notifier, Outbound
from edgeyard.scheduler.model.subscriptions import Channel
from edgeyard.scheduler.ports import Clock, Store

KEYS = WebhookKeys(b"k" * 32)
PUBLIC_URL = "http://edgeyard.test"


def notifier_of(
    store: Store,
    clock: Clock,
    observe: Observe = lambda name, value, labels: None,
    *,
    post: WebhookSender | None = None,
    mail: MailSettings | None = None,
    mail_timeout_s: float = 10.0,
    per_day: Callable[[Channel], int] = lambda channel: 1000,
    max_wait_s: float = 60.0,
) -> Notifier:
    """Return one that posts to this machine, and sends mail by the given server."""
    messages = Messages(PUBLIC_URL, lambda: "Test lab")
    return Notifier(
        store,
        Outbound(
            post=post or WebhookSender(AddressRules(["127.0.0.1"])),
            sign=KEYS.sign,
            write_chat=messages.chat,
            mail=MailSender(lambda: mail, messages, timeout_s=mail_timeout_s),
        ),
        clock,
        observe,
        PUBLIC_URL,
        per_day=per_day,
        max_wait_s=max_wait_s,
    )
