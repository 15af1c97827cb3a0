"""The repository of checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgeyard.scheduler.model.checks import Check, CheckStatus


class Checks(Protocol):
    """Stores checks, those that run and those that have ended."""

    def add(self, check: Check) -> None:
        """Store a new check.

        Raises:
            Conflict: Its id is taken.
        """
        ...

    def save(self, check: Check) -> None:
        """Store a check again.

        Raises:
            NotFound: There is no such check.
        """
        ...

    def get(self, check_id: str) -> Check:
        """Return a check; a unit of work that writes locks it until its end.

        Raises:
            NotFound: There is no such check.
        """
        ...

    def running(self) -> Sequence[Check]:
        """Return all checks that have not ended, oldest first."""
        ...

    def count_running(self, user_id: str) -> int:
        """Return how many checks of a user have not ended."""
        ...

    def move_times(self, by_s: float) -> None:
        """Shift the beginnings of all checks that have not ended.

        The server's clock was set by ``by_s`` seconds; what is left of their budgets stays right.
        """
        ...

    def page(
        self, *, user_id: str | None, status: CheckStatus | None, limit: int, cursor: str | None
    ) -> tuple[Sequence[Check], str | None]:
        """Return checks, newest first, and the cursor of the next page; None: there is none.

        Args:
            user_id: Whose; None: everybody's.
            status: Only those; None: all.
            limit: Maximum number.
            cursor: As an earlier page returned it; None: begin with the newest.

        Raises:
            InvalidInput: The cursor is malformed.
        """
        ...
