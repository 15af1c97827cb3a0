"""Migrations, guards in the database, and statements that don't read everything."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import (
    Connection,
    Engine,
    MetaData,
    Table,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.exc import IntegrityError

from edgeyard.errors import ConfigError
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import LIVE, TERMINAL, Status
from edgeyard.scheduler.ports import BenchmarkFilter
from edgeyard.scheduler.store import SqlStore, migrations
from edgeyard.scheduler.store.tables import metadata
from tests.builders import records as make


@contextmanager
def _engine(url: str) -> Iterator[Engine]:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    yield engine
    engine.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/empty.db"
    url = request.getfixturevalue("empty_postgres_url")
    assert isinstance(url, str)
    return url


def test_an_empty_database_gets_the_tables_that_the_code_knows(empty_url: str) -> None:
    SqlStore(empty_url).close()
    with _engine(empty_url) as engine, engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    SqlStore(empty_url).close()


def test_servers_that_start_together_migrate_once(empty_url: str) -> None:
    start = threading.Barrier(4)

    def serve(_: int) -> None:
        start.wait()
        SqlStore(empty_url).close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(serve, range(4)))
    with _engine(empty_url) as engine, engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM alembic_version")).scalar() == 1
        assert connection.execute(text("SELECT count(*) FROM status_counts")).scalar() == len(
            Status
        )


def test_a_migration_that_fails_leaves_nothing(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_cut(name: str) -> None:
        raise KeyboardInterrupt(name)

    with monkeypatch.context() as cut:
        cut.setattr("edgeyard.scheduler.store.migrate.failpoint", power_cut)
        with pytest.raises(KeyboardInterrupt):
            SqlStore(empty_url)
    with _engine(empty_url) as engine, engine.connect() as connection:
        assert MigrationContext.configure(connection).get_current_revision() is None
    store = SqlStore(empty_url)
    store.ping()
    store.close()


def _upgrade(connection: Connection, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _add_row(connection: Connection, name: str, **values: object) -> None:
    """Insert a row, with any value in the columns that need one."""
    table = Table(name, MetaData(), autoload_with=connection)
    needed = {
        column.name: "x" if column.type.python_type is str else column.type.python_type(0)
        for column in table.columns
        if not column.nullable and column.server_default is None
    }
    connection.execute(table.insert().values(needed | values))


def test_boards_that_two_attempts_held_do_not_stop_the_upgrade(empty_url: str) -> None:
    attempts = [  # benchmark, board, state, binding, created at
        ("oldest", "board-1", "running", "strict", 1),
        ("newer", "board-1", "running", "strict", 2),
        ("newest", "board-1", "prepared", "strict", 2),
        ("ended", "board-1", "ended", "strict", 3),
        ("loose", "board-1", "running", "loose", 4),
        ("alone", "board-2", "running", "strict", 1),
        ("anywhere-1", None, "running", "strict", 1),
        ("anywhere-2", None, "running", "strict", 1),
    ]
    with _engine(empty_url) as engine:
        with engine.begin() as connection:
            _upgrade(connection, "0007")
            for benchmark_id, uid, state, binding, created_at in attempts:
                status = "completed" if state == "ended" else "running"
                _add_row(connection, "benchmarks", benchmark_id=benchmark_id, status=status)
                _add_row(
                    connection,
                    "attempts",
                    benchmark_id=benchmark_id,
                    job_id=benchmark_id,
                    target_uid=uid,
                    state=state,
                    binding=binding,
                    created_at=created_at,
                )
        SqlStore(empty_url).close()
        with engine.connect() as connection:
            found = connection.execute(text("SELECT benchmark_id, binding FROM attempts"))
            bindings = {benchmark_id: binding for benchmark_id, binding in found}
    assert bindings == {
        "oldest": "filtered",
        "newer": "filtered",
        "newest": "strict",
        "ended": "strict",
        "loose": "loose",
        "alone": "strict",
        "anywhere-1": "strict",
        "anywhere-2": "strict",
    }


def test_data_that_a_migration_does_not_fit_is_reported(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def migrate(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE boards_of_before (uid INTEGER)"))
        connection.execute(text("INSERT INTO boards_of_before VALUES (1), (1)"))
        connection.execute(text("CREATE UNIQUE INDEX uq_before ON boards_of_before (uid)"))

    monkeypatch.setattr("edgeyard.scheduler.store.sql_store.migrate", migrate)
    with pytest.raises(ConfigError, match=r"(?is)upgraded.*unique"):
        SqlStore(empty_url)
    with _engine(empty_url) as engine, engine.connect() as connection:
        assert not inspect(connection).has_table("boards_of_before")


def test_a_newer_database_is_refused(database_url: str) -> None:
    with _engine(database_url) as engine, engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ConfigError, match="9999"):
        SqlStore(database_url)


def test_a_foreign_database_is_refused_and_left_alone(empty_url: str) -> None:
    with _engine(empty_url) as engine, engine.begin() as connection:
        connection.execute(text("CREATE TABLE benchmarks (x INTEGER)"))
    with pytest.raises(ConfigError, match="of its own"):
        SqlStore(empty_url)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database" * 1000)
    with pytest.raises(ConfigError, match=r"text\.db"):
        SqlStore(f"sqlite:///{tmp_path}/text.db")


@pytest.mark.parametrize(
    "url", ["", "nonsense", "sqlite://", "sqlite:///:memory:", "mysql://u:CANARY@h/d"]
)
def test_a_wrong_url_is_refused_without_repeating_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SqlStore(url)
    assert "CANARY" not in str(refused.value)


def test_the_database_itself_keeps_ends_as_they_are(database_url: str) -> None:
    store = SqlStore(database_url)
    with store.write() as uow:
        for status in Status:
            uow.benchmarks.add(make.a_benchmark(status.value, status=status))
        uow.attempts.add_all([make.an_attempt("failed", state=AttemptState.ENDED)])
    store.close()
    with _engine(database_url) as engine:
        for status in TERMINAL:
            with pytest.raises(IntegrityError, match="never changes"), engine.begin() as connection:
                connection.execute(
                    text("UPDATE benchmarks SET status = 'pending' WHERE status = :s"),
                    {"s": status.value},
                )
        with pytest.raises(IntegrityError, match="never changes"), engine.begin() as connection:
            connection.execute(text("UPDATE attempts SET state = 'running'"))
        with engine.begin() as connection:
            connection.execute(text("UPDATE benchmarks SET version = 7"))
            connection.execute(
                text("UPDATE benchmarks SET status = 'running' WHERE status = 'pending'")
            )


# --- what statements cost -----------------------------------------------------------------------


@contextmanager
def _statements(store: SqlStore) -> Iterator[list[tuple[str, object]]]:
    seen: list[tuple[str, object]] = []

    def note(c: object, cursor: object, statement: str, values: object, *_: object) -> None:
        if not statement.startswith("BEGIN"):
            seen.append((statement, values))

    event.listen(store._reader, "before_cursor_execute", note)
    yield seen
    event.remove(store._reader, "before_cursor_execute", note)


@pytest.mark.parametrize(
    "which",
    [
        BenchmarkFilter(),
        BenchmarkFilter(status=frozenset({Status.PENDING})),
        BenchmarkFilter(status=TERMINAL),
        BenchmarkFilter(user_id="ada"),
        BenchmarkFilter(user_id="ada", status=LIVE),
        BenchmarkFilter(family="rpi4b"),
        BenchmarkFilter(engine="ort"),
        BenchmarkFilter(model="mobilenet.onnx"),
        BenchmarkFilter(target_uid="rpi4b-0001-0001"),
        BenchmarkFilter(tag="nightly"),
    ],
)
def test_a_page_walks_an_index_in_order(sqlite_store: SqlStore, which: BenchmarkFilter) -> None:
    with sqlite_store.write() as uow:
        uow.benchmarks.add(make.a_benchmark(description=make.a_description(tags=("nightly",))))
    with _statements(sqlite_store) as seen, sqlite_store.read() as uow:
        uow.benchmarks.page(which, limit=50, cursor=None)
    assert len(seen) <= 2  # the page, and its files
    for line in _plan(sqlite_store, *seen[0]):
        assert not re.match(r"SCAN benchmark(?!.*ix_benchmarks_page)", line), line


def test_live_versions_reads_the_live_index_only(sqlite_store: SqlStore) -> None:
    with _statements(sqlite_store) as seen, sqlite_store.read() as uow:
        uow.benchmarks.live_versions()
        uow.attempts.live()
    (benchmarks,) = _plan(sqlite_store, *seen[0])
    assert "COVERING INDEX ix_benchmarks_live" in benchmarks
    assert any("uq_attempts_live" in line for line in _plan(sqlite_store, *seen[1]))


def test_one_benchmark_and_the_counts_take_few_statements(sqlite_store: SqlStore) -> None:
    with sqlite_store.write() as uow:
        uow.benchmarks.add(make.a_benchmark())
    with _statements(sqlite_store) as seen, sqlite_store.read() as uow:
        uow.benchmarks.get("b-1")
        uow.benchmarks.counts_by_status()
        uow.benchmarks.count(BenchmarkFilter(status=LIVE))
    assert len(seen) == 4  # the benchmark, its files, and twice the seven numbers
    assert not any("count(" in statement for statement, _ in seen)


def _plan(store: SqlStore, statement: str, values: Any) -> list[str]:
    url = str(store._reader.url)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    try:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    finally:
        connection.close()
    return [row[3] for row in rows]
