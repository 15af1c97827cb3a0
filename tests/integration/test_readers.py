"""Connections to SQLite that read are kept, and each transaction is one of its own."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from sqlalchemy import func, select

from edgeyard.errors import NotFound, Unavailable
from edgeyard.scheduler.store import SqlStore, readers, sql_store
from edgeyard.scheduler.store.sql_store import SqlUnitOfWork
from edgeyard.scheduler.store.tables import benchmarks
from tests.builders import records as make

pytestmark = pytest.mark.one_database("it is a way of SQLite alone")


@pytest.fixture
def store(sqlite_url: str) -> Iterator[SqlStore]:
    made = SqlStore(sqlite_url)
    yield made
    made.close()


def add(store: SqlStore, benchmark_id: str) -> None:
    with store.write() as uow:
        uow.benchmarks.add(make.a_benchmark(benchmark_id))


def count(uow: SqlUnitOfWork) -> object:
    """Count benchmarks by a statement that SQLAlchemy executes, since it is a new one."""
    return uow.tx.value(select(func.count()).select_from(benchmarks))


def test_a_connection_is_used_again_and_sees_what_was_committed_since(store: SqlStore) -> None:
    with store.read() as uow:
        driver = uow.tx._driver
        assert count(uow) == 0
    add(store, "b-1")
    with store.read() as uow:
        assert uow.tx._driver is driver
        assert list(uow.benchmarks.live_versions()) == ["b-1"]


def test_all_statements_of_a_transaction_see_the_same(store: SqlStore) -> None:
    add(store, "b-1")
    for _ in range(2):  # the second time the statements of the model go to the driver directly
        with store.read() as uow:
            assert len(uow.benchmarks.live_versions()) == count(uow)
            before = count(uow)
            add(store, f"b-{before}-more")
            assert count(uow) == before
            assert len(uow.benchmarks.live_versions()) == before


def test_transactions_at_the_same_time_have_a_connection_each(store: SqlStore) -> None:
    with store.read() as one:
        with store.read() as other:
            assert one.tx._driver is not other.tx._driver
            add(store, "b-1")
            assert count(other) == 1
        assert one.tx._driver is not None
        assert one.tx._driver.in_transaction


def test_a_transaction_that_waits_takes_the_connection_of_the_next_one_that_ends(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_store, "CONNECTIONS", 1)
    store = SqlStore(sqlite_url, wait_s=20.0)
    try:
        with ThreadPoolExecutor(1) as other:
            with store.read():
                waiting = other.submit(store.ping)
                time.sleep(0.1)  # so that it waits; where it does not yet, nothing is shown
            waiting.result()
    finally:
        store.close()


def test_a_transaction_is_refused_while_all_connections_are_in_use(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_store, "CONNECTIONS", 2)
    store = SqlStore(sqlite_url, wait_s=0.01)
    try:
        full = pytest.raises(Unavailable, match="all connections to the database are in use")
        with store.read(), store.read(), full:
            store.ping()
        store.ping()
    finally:
        store.close()


def test_few_connections_are_kept_after_many_transactions_at_the_same_time(
    store: SqlStore,
) -> None:
    """Each that is kept fills with pages and programs of statements."""
    with ExitStack() as open_at_once:
        units = [open_at_once.enter_context(store.read()) for _ in range(readers.KEPT + 4)]
        drivers = [unit.tx._driver for unit in units]
        assert len(set(drivers)) == len(drivers)
    kept = 0
    for driver in drivers:
        assert driver is not None
        with suppress(sqlite3.ProgrammingError):
            driver.execute("SELECT 1")
            kept += 1
    assert kept == readers.KEPT
    store.ping()


def test_after_an_error_the_next_transaction_is_a_new_one(store: SqlStore) -> None:
    with pytest.raises(NotFound), store.read() as uow:
        uow.benchmarks.get("none")
    add(store, "b-1")
    with store.read() as uow:
        assert count(uow) == 1


def test_a_closed_store_closes_its_connections(store: SqlStore) -> None:
    with store.read() as uow:
        with store.read() as other:
            idle = other.tx._driver
        used = uow.tx._driver
        store.close()
        assert used is not None
        assert used.in_transaction
    for driver in (idle, used):
        assert driver is not None
        with pytest.raises(sqlite3.ProgrammingError):
            driver.execute("SELECT 1")
