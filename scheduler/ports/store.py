"""Transactions on all repositories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.retention import Limits, PruneReport, RetentionClass
from edgeyard.scheduler.ports.accounts import Accounts, UsageCounts
from edgeyard.scheduler.ports.attempts import Attempts
from edgeyard.scheduler.ports.benchmarks import Benchmarks
from edgeyard.scheduler.ports.boards import BoardOverrides, Registrations, Reservations
from edgeyard.scheduler.ports.contents import Files
from edgeyard.scheduler.ports.credits import Credits
from edgeyard.scheduler.ports.cycles import Cycles
from edgeyard.scheduler.ports.leadership import Leadership
from edgeyard.scheduler.ports.log import Log
from edgeyard.scheduler.ports.policies import Policies, Scoring
from edgeyard.scheduler.ports.submissions import Campaigns, Schedules
from edgeyard.scheduler.ports.webhooks import Webhooks


class UnitOfWork(Protocol):
    """One transaction; leaving its ``with`` block commits, an exception rolls back."""

    @property
    def benchmarks(self) -> Benchmarks: ...
    @property
    def attempts(self) -> Attempts: ...
    @property
    def files(self) -> Files: ...
    @property
    def accounts(self) -> Accounts: ...
    @property
    def log(self) -> Log: ...
    @property
    def cycles(self) -> Cycles: ...
    @property
    def policies(self) -> Policies: ...
    @property
    def campaigns(self) -> Campaigns: ...
    @property
    def schedules(self) -> Schedules: ...
    @property
    def board_overrides(self) -> BoardOverrides: ...
    @property
    def registrations(self) -> Registrations: ...
    @property
    def webhooks(self) -> Webhooks: ...
    @property
    def credits(self) -> Credits: ...
    @property
    def reservations(self) -> Reservations: ...
    @property
    def scoring(self) -> Scoring: ...
    @property
    def leadership(self) -> Leadership: ...
    @property
    def usage(self) -> UsageCounts: ...


_Result = TypeVar("_Result")


class Store(Protocol):
    """Opens transactions. Thread-safe; a unit of work belongs to one thread."""

    def read(self) -> AbstractContextManager[UnitOfWork]:
        """For reading only."""
        ...

    @property
    def short_of_space(self) -> bool:
        """Whether only room for making room is left."""
        ...

    def transact(
        self, work: Callable[[UnitOfWork], _Result], *, frees_space: bool = False
    ) -> _Result:
        """Run a unit of work that reads and writes until it is committed; returns what it returns.

        Args:
            work: May be called several times, each time in a new transaction: it reads all that
                it decides about from the unit of work that it is given.
            frees_space: It lets room become free, or is an operator's: on a full disk it takes what
                is kept for that.

        Raises:
            Unavailable: The database is locked or gone, or others were first every time.
        """
        ...

    def write(self) -> AbstractContextManager[UnitOfWork]:
        """One try, for new rows that nobody else knows; all else is for `transact`.

        Holds the write lock from its start (SQLite: BEGIN IMMEDIATE).

        Raises:
            ConcurrentUpdate: Others changed what it had read.
            Unavailable: The database is locked or gone.
        """
        ...

    def fenced(self, epoch: int) -> Store:
        """The same store for the engine of the leader of this epoch.

        Its transactions that write raise `LeadershipLost` once another epoch has begun; none of
        them can commit after that.
        """
        ...

    def ping(self) -> None:
        """Raises Unavailable."""
        ...

    def record_progress(self, attempt: Attempt, progress: float) -> None:
        """Keep how far a running attempt is in its phase; written with others once a second.

        Whoever reads this store sees it at once. A crash may lose it.
        """
        ...

    def prune(
        self, limits: Limits, *, dry_run: bool = False
    ) -> Mapping[RetentionClass, PruneReport]:
        """Delete what is past its limit and not needed; returns what went of each class."""
        ...

    def close(self) -> None: ...
