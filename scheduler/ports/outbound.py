"""Requests to addresses that users name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
