"""Connections to SQLite that read, kept from one transaction to the next.

To take a connection out of SQLAlchemy's pool, begin and give it back takes longer than most
transactions that read.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, LifoQueue
from typing import cast

from sqlalchemy import Connection, Engine

from edgeyard.errors import Unavailable

KEPT = 4
"""Connections that are kept open. Each fills with up to 2 MiB of pages and the programs of some
hundred statements of up to 20 KiB: of forty, the last ones, seldom used, filled for hours."""

PATIENCE_S = 0.05
"""Longest wait for a kept connection before another one is opened, which is then closed again."""

_Reader = tuple[Connection, sqlite3.Connection]


class SqliteReaders:
    """The connections of an engine, each used by one thread at a time. Thread-safe."""

    def __init__(self, engine: Engine, max_connections: int, wait_s: float) -> None:
        """Open none yet.

        Args:
            engine: Engine whose pool has as many connections, which are used here alone.
            max_connections: How many transactions there may be at the same time.
            wait_s: Longest wait of a further one for the end of another.
        """
        self._engine = engine
        self._wait_s = wait_s
        self._closed = False
        self._free: LifoQueue[_Reader | None] = LifoQueue()  # None: one that may be opened
        kept = min(KEPT, max_connections)
        for _ in range(kept):
            self._free.put(None)
        self._further = threading.Semaphore(max_connections - kept)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Yield a connection in a transaction.

        It is begun by the driver; SQLAlchemy joins it where it executes a statement itself.

        Raises:
            Unavailable: All connections are in use.
        """
        (connection, driver), kept = self._take()
        reusable = False
        try:
            driver.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.rollback()  # nothing, unless SQLAlchemy has joined
                driver.rollback()
            reusable = kept
        except Exception:
            reusable = kept and not connection.invalidated and not driver.in_transaction
            raise
        finally:
            try:
                if not reusable:
                    _close(connection)
            finally:
                if kept:
                    self._free.put((connection, driver) if reusable else None)
                else:
                    self._further.release()
            if self._closed:
                self._close_free()

    def close(self) -> None:
        """Close those that are free; the others are closed when their transactions end."""
        self._closed = True
        self._close_free()

    def _take(self) -> tuple[_Reader, bool]:
        """Return a connection, and whether it is one of those that are kept."""
        until_s = time.monotonic() + self._wait_s
        while True:
            left_s = max(0.0, until_s - time.monotonic())
            try:
                free = self._free.get(timeout=min(PATIENCE_S, left_s))
            except Empty:
                if self._further.acquire(blocking=False):
                    return self._open(self._further.release), False
                if left_s <= PATIENCE_S:
                    raise Unavailable("all connections to the database are in use") from None
            else:
                return free or self._open(lambda: self._free.put(None)), True

    def _open(self, give_back: Callable[[], None]) -> _Reader:
        try:
            connection = self._engine.connect()
        except BaseException:
            give_back()
            raise
        return connection, cast(sqlite3.Connection, connection.connection.driver_connection)

    def _close_free(self) -> None:
        taken: list[_Reader | None] = []
        with suppress(Empty):
            while True:
                taken.append(self._free.get_nowait())
        for free in taken:
            if free is not None:
                _close(free[0])
            self._free.put(None)


def _close(connection: Connection) -> None:
    if not connection.invalidated:
        connection.detach()  # a pool that was disposed of would keep it open
    connection.close()
