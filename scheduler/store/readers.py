"""Connections to SQLite that read, kept from one transaction to the next.

To take a connection out of SQLAlchemy's pool, begin and give it back takes longer than most
transactions that read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from sqlalchemy import Connection, Engine


class SqliteReaders:
    """The connections of an engine, each used by one thread at a time. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        """Open none yet; the engine's pool bounds how many there are."""
        self._engine = engine
        self._idle: list[tuple[Connection, sqlite3.Connection]] = []
        self._closed = False

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Yield a connection in a transaction.

        It is begun by the driver; SQLAlchemy joins it where it executes a statement itself.
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
            if reusable and not self._closed:
                self._idle.append((connection, driver))
            else:
                if not connection.invalidated:
                    connection.detach()  # a pool that was disposed of would keep it open
                connection.close()

    def close(self) -> None:
        """Close those that are idle; the others are closed when their transactions end."""
        self._closed = True
        while self._idle:
            self._idle.pop()[0].close()

    def _take(self) -> tuple[Connection, sqlite3.Connection]:
        try:
            return self._idle.pop()
        except IndexError:
            connection = self._engine.connect()
            found = connection.connection.driver_connection
            return connection, cast(sqlite3.Connection, found)
