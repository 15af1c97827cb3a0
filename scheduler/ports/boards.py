"""The repositories of boards' overrides, reservations and registrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.accounts import Quarantine
from edgeyard.scheduler.model.boards import BoardOverride
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.model.registration import Registration, RegistrationKind


class BoardOverrides(Protocol):
    """What operators decided about boards, such as draining them."""

    def put(self, override: BoardOverride) -> None:
        """Replace the override of the board, if it has one."""
        ...

    def all(self) -> Mapping[str, BoardOverride]:
        """Return the override of each board that has one, by `target_uid`."""
        ...


class Reservations(Protocol):
    """Boards that are kept from the queue: leases and quarantine."""

    def add_lease(self, lease: Lease) -> None:
        """Raises Conflict: the board is kept for somebody in that time, or the id is taken."""
        ...

    def lease(self, lease_id: str) -> Lease:
        """Raises NotFound."""
        ...

    def end_lease(self, lease_id: str, at: datetime) -> Lease:
        """Let it end at ``at``, or never begin; one that has ended stays. Raises NotFound."""
        ...

    def leases(self, now: datetime) -> Sequence[Lease]:
        """Present and future ones, the earliest first."""
        ...

    def set_quarantine(self, quarantine: Quarantine) -> None:
        """The newest of a board counts."""
        ...

    def quarantines(self) -> Mapping[str, Quarantine]:
        """By board; lifted ones too."""
        ...


class Registrations(Protocol):
    """Families, engines, boards and parameters that users of the platform's client announced."""

    def add(self, registration: Registration) -> None:
        """Raises Conflict: the name is taken."""
        ...

    def save(self, registration: Registration) -> None:
        """Raises NotFound."""
        ...

    def remove(self, kind: RegistrationKind, name: str) -> None:
        """Raises NotFound."""
        ...

    def get(self, kind: RegistrationKind, name: str) -> Registration:
        """Raises NotFound."""
        ...

    def of_kind(self, kind: RegistrationKind) -> Sequence[Registration]:
        """Everybody's, by name."""
        ...
