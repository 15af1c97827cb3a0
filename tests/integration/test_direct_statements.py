"""Statements on SQLite that go past SQLAlchemy do what they do through it."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from sqlalchemy import Executable, bindparam, delete, event, func, insert, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import StatementError

from edgeyard.errors import ConcurrentUpdate, OutOfSpace, Unavailable
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.direct import Done, driver_of, read_directly, write_directly
from edgeyard.scheduler.store.tables import (
    attempts,
    benchmarks,
    descriptions,
    user_files,
    user_usage,
)
from edgeyard.scheduler.store.transaction import Transaction, among
from tests.builders import records as make

pytestmark = pytest.mark.one_database("it is a way of SQLite alone")

STATEMENTS: list[tuple[Executable, dict[str, Any] | None]] = [
    (select(benchmarks), None),
    (select(benchmarks.c.benchmark_id).where(among(benchmarks.c.benchmark_id)), {"ids": []}),
    (select(benchmarks.c.benchmark_id).where(among(benchmarks.c.benchmark_id)), {"ids": ["b-1"]}),
    (
        select(benchmarks).where(
            among(benchmarks.c.benchmark_id), benchmarks.c.submit_time <= bindparam("before")
        ),
        {"ids": ["b-1", "b-2", "none"], "before": make.NOW},
    ),
    (select(user_files).order_by(user_files.c.file_id).limit(1), None),
    (select(func.max(user_files.c.created_at), func.count().label("count")), None),
    (select(user_files.c.file_id).where(user_files.c.user_id == "ada"), None),
    (select(benchmarks, descriptions.c.body).join_from(benchmarks, descriptions), None),
    (
        select(benchmarks.c.benchmark_id, descriptions.c.benchmark_id).join_from(
            benchmarks, descriptions
        ),  # two of one name
        None,
    ),
    (select(attempts), None),
]


@pytest.fixture
def store(sqlite_url: str) -> Iterator[SqlStore]:
    made = SqlStore(sqlite_url)
    with made.write() as uow:
        for number in (1, 2, 3):
            uow.benchmarks.add(make.a_benchmark(f"b-{number}"))
            uow.files.add_user_file(make.a_user_file(f"f-{number}", name=f"{number}.onnx"))
    yield made
    made.close()


@pytest.mark.parametrize("number", range(len(STATEMENTS)))
def test_rows_are_those_of_the_library(store: SqlStore, number: int) -> None:
    statement, values = STATEMENTS[number]
    with store.read() as uow:
        usual = uow.tx._connection.execute(statement, values).mappings().all()
        for _ in range(3):  # the third time it is known how
            assert [dict(each) for each in uow.tx.rows(statement, values)] == [
                dict(each) for each in usual
            ]
        first = uow.tx.row(statement, values)
        assert (None if first is None else dict(first)) == (dict(usual[0]) if usual else None)
        assert uow.tx.value(statement, values) == (next(iter(usual[0].values())) if usual else None)


def test_statements_that_are_kept_are_read_directly(store: SqlStore) -> None:
    statement = select(user_files).where(user_files.c.file_id == bindparam("id"))
    with store.read() as uow:
        connection = uow.tx._connection
        driver = driver_of(connection)
        assert driver is not None
        ways = [
            read_directly(driver, connection.dialect, statement, {"id": "f-1"}) for _ in range(2)
        ]
    assert ways[0] is None
    assert ways[1] is not None
    assert ways[1][0]["created_at"] == make.NOW


def test_lists_of_any_length_are_few_statements(store: SqlStore) -> None:
    """The driver keeps the program of each text that it has met."""
    statement = select(benchmarks.c.benchmark_id).where(among(benchmarks.c.benchmark_id))
    texts: set[str] = set()

    class Driver:
        def execute(self, text: str, values: list[object]) -> sqlite3.Cursor:
            texts.add(text)
            return driver.execute(text, values)

    with store.read() as uow:
        dialect = uow.tx._connection.dialect
        found = driver_of(uow.tx._connection)
        assert found is not None
        driver = found
        uow.tx.rows(statement, {"ids": ["b-1"]})
        for length in (*range(1, 130), 20_000):
            ids = [f"b-{number}" for number in range(length)]
            rows = read_directly(cast("Any", Driver()), dialect, statement, {"ids": ids})
            assert rows == [{"benchmark_id": each} for each in ids[1:4]]
    assert len(texts) <= 10


def test_what_is_wrong_is_reported_in_the_usual_way(store: SqlStore) -> None:
    statement = select(user_files).where(user_files.c.file_id == bindparam("id"))
    with store.read() as uow:
        for _ in range(3):
            uow.tx.rows(statement, {"id": "f-1"})
        with pytest.raises(StatementError, match="id"):
            uow.tx.rows(statement)


WRITES: list[tuple[Executable, Any]] = [
    (insert(user_usage), {"user_id": "dan", "stored_bytes": 1}),
    (insert(user_usage), [{"user_id": each, "stored_bytes": 1} for each in ("dan", "eve", "fay")]),
    (
        sqlite.insert(user_usage).on_conflict_do_nothing().returning(user_usage.c.user_id),
        [{"user_id": each, "stored_bytes": 1} for each in ("dan", "dan", "eve")],
    ),
    (
        update(benchmarks)
        .where(benchmarks.c.benchmark_id == bindparam("id"))
        .values(ended_at=bindparam("ended"), held=True),
        [{"id": "b-1", "ended": make.NOW}, {"id": "none", "ended": None}],
    ),
    (
        update(benchmarks)
        .where(benchmarks.c.benchmark_id == "b-1")
        .returning(benchmarks.c.benchmark_id, benchmarks.c.submit_time, benchmarks.c.held),
        {"ended_at": make.NOW},
    ),
    (delete(descriptions).where(among(descriptions.c.benchmark_id)), {"ids": ["b-1", "b-3"]}),
    (delete(descriptions).where(among(descriptions.c.benchmark_id)), {"ids": []}),
    (delete(descriptions), None),
    (update(benchmarks).values(version=benchmarks.c.version + 1), None),
]


@pytest.mark.parametrize("number", range(len(WRITES)))
def test_writes_do_what_they_do_through_the_library(store: SqlStore, number: int) -> None:
    statement, values = WRITES[number]
    usual = _done(store, statement, values, direct=False)
    for _ in range(2):  # the second time it is known how
        assert _done(store, statement, values, direct=True) == usual


def _done(store: SqlStore, statement: Executable, values: Any, *, direct: bool) -> object:
    """Execute a statement and undo it; return what it returned and what was stored then."""
    with store._writer.connect() as connection:
        connection.begin()
        tx = Transaction(connection, writes=True)
        tx._driver = tx._driver if direct else None
        done = tx.run(statement, values)
        kept = [tx.rows(select(table)) for table in (user_usage, benchmarks, descriptions)]
        # how many rows were changed the library does not say where it returns them
        return None if done.rows else done.rowcount, [dict(row) for row in done.rows], kept


def test_writes_that_are_kept_go_directly(store: SqlStore) -> None:
    statement = insert(user_usage)
    done: list[Done | None] = []
    with store.write() as uow:
        connection, driver = uow.tx._connection, driver_of(uow.tx._connection)
        assert driver is not None
        for user in ("dan", "eve"):
            row = {"user_id": user, "stored_bytes": 1}
            done.append(write_directly(driver, connection.dialect, statement, row))
    assert done == [None, Done(1, [])]


def test_a_statement_that_is_derived_from_one_that_was_executed_returns_its_rows(
    store: SqlStore,
) -> None:
    statement = sqlite.insert(user_usage)
    users = iter("abcdef")
    with store.write() as uow:
        for _ in range(3):
            uow.tx.run(statement, {"user_id": next(users), "stored_bytes": 1})
        returning = statement.returning(user_usage.c.user_id)
        for user in users:
            row = {"user_id": user, "stored_bytes": 1}
            assert uow.tx.run(returning, row).rows == [{"user_id": user}]


@pytest.mark.parametrize("count", [1, 2])
def test_what_the_database_refuses_is_reported_as_through_the_library(
    store: SqlStore, count: int
) -> None:
    rows = [{"user_id": "dan", "stored_bytes": 1}] * count
    statement = insert(user_usage)
    with store.write() as uow:
        uow.tx.insert_all(user_usage, [{"user_id": "dan", "stored_bytes": 1}])
    for _ in range(3):
        with pytest.raises(ConcurrentUpdate), store.write() as uow:
            uow.tx.run(statement, rows)
    for _ in range(2):
        with pytest.raises(StatementError), store.write() as uow:
            uow.tx.run(_TAKE_TIME, {"at": "no time"})


_TAKE_TIME = update(benchmarks).values(ended_at=bindparam("at", type_=benchmarks.c.ended_at.type))


def test_a_full_database_refuses_writes(store: SqlStore) -> None:
    with store.write() as uow:
        driver = driver_of(uow.tx._connection)
        assert driver is not None
        (pages,) = driver.execute("PRAGMA page_count").fetchone()
        driver.execute(f"PRAGMA max_page_count = {pages}")
    rows = [{"user_id": f"user-{number}", "stored_bytes": 1} for number in range(5000)]
    for _ in range(3):
        with pytest.raises(OutOfSpace), store.write() as uow:
            uow.tx.insert_all(user_usage, rows)


def test_a_read_that_ends_the_transaction_is_not_tried_again(store: SqlStore) -> None:
    """It writes what the cache has no room for, which fails on a full disk."""
    total = select(func.sum(user_usage.c.stored_bytes).label("total"))
    rows = [{"user_id": f"{number:06}{100 * '-'}", "stored_bytes": 1} for number in range(4000)]
    with store.write() as uow:
        uow.tx.insert_all(user_usage, rows[::2])
        before = [uow.tx.value(total) for _ in range(2)][-1]  # from now on it is known how
    with store.write() as uow:
        driver = driver_of(uow.tx._connection)
        assert driver is not None
        uow.tx.insert_all(user_usage, rows[1::20])
        driver.execute("PRAGMA cache_size = 10")
        with _no_file_can_grow(), pytest.raises(Unavailable):
            uow.tx.row(total)
    with store.read() as uow:
        assert uow.tx.value(total) == before


@contextmanager
def _no_file_can_grow() -> Iterator[None]:
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def test_event_listeners_get_all_statements(store: SqlStore) -> None:
    statement = select(user_files.c.file_id)
    heard: list[str] = []

    def note(*given: object) -> None:
        heard.append(str(given[2]))

    with store.read() as uow:
        for _ in range(3):
            uow.tx.rows(statement)
    event.listen(store._reader, "before_cursor_execute", note)
    with store.read() as uow:
        uow.tx.rows(statement)
    event.remove(store._reader, "before_cursor_execute", note)
    assert any("user_files" in each for each in heard)
