"""The store with faults of a simulation, and crashes of the server around its commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from edgeyard.errors import OutOfSpace, Unavailable
from edgeyard.scheduler.store.sql_store import SqlStore, SqlUnitOfWork


class ServerCrash(BaseException):
    """The server dies here: no handler of its code sees more of it than of a power cut."""


@dataclass(slots=True)
class StoreFaults:
    """What is wrong with the store now.

    Attributes:
        full: Nothing can be written.
        away: Nothing can be read or written.
        crash_before: The server dies right before this commit from now on; 0: it does not.
        crash_after: The same right after it.
        commits: Commits so far.
    """

    full: bool = False
    away: bool = False
    crash_before: int = 0
    crash_after: int = 0
    commits: int = 0

    def clear(self) -> None:
        """End all faults."""
        self.full = self.away = False
        self.crash_before = self.crash_after = 0


class SimStore(SqlStore):
    """`SqlStore` with faults. One thread; all its copies share them."""

    def __init__(self, url: str, faults: StoreFaults, *, now: Callable[[], datetime]) -> None:
        """Open the database without syncing to disk: no power cut is simulated below SQLite."""
        self._faults = faults
        super().__init__(url, now=now, durable=False)

    @contextmanager
    def read(self) -> Iterator[SqlUnitOfWork]:
        if self._faults.away:
            raise Unavailable("the database does not answer")
        with super().read() as uow:
            yield uow

    @contextmanager
    def write(self) -> Iterator[SqlUnitOfWork]:
        faults = self._faults
        if faults.away:
            raise Unavailable("the database does not answer")
        if faults.full:
            raise OutOfSpace("the database can't grow")
        with super().write() as uow:
            yield uow
            if faults.crash_before:
                faults.crash_before -= 1
                if not faults.crash_before:
                    raise ServerCrash
        faults.commits += 1
        if faults.crash_after:
            faults.crash_after -= 1
            if not faults.crash_after:
                raise ServerCrash
