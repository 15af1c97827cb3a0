"""The repository of balances, charges and rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from edgeyard.scheduler.model.accounts import Balance, Charge, IdleTime


class Credits(Protocol):
    """Stores balances of users, charges of attempts and rates of families.

    Only `edgeyard.scheduler.engine.charging` changes them.
    """

    def balance(self, user_id: str, *, for_update: bool = False) -> Balance:
        """Return a user's balance; zero and unlimited for a user without one.

        Args:
            for_update: Lock it until the end of the unit of work.
        """
        ...

    def balances(self) -> Sequence[Balance]:
        """Return all stored balances."""
        ...

    def save_balance(self, balance: Balance) -> None:
        """Replace a balance that this unit of work has read."""
        ...

    def running(self, user_id: str) -> int:
        """Return how many of the user's attempts have not ended."""
        ...

    def open_charges(self) -> Sequence[Charge]:
        """Return charges of attempts that have not ended."""
        ...

    def charge(self, benchmark_id: str, attempt: int) -> Charge | None:
        """Return the charge of an attempt; None if it has none."""
        ...

    def add_charges(self, opened: Sequence[Charge]) -> None:
        """Store new charges.

        Raises:
            Conflict: An attempt has a charge already.
        """
        ...

    def settle_charge(self, charge: Charge) -> bool:
        """Store the final cost; return False, and change nothing, if the charge is settled."""
        ...

    def amend_charge(self, charge: Charge) -> None:
        """Store a settled charge whose facts were recorded too early; nothing is charged anew."""
        ...

    def charges(self, user_id: str, *, limit: int) -> Sequence[Charge]:
        """Return a user's charges, newest first."""
        ...

    def idle_time(self, keeper_id: str, month: str) -> IdleTime | None:
        """Return what a booking or a lease was charged for a month; None: nothing."""
        ...

    def save_idle_time(self, idle: IdleTime) -> None:
        """Store a new idle time, or replace the one of the same keeper and month."""
        ...

    def idle_times(self, user_id: str, *, limit: int) -> Sequence[IdleTime]:
        """Return a user's idle times, newest first."""
        ...

    def rates(self) -> Mapping[str, float]:
        """Return credits per board-second by family; unnamed families cost 1."""
        ...

    def set_rate(self, family: str, rate: float) -> None:
        """Set a family's rate for future attempts."""
        ...
