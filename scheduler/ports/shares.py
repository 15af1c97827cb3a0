"""The repository of links that show something to everybody who has them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.shares import Share


class Shares(Protocol):
    """Stores links. What has ended is as if it were not there."""

    def add(self, share: Share) -> None:
        """Store a new link, and forget those that have ended by its time."""
        ...

    def by_hash(self, sha256: str, now: datetime) -> Share:
        """Return the link whose secret has this hash.

        Raises:
            NotFound: There is none, or it has ended.
        """
        ...

    def of(self, user_id: str | None, now: datetime) -> Sequence[Share]:
        """Return the links of a user, or of all, newest first."""
        ...

    def remove(self, share_id: str, user_id: str | None, now: datetime) -> Share:
        """Remove a link and return it.

        Args:
            share_id: Which.
            user_id: Whose it has to be; None: anybody's.
            now: What has ended by then is not there.

        Raises:
            NotFound: There is none, or it has ended.
        """
        ...
