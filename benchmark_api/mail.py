"""Sends mail by SMTP: one connection for a message, within a bounded time."""

from __future__ import annotations

import re
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr, parseaddr
from pathlib import Path

from edgeyard.benchmark_api.messages import Messages, one_line
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import reason_of
from edgeyard.scheduler.model.strict_json import time_from_json
from edgeyard.scheduler.ports import MailSend, Sent

TIMEOUT_S = 30.0
"""Maximum time of a whole conversation with the mail server."""

_STEP_S = 10.0
"""Maximum time of the mail server for one answer."""

_MAX_LINE = 500  # RFC 5322 allows 998
_LOOK_S = 0.2
_PORTS = {"starttls": 587, "tls": 465, "none": 25}
_MAX_REASON = 300

_ADDRESS = re.compile(r"[^\s@<>,;:\"()\[\]\\\x00-\x20\x7f]+@[^\s@<>,;:\"()\[\]\\\x00-\x20\x7f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class MailSettings:
    """How the mail server is reached.

    Attributes:
        security: ``starttls``, ``tls`` or ``none``.
        password: "" where the server wants none.
        sender: Address, or ``Name <address>``.
        ca_file: Certificates of authorities to trust; None: those of this machine.
    """

    host: str
    port: int
    security: str
    user: str
    password: str = field(repr=False)
    sender: str
    ca_file: Path | None = None


def is_address(text: str) -> bool:
    """Return whether a text is one plain e-mail address, which can't end a header or a command."""
    return len(text) <= 254 and _ADDRESS.fullmatch(text) is not None


def mail_settings(settings: Settings) -> MailSettings | None:
    """Return how the mail server of the settings is reached; None: they name none."""
    if settings.smtp_host is None:
        return None
    password = settings.smtp_password
    return MailSettings(
        host=settings.smtp_host,
        port=settings.smtp_port or _PORTS[settings.smtp_security],
        security=settings.smtp_security,
        user=settings.smtp_user or "",
        password="" if password is None else password.get_secret_value(),
        sender=settings.smtp_from or "",
        ca_file=settings.smtp_ca_file,
    )


class MailSender(MailSend):
    """Sends messages by the mail server of the settings. Thread-safe.

    Args:
        settings: Gives the mail server; None: there is none.
        messages: Writes the texts.
        timeout_s: See `TIMEOUT_S`.
    """

    def __init__(
        self,
        settings: Callable[[], MailSettings | None],
        messages: Messages,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._settings = settings
        self._messages = messages
        self._timeout_s = timeout_s

    def send(
        self,
        address: str,
        message_id: str,
        message: Mapping[str, object],
        cancelled: Callable[[], bool],
    ) -> Sent:
        """Implement `MailSend`."""
        settings = self._settings()
        if settings is None:
            return Sent("this server sends no mail: smtp_host is not set")
        if not is_address(address):
            return Sent("mail can't be sent to the account's e-mail address", final=True)
        made = self._mail(settings, address, message_id, message)
        try:
            with connected(settings, cancelled, self._timeout_s) as server:
                server.send_message(made, parseaddr(settings.sender)[1], [address])
        except smtplib.SMTPRecipientsRefused as error:
            code, text = error.recipients[address]
            return Sent(f"the mail server refused the address: {_answer(code, text)}", code >= 500)
        except smtplib.SMTPDataError as error:
            why = (
                f"the mail server refused the message: {_answer(error.smtp_code, error.smtp_error)}"
            )
            return Sent(why, final=error.smtp_code >= 500, refused=True)
        except smtplib.SMTPNotSupportedError:
            return Sent("the mail server does not take such an address", final=True)
        except (OSError, smtplib.SMTPException, ValueError) as error:
            return Sent(trouble(error))
        return Sent()

    def _mail(
        self,
        settings: MailSettings,
        address: str,
        message_id: str,
        message: Mapping[str, object],
    ) -> EmailMessage:
        subject, text = self._messages.mail(message)
        name, sender = parseaddr(settings.sender)
        # A long id can't be folded: a line of its own would begin the subject with a blank.
        made = EmailMessage(policy=SMTP.clone(max_line_length=_MAX_LINE))
        made["From"] = formataddr((one_line(name), sender))
        made["To"] = address
        made["Subject"] = subject
        made["Date"] = format_datetime(time_from_json(str(message["at"])))
        local = re.sub(r"[^A-Za-z0-9.-]", "-", message_id)
        made["Message-ID"] = f"<{local}@{sender.rpartition('@')[2]}>"
        made["Auto-Submitted"] = "auto-generated"
        made.set_content(text)
        return made


@contextmanager
def connected(
    settings: MailSettings,
    cancelled: Callable[[], bool] = lambda: False,
    timeout_s: float = TIMEOUT_S,
) -> Iterator[smtplib.SMTP]:
    """Yield a connection to the mail server that may send: encrypted and logged in as set.

    Args:
        settings: How it is reached.
        cancelled: Returns whether to give up.
        timeout_s: Maximum time until the connection is closed, however slowly the server answers.

    Raises:
        OSError: It does not answer, in time or at all, or its certificate is not trusted.
        smtplib.SMTPException: It refuses.
    """
    context = ssl.create_default_context(cafile=settings.ca_file)
    step_s = min(_STEP_S, timeout_s)
    ends_at = time.monotonic() + timeout_s
    if settings.security == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(timeout=step_s, context=context)
    else:
        server = smtplib.SMTP(timeout=step_s)
    # smtplib checks the certificate against this name, which only its constructor sets, and its
    # constructor would connect before anybody could close the connection.
    server._host = settings.host  # type: ignore[attr-defined]
    done = threading.Event()
    guard = threading.Thread(
        target=_close_in_time, args=(server, done, ends_at, cancelled), name="edgeyard-mail-guard"
    )
    guard.start()
    try:
        code, answer = server.connect(settings.host, settings.port)
        if code != 220:
            raise smtplib.SMTPConnectError(code, answer)
        server.ehlo_or_helo_if_needed()
        if settings.security == "starttls":
            server.starttls(context=context)
            server.ehlo_or_helo_if_needed()
        if settings.user:
            server.login(settings.user, settings.password)
        yield server
        with suppress(OSError, smtplib.SMTPException):
            server.quit()
    finally:
        done.set()
        guard.join()
        server.close()


def trouble(error: Exception) -> str:
    """Return why mail could not be sent, for people; never a secret."""
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"the mail server refused smtp_user and smtp_password (code {error.smtp_code})"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"the mail server refused: {_answer(error.smtp_code, error.smtp_error)}"
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return "the mail server does not offer what smtp_security or smtp_user need"
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return "the mail server closed the connection, or did not answer in time"
    if isinstance(error, TimeoutError):
        return "the mail server did not answer in time"
    if isinstance(error, OSError):
        return f"the mail server can't be reached: {reason_of(error)}"
    return f"the mail could not be sent ({type(error).__name__})"


def _close_in_time(
    server: smtplib.SMTP,
    done: threading.Event,
    ends_at: float,
    cancelled: Callable[[], bool],
) -> None:
    """Close a connection at the end of its time: a server may send a byte now and then."""
    while not done.wait(_LOOK_S):
        is_over = cancelled() or time.monotonic() >= ends_at
        if is_over and (connection := server.sock) is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _answer(code: int, text: bytes | str) -> str:
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return one_line(f"{code} {words}", _MAX_REASON)
