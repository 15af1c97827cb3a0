"""Requests to addresses that users name, and mail to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from edgeyard.scheduler.model.files import StoredFile


class UrlFetcher(Protocol):
    """Downloads the file of a user's URL into the file store, within the address rules."""

    def fetch(self, url: str, limit_bytes: int, cancelled: Callable[[], bool]) -> StoredFile:
        """Download a file, within a bounded time however slowly the other side sends.

        Args:
            cancelled: Returns whether the file is no longer needed; called several times a second.

        Raises:
            UrlRefused: The address rules forbid the URL or one of its redirects.
            RunFailed: The download failed: ``user_input`` where the user must act, ``timeout``
                where it took too long as a whole, ``network`` otherwise.
            TooLarge: The file exceeds the limit.
            Cancelled: ``cancelled`` returned true.
        """
        ...


class WebhookPost(Protocol):
    """Sends a message to a user's URL, within the address rules."""

    def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        cancelled: Callable[[], bool],
    ) -> int:
        """Send the message once and return the status of the answer, whose body is not read.

        The time is bounded; redirects are not followed.

        Args:
            cancelled: Returns whether to give up; called several times a second.

        Raises:
            UrlRefused: The address rules forbid the URL.
            RunFailed: There was no answer.
            Cancelled: ``cancelled`` returned true.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sent:
    """How a try to send a message went.

    Attributes:
        error: Why it was not sent; "" if it was.
        final: Whether another try would fail, too.
        refused: Whether the receiver answered that it does not take this message: it may take
            others.
    """

    error: str = ""
    final: bool = False
    refused: bool = False


class MailSend(Protocol):
    """Sends messages to e-mail addresses."""

    def send(
        self,
        address: str,
        message_id: str,
        message: Mapping[str, object],
        cancelled: Callable[[], bool],
    ) -> Sent:
        """Try once to send a message; the time is bounded.

        Args:
            address: E-mail address of the recipient.
            message_id: The same for each try, so that mail programs show it once.
            message: What happened, as a webhook is posted it.
            cancelled: Returns whether to give up; called several times a second.
        """
        ...
