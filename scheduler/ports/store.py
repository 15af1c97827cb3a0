"""Transactions on all repositories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.retention import Limits, PruneReport, RetentionClass
from edgeyard.scheduler.ports.accounting import Accounting
from edgeyard.scheduler.ports.accounts import Accounts, UsageCounts
from edgeyard.scheduler.ports.attempts import Attempts
from edgeyard.scheduler.ports.benchmarks import Benchmarks
from edgeyard.scheduler.ports.boards import BoardOverrides, Canaries, Registrations, Reservations
from edgeyard.scheduler.ports.checks import Checks
from edgeyard.scheduler.ports.contents import Files
from edgeyard.scheduler.ports.credits import Credits
from edgeyard.scheduler.ports.cycles import Cycles
from edgeyard.scheduler.ports.leadership import Leadership
from edgeyard.scheduler.ports.log import Log
from edgeyard.scheduler.ports.models import Models
from edgeyard.scheduler.ports.policies import Policies, Scoring
from edgeyard.scheduler.ports.scenarios import Scenarios, Simulations
from edgeyard.scheduler.ports.series import SeriesStore
from edgeyard.scheduler.ports.shares import Shares
from edgeyard.scheduler.ports.submissions import Campaigns, Schedules
from edgeyard.scheduler.ports.subscriptions import (
    Deliveries,
    LabConditions,
    Subscriptions,
)
from edgeyard.scheduler.ports.uploads import Uploads
from edgeyard.scheduler.ports.webhooks import Webhooks


class UnitOfWork(Protocol):
    """One transaction; leaving its ``with`` block commits it, an exception rolls it back."""

    benchmarks: Benchmarks
    attempts: Attempts
    files: Files
    accounts: Accounts
    log: Log
    cycles: Cycles
    policies: Policies
    campaigns: Campaigns
    schedules: Schedules
    board_overrides: BoardOverrides
    registrations: Registrations
    webhooks: Webhooks
    subscriptions: Subscriptions
    deliveries: Deliveries
    lab_conditions: LabConditions
    credits: Credits
    reservations: Reservations
    scoring: Scoring
    leadership: Leadership
    usage: UsageCounts
    scenarios: Scenarios
    simulations: Simulations
    uploads: Uploads
    models: Models
    shares: Shares
    accounting: Accounting
    checks: Checks
    series: SeriesStore
    canaries: Canaries


_Result = TypeVar("_Result")


class Store(Protocol):
    """Opens transactions. Thread-safe; a unit of work belongs to one thread."""

    def read(self) -> AbstractContextManager[UnitOfWork]:
        """Open a consistent, read-only view."""
        ...

    @property
    def short_of_space(self) -> bool:
        """Whether the disk is full except for a reserve that only frees space."""
        ...

    def restore_reserve(self) -> None:
        """Reserve that space again if it was released and there is room for it; called often."""
        ...

    def transact(
        self, work: Callable[[UnitOfWork], _Result], *, frees_space: bool = False
    ) -> _Result:
        """Run a unit of work that reads and writes until it is committed; return its result.

        Args:
            work: May be called several times, each time in a new transaction. It reads
                everything that it decides about from its unit of work, and changes nothing else.
            frees_space: On a full disk it may use the reserve, because it frees space or is an
                operator's.

        Raises:
            Unavailable: The database is locked or gone, or other transactions conflicted each time.
        """
        ...

    def write(self) -> AbstractContextManager[UnitOfWork]:
        """Open a transaction that is tried once, for new rows; use `transact` for all else.

        It holds the write lock from its start (SQLite: BEGIN IMMEDIATE).

        Raises:
            ConcurrentUpdate: Another transaction has changed what it had read.
            Unavailable: The database is locked or gone.
        """
        ...

    def fenced(self, epoch: int) -> Store:
        """Return the same store for the engine of the leader of this epoch.

        Its transactions that write raise `LeadershipLost` once another epoch has begun; none of
        them can commit after that.
        """
        ...

    def ping(self) -> None:
        """Check that the database answers.

        Raises:
            Unavailable: It does not.
        """
        ...

    def record_progress(
        self, attempt: Attempt, progress: float, message: str | None = None
    ) -> None:
        """Store how far a running attempt is in its phase, with others once a second.

        Readers of this store see it at once. A crash may lose it.
        """
        ...

    def prune(
        self, limits: Limits, *, dry_run: bool = False
    ) -> Mapping[RetentionClass, PruneReport]:
        """Delete what exceeds its limit of age, in small steps; keep what is live or still needed.

        Args:
            limits: Maximum age by class.
            dry_run: Only count.

        Returns:
            What was deleted, or would be, of each class that has a limit.
        """
        ...

    def close(self) -> None:
        """Write the progress that is not stored yet, and close all connections."""
        ...
