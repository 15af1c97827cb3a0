"""The repository of balances, charges and rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from edgeyard.scheduler.model.accounts import Balance, Charge


class Credits(Protocol):
    """Balances of users, charges of attempts, rates of families.

    Only `edgeyard.scheduler.engine.charging` changes them.
    """

    def balance(self, user_id: str, *, for_update: bool = False) -> Balance:
        """Zero, without a bound, for a user who never had or used anything.

        Args:
            for_update: It is nobody else's to change until the end of the unit of work.
        """
        ...

    def balances(self) -> Sequence[Balance]:
        """Of all who ever had or used something."""
        ...

    def save_balance(self, balance: Balance) -> None:
        """Replace it; read it in the same unit of work before."""
        ...

    def running(self, user_id: str) -> int:
        """How many of the user's attempts have not ended."""
        ...

    def open_charges(self) -> Sequence[Charge]:
        """Of attempts that have not ended."""
        ...

    def charge(self, benchmark_id: str, attempt: int) -> Charge | None:
        """Of an attempt; None for one that was made before there were charges."""
        ...

    def add_charges(self, opened: Sequence[Charge]) -> None:
        """Raises Conflict: an attempt has one."""
        ...

    def settle_charge(self, charge: Charge) -> bool:
        """Keep what it did cost; False, and nothing changes, if it was settled before."""
        ...

    def charges(self, user_id: str, *, limit: int) -> Sequence[Charge]:
        """Newest first."""
        ...

    def rates(self) -> Mapping[str, float]:
        """Credits a board-second, by family; families that are not named cost 1."""
        ...

    def set_rate(self, family: str, rate: float) -> None:
        """From the next attempt on."""
        ...
