"""The repositories of boards' overrides, reservations and registrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.accounts import Quarantine
from edgeyard.scheduler.model.boards import BoardOverride
from edgeyard.scheduler.model.canaries import BoardDrift, CanaryBoard
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.model.registration import Registration, RegistrationKind


class BoardOverrides(Protocol):
    """Stores what operators decided about boards, such as draining them."""

    def put(self, override: BoardOverride) -> None:
        """Set the override of a board, replacing an earlier one."""
        ...

    def all(self) -> Mapping[str, BoardOverride]:
        """Return the override of each board that has one, by `target_uid`."""
        ...


class Reservations(Protocol):
    """Stores what keeps boards from the queue: leases and quarantine."""

    def add_lease(self, lease: Lease) -> None:
        """Store a new lease.

        Raises:
            Conflict: The board is leased in that time, or the id is taken.
        """
        ...

    def lease(self, lease_id: str) -> Lease:
        """Return a lease.

        Raises:
            NotFound: There is no such lease.
        """
        ...

    def end_lease(self, lease_id: str, at: datetime, by: str) -> Lease:
        """Let a lease end at ``at``, or never begin, by a user; one that has ended is not changed.

        Raises:
            NotFound: There is no such lease.
        """
        ...

    def leases(self, now: datetime) -> Sequence[Lease]:
        """Return present and future leases, earliest first."""
        ...

    def set_quarantine(self, quarantine: Quarantine) -> None:
        """Set the quarantine of a board, replacing an earlier one."""
        ...

    def quarantines(self) -> Mapping[str, Quarantine]:
        """Return the last quarantine of each board, lifted ones too.

        A unit of work that writes locks them.
        """
        ...


class Canaries(Protocol):
    """Stores the state of the canaries of each board."""

    def save(self, board: CanaryBoard) -> None:
        """Store the state of a board's canaries instead of the stored one."""
        ...

    def all(self) -> Mapping[str, CanaryBoard]:
        """Return the stored states by board. A unit of work that writes locks them."""
        ...

    def drifts(self) -> Sequence[BoardDrift]:
        """Return when boards drift or drifted, the oldest first.

        It follows from the changes of canaries' series: those that are suspected, that are being
        confirmed, active alerts, and confirmed alerts that were resolved since.
        """
        ...


class Registrations(Protocol):
    """Stores what users of the platform's client registered."""

    def lock(self) -> None:
        """Let no other transaction add a registration until the end of the unit of work."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Count the registrations of all kinds by user, without users who have none."""
        ...

    def add(self, registration: Registration) -> None:
        """Store a new registration.

        Raises:
            Conflict: The name is taken.
        """
        ...

    def save(self, registration: Registration) -> None:
        """Store a changed registration.

        Raises:
            NotFound: There is no such registration.
        """
        ...

    def remove(self, kind: RegistrationKind, name: str) -> None:
        """Remove a registration.

        Raises:
            NotFound: There is no such registration.
        """
        ...

    def get(self, kind: RegistrationKind, name: str) -> Registration:
        """Return a registration.

        Raises:
            NotFound: There is no such registration.
        """
        ...

    def of_kind(self, kind: RegistrationKind) -> Sequence[Registration]:
        """Return everybody's registrations of a kind, by name."""
        ...
