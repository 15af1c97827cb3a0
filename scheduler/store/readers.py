"""Connections to SQLite that read, kept from one transaction to the next.

To take a connection out of SQLAlchemy's pool, begin and give it back takes longer than most
transactions that read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, LifoQueue
from typing import cast

from sqlalchemy import Connection, Engine

from edgeyard.errors import Unavailable

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
        for _ in range(max_connections):
            self._free.put(None)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Yield a connection in a transaction.

        It is begun by the driver; SQLAlchemy joins it where it executes a statement itself.

        Raises:
            Unavailable: All connections are in use.
        """
        connection, driver = self._take()
        reusable = False
        try:
            driver.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.rollback()  # nothing, unless SQLAlchemy has joined
                driver.rollback()
            reusable = True
        except Exception:
            reusable = not connection.invalidated and not driver.in_transaction
            raise
        finally:
            try:
                if not reusable:
                    _close(connection)
            finally:
                self._free.put((connection, driver) if reusable else None)
            if self._closed:
                self._close_free()

    def close(self) -> None:
        """Close those that are free; the others are closed when their transactions end."""
        self._closed = True
        self._close_free()

    def _take(self) -> _Reader:
        try:
            free = self._free.get(timeout=self._wait_s)
        except Empty:
            raise Unavailable("all connections to the database are in use") from None
        if free is not None:
            return free
        try:
            connection = self._engine.connect()
        except BaseException:
            self._free.put(None)
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
