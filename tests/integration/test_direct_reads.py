"""Reads on SQLite that go past SQLAlchemy give what it gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Executable, bindparam, event, func, select
from sqlalchemy.exc import StatementError

from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.direct_reads import read_directly
from edgeyard.scheduler.store.tables import attempts, benchmarks, descriptions, user_files
from edgeyard.scheduler.store.transaction import among
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
        ways = [read_directly(uow.tx._connection, statement, {"id": "f-1"}) for _ in range(3)]
    assert ways[:2] == [None, None]
    assert ways[2] is not None
    assert ways[2][0]["created_at"] == make.NOW


def test_what_is_wrong_is_reported_in_the_usual_way(store: SqlStore) -> None:
    statement = select(user_files).where(user_files.c.file_id == bindparam("id"))
    with store.read() as uow:
        for _ in range(3):
            uow.tx.rows(statement, {"id": "f-1"})
        with pytest.raises(StatementError, match="id"):
            uow.tx.rows(statement)


def test_who_listens_to_statements_hears_of_all(store: SqlStore) -> None:
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
