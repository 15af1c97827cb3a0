"""The store with faults of a simulation, and what happens to a server around its commits."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

from sqlalchemy import make_url

from edgeyard.errors import OutOfSpace, Unavailable
from edgeyard.scheduler.store.sql_store import SqlStore, SqlUnitOfWork


class ServerCrash(BaseException):
    """The server dies here: no handler of its code sees more of it than of a power cut."""


class Moment(StrEnum):
    """Where in its work a server can be interrupted."""

    BEFORE_WRITE = "before_write"  # a transaction begins
    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT = "after_commit"
    BEFORE_CALL = "before_call"  # of the cluster, with an effect
    AFTER_CALL = "after_call"


@dataclass(slots=True)
class ServerFaults:
    """What is wrong with one server's process and its way to the store.

    Attributes:
        full: Nothing can be written.
        away: Nothing can be read or written.
        dead: The server has died: what its code does while it unwinds has no effect.
        writing: Transactions that are open.
        on_commit: Called after each commit with the epoch that fences it; None: nothing does.
    """

    full: bool = False
    away: bool = False
    dead: bool = False
    writing: int = 0
    on_commit: Callable[[int | None], object] = lambda epoch: None
    _traps: dict[Moment, tuple[int, Callable[[], object]]] = field(default_factory=dict)

    def interrupt(self, moment: Moment, nth: int, action: Callable[[], object]) -> None:
        """Have something happen at a moment of the server's work.

        Args:
            moment: Which one.
            nth: So many of its kind from now on; 1: the next.
            action: What happens then: `die`, for example.
        """
        self._traps[moment] = nth, action

    def reach(self, moment: Moment) -> None:
        """Do what is to happen at a moment that has come."""
        if moment not in self._traps:
            return
        left, action = self._traps.pop(moment)
        if left > 1:
            self._traps[moment] = left - 1, action
        else:
            action()

    def die(self) -> NoReturn:
        """Have the server die here.

        Raises:
            ServerCrash: Always.
        """
        self.dead = True
        raise ServerCrash

    def revive(self) -> None:
        """Forget the process that has died, and what was to happen to it."""
        self.dead = False
        self._traps.clear()


class SimStore(SqlStore):
    """`SqlStore` with faults. One thread; all its copies share them."""

    def __init__(self, url: str, faults: ServerFaults, *, now: Callable[[], datetime]) -> None:
        """Open the database without syncing to disk: no power cut is simulated below SQLite."""
        self._faults = faults
        super().__init__(url, now=now, durable=False)

    @contextmanager
    def read(self) -> Iterator[SqlUnitOfWork]:
        if self._faults.dead:
            raise ServerCrash
        if self._faults.away:
            raise Unavailable("the database does not answer")
        with super().read() as uow:
            yield uow

    @contextmanager
    def write(self) -> Iterator[SqlUnitOfWork]:
        faults = self._faults
        if faults.dead:
            raise ServerCrash
        faults.reach(Moment.BEFORE_WRITE)
        if faults.away:
            raise Unavailable("the database does not answer")
        if faults.full:
            raise OutOfSpace("the database is full")
        faults.writing += 1
        try:
            with super().write() as uow:
                yield uow
                faults.reach(Moment.BEFORE_COMMIT)
        finally:
            faults.writing -= 1
        faults.on_commit(self._epoch)
        faults.reach(Moment.AFTER_COMMIT)


def copy_database(url: str) -> Path:
    """Copy an SQLite database as a backup does, while programs use it; return the file."""
    target = Path(tempfile.mkdtemp(prefix="backup-", dir=Path(_path_of(url)).parent)) / "backup.db"
    with closing(sqlite3.connect(_path_of(url))) as live, closing(sqlite3.connect(target)) as kept:
        live.backup(kept)
    return target


def restore_database(url: str, source: Path) -> None:
    """Replace an SQLite database by a copy; no program may be in a transaction on it."""
    with closing(sqlite3.connect(_path_of(url))) as live, closing(sqlite3.connect(source)) as kept:
        kept.backup(live)


def _path_of(url: str) -> str:
    path = make_url(url).database
    assert path is not None, "simulations use SQLite"
    return path
