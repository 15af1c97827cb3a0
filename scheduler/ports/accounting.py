"""The repository of what was used, for reports by month."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.accounting import BoardMonth, UsageBy, UsageRow
from edgeyard.scheduler.model.accounts import ChargeKind
from edgeyard.scheduler.model.boards import BoardStateChange


class Accounting(Protocol):
    """Adds up charges and idle times, and stores what boards did: their times and states."""

    def usage(self, by: UsageBy, month: str, *, user_id: str | None = None) -> Sequence[UsageRow]:
        """Return what was used in a month, in the order of keys, the unknown one last.

        Args:
            by: What the rows are.
            month: As `edgeyard.scheduler.model.accounting.month_of` writes it.
            user_id: Only of this user; None: of everybody.
        """
        ...

    def board_s_by_user(
        self, kind: ChargeKind, target_uid: str, since: datetime
    ) -> Mapping[str, float]:
        """Return for how long each user's attempts of a kind ran on a board, seconds.

        Args:
            kind: Neither benchmarks nor checks: nobody submits such attempts.
            target_uid: The board.
            since: Only attempts that ended from then on.
        """
        ...

    def add_board_months(self, times: Sequence[BoardMonth]) -> None:
        """Add seconds to what is stored of these boards and months."""
        ...

    def board_months(self, month: str) -> Sequence[BoardMonth]:
        """Return what the boards' time was spent on in a month, in the order of boards."""
        ...

    def months_of_board(self, target_uid: str, *, limit: int) -> Sequence[BoardMonth]:
        """Return what a board's time was spent on in its last months, newest first."""
        ...

    def add_board_states(self, changes: Sequence[BoardStateChange]) -> None:
        """Store changes of boards' states; those to the stored state of a board are none."""
        ...

    def board_states(
        self, target_uid: str, *, limit: int, before: datetime | None = None
    ) -> Sequence[BoardStateChange]:
        """Return the changes of a board's state, newest first.

        Args:
            before: Only earlier ones; None: from the newest on.
        """
        ...
