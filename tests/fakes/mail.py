"""A real SMTP server on loopback: keeps the mail that it takes, and refuses as a test states."""

from __future__ import annotations

import socket
import ssl
from asyncio import AbstractServer
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session


@dataclass
class MailBox:
    """What came. ``answer`` is given to each recipient; "": it takes the mail."""

    port: int = 0
    answer: str = ""
    got: list[EmailMessage] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.answer:
            return self.answer
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        read = message_from_bytes(cast(bytes, envelope.content), policy=policy.default)
        self.got.append(read)
        self.recipients += [str(each) for each in envelope.rcpt_tos]
        self.encrypted.append(session.ssl is not None)
        return "250 taken"

    def authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        login = (data.login.decode(), data.password.decode())
        self.logins.append(login)
        return AuthResult(success=login == ("lab", "s3cret-word"))


class _Listening(Controller):
    """Serves on a socket that listens already, so that no other process takes its port."""

    def __init__(self, box: MailBox, listener: socket.socket, wanted: dict[str, Any]) -> None:
        host, port = listener.getsockname()
        # the default of 5 s is short on a machine with other work
        super().__init__(box, hostname=host, port=port, ready_timeout=60.0, **wanted)
        self._listener = listener

    def _create_server(self) -> Awaitable[AbstractServer]:
        return self.loop.create_server(self._factory_invoker, sock=self._listener)


@contextmanager
def mail_server(tls: ssl.SSLContext | None = None) -> Iterator[MailBox]:
    """Listens until the block is left; with a context it offers STARTTLS, and needs a log-in."""
    box = MailBox()
    wanted: dict[str, Any] = {}
    if tls is not None:
        wanted = {
            "tls_context": tls,
            "require_starttls": True,
            "authenticator": box.authenticate,
            "auth_required": True,
        }
    listener = socket.create_server(("127.0.0.1", 0))
    box.port = listener.getsockname()[1]
    controller = _Listening(box, listener, wanted)
    controller.start()
    try:
        yield box
    finally:
        controller.stop()


@contextmanager
def hanging_server() -> Iterator[int]:
    """Yield the port of a server that accepts connections, by its backlog, and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]
