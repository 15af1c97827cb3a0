"""The repository of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.acts import Act, ActFilter
from edgeyard.scheduler.model.event import Event


class Log(Protocol):
    """Stores events, and answers under idempotency keys."""

    def append(self, event: Event) -> None:
        """Add an event; the commit numbers it, and reads of this unit of work do not see it."""
        ...

    def events(self, *, after: int, limit: int, benchmark_id: str | None = None) -> Sequence[Event]:
        """Return events with numbers above ``after``, in order."""
        ...

    def last_seq(self) -> int:
        """Return the number of the newest event; 0 if there never was one."""
        ...

    def acts(
        self, which: ActFilter, *, limit: int, before: int | None = None, after: int | None = None
    ) -> Sequence[Act]:
        """Return records of the log of acts.

        Args:
            which: Which ones.
            limit: At most so many.
            before: Newest first, of those with lower numbers; None: from the newest on.
            after: In order, of those with higher numbers, instead.
        """
        ...

    def count_failed_sign_in(self, address: str, minute: datetime, door: str) -> None:
        """Count a failed sign-in in the record of its address and minute."""
        ...

    def put_answer(
        self, key: str, user_id: str, body_sha256: str, answer: Mapping[str, object]
    ) -> None:
        """Store the answer to a request under its idempotency key.

        Raises:
            Conflict: The key was used within a day, with any body.
        """
        ...

    def answer(self, key: str, user_id: str) -> tuple[str, Mapping[str, object]] | None:
        """Return hash of the body and answer if the key was used within a day."""
        ...
