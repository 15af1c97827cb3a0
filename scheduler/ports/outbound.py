"""Requests to addresses that users name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from edgeyard.scheduler.model.files import StoredFile


class UrlFetcher(Protocol):
    """Brings what a user's URL names into the file store, within the address rules."""

    def fetch(self, url: str, limit_bytes: int, cancelled: Callable[[], bool]) -> StoredFile:
        """Download it; bounded in time, however slowly the other side sends.

        Args:
            cancelled: Whether nobody wants the file any more; asked a few times a second.

        Raises:
            UrlRefused: The address rules forbid it, or a redirect of it.
            RunFailed: It could not be had: ``user_input`` where the user must act, ``timeout``
                where it took too long as a whole, or ``network``.
            TooLarge: Over the limit.
            Cancelled: As ``cancelled`` says.
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
        """Send it once; the status of the answer. Bounded in time; follows no redirect.

        Raises:
            UrlRefused: The address rules forbid it.
            RunFailed: There was no answer.
            Cancelled: As ``cancelled`` says, which is asked a few times a second.
        """
        ...
