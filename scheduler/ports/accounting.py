"""The repository of what was used, for reports by month."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgeyard.scheduler.model.accounting import BoardMonth, UsageBy, UsageRow


class Accounting(Protocol):
    """Adds up charges and idle times, and stores what boards' time was spent on."""

    def usage(self, by: UsageBy, month: str, *, user_id: str | None = None) -> Sequence[UsageRow]:
        """Return what was used in a month, in the order of keys, the unknown one last.

        Args:
            by: What the rows are.
            month: As `edgeyard.scheduler.model.accounting.month_of` writes it.
            user_id: Only of this user; None: of everybody.
        """
        ...

    def add_board_months(self, times: Sequence[BoardMonth]) -> None:
        """Add seconds to what is stored of these boards and months."""
        ...

    def board_months(self, month: str) -> Sequence[BoardMonth]:
        """Return what the boards' time was spent on in a month, in the order of boards."""
        ...
