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
    """The server dies here; a `BaseException`, so that no handler of the server catches it."""


class InterruptPoint(StrEnum):
    """Points of a server's work at which a fault can be injected."""

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
    _interrupts: dict[InterruptPoint, tuple[int, Callable[[], object]]] = field(
        default_factory=dict
    )

    def interrupt(self, point: InterruptPoint, nth: int, action: Callable[[], object]) -> None:
        """Run an action when the server reaches a point of its work.

        Args:
            point: The point.
            nth: How many times from now on the server has to reach it; 1: the next time.
            action: What to run then, `crash` for example.
        """
        self._interrupts[point] = nth, action

    def pass_point(self, point: InterruptPoint) -> None:
        """Run the action that is due at this point, if there is one."""
        if point not in self._interrupts:
            return
        left, action = self._interrupts.pop(point)
        if left > 1:
            self._interrupts[point] = left - 1, action
        else:
            action()

    def crash(self) -> NoReturn:
        """Let the server die here.

        Raises:
            ServerCrash: Always.
        """
        self.dead = True
        raise ServerCrash

    def reset(self) -> None:
        """Start a new process, without the interrupts that were planned for the old one."""
        self.dead = False
        self._interrupts.clear()


class SimStore(SqlStore):
    """`SqlStore` with injected faults, which all its copies share. Not thread-safe."""

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
        faults.pass_point(InterruptPoint.BEFORE_WRITE)
        if faults.away:
            raise Unavailable("the database does not answer")
        if faults.full:
            raise OutOfSpace("the database is full")
        faults.writing += 1
        try:
            with super().write() as uow:
                yield uow
                faults.pass_point(InterruptPoint.BEFORE_COMMIT)
        finally:
            faults.writing -= 1
        faults.on_commit(self._epoch)
        faults.pass_point(InterruptPoint.AFTER_COMMIT)


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
