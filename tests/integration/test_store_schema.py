"""Tables and migrations, guards in the database, and statements that don't read everything."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.exc import IntegrityError

from edgeyard.errors import ConfigError
from edgeyard.scheduler.model.accounting import UsageBy
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import LIVE, TERMINAL, Status
from edgeyard.scheduler.ports import BenchmarkFilter
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.migrate import revisions
from edgeyard.scheduler.store.tables import metadata
from tests import databases
from tests.builders import records as make

DATA = Path(__file__).parents[1] / "data"


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


def _differences(url: str) -> list[Any]:
    """What the tables of a database have and those of the code do not, and the reverse."""
    with _engine(url) as engine, engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert context.get_current_revision() == revisions()[1]
        found: list[Any] = compare_metadata(context, metadata)
        return found


def test_an_empty_database_gets_the_tables_that_the_code_knows(empty_url: str) -> None:
    SqlStore(empty_url).close()
    assert _differences(empty_url) == []
    SqlStore(empty_url).close()


def test_the_first_schema_is_upgraded_to_the_tables_that_the_code_knows(empty_url: str) -> None:
    _make_first_schema(empty_url)
    SqlStore(empty_url).close()
    assert _differences(empty_url) == []


def _make_first_schema(url: str) -> None:
    """Make the database that the first schema was; the file of its statements never changes."""
    file = DATA / f"schema_0046_{url.partition(':')[0]}.sql"
    statements = file.read_text(encoding="utf-8").splitlines()
    with _engine(url) as engine, engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def _insert(connection: Connection, table: str, **values: object) -> None:
    names, places = ", ".join(values), ", ".join(f":{each}" for each in values)
    connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({places})"), values)


def _add_benchmark(connection: Connection, benchmark_id: str, **changes: object) -> None:
    kind = {"family": "rpi4b", "engine": "ort", "benchmark_type": "TYPE1"} | changes
    _insert(
        connection, "benchmarks", benchmark_id=benchmark_id, user_id="ada", submit_time=0,
        status="completed", model="m.onnx", held=False, unpinned=False, lost_in_a_row=0, version=1,
        **kind,
    )  # fmt: skip


def _add_attempt(connection: Connection, benchmark_id: str, started_at: int | None) -> None:
    """Add an attempt that was created at 1 s."""
    _add_benchmark(connection, benchmark_id)
    _insert(
        connection, "attempts", benchmark_id=benchmark_id, number=1, job_id=benchmark_id,
        state="ended", binding="loose", priority=50, created_at=1_000_000, started_at=started_at,
        family="rpi4b", allowed_uids="[]", counts=True, version=1, hcl="",
    )  # fmt: skip


def _add_outcome(connection: Connection, seq: int, benchmark_id: str, **values: object) -> None:
    _insert(
        connection, "outcomes", seq=seq, benchmark_id=benchmark_id, attempt=1,
        family="rpi4b", engine="ort", benchmark_type="TYPE1", run_s=5.0, ended_at=9_000_000,
        user_id="ada", nb_inference=20, variant="", replaces=0, **values,
    )  # fmt: skip


def test_an_upgrade_fills_in_the_time_of_loading_of_attempts_that_are_still_stored(
    empty_url: str,
) -> None:
    _make_first_schema(empty_url)
    with _engine(empty_url) as engine, engine.begin() as connection:
        _add_attempt(connection, "started", 3_500_000)
        _add_attempt(connection, "refused", None)
        for seq, benchmark_id in enumerate(("started", "refused", "deleted"), 1):
            _add_outcome(connection, seq, benchmark_id)
    store = SqlStore(empty_url)
    with store.read() as uow:
        found = {each.benchmark_id: each.loading_s for each in uow.attempts.outcomes()}
    store.close()
    assert found == {"started": 2.5, "refused": None, "deleted": None}


def test_an_upgrade_gives_language_models_their_role(empty_url: str) -> None:
    _make_first_schema(empty_url)
    genai = {"engine": "ort-genai", "benchmark_type": "GENAI"}
    kinds = {"genai": genai, "one-pass": {"engine": "ort-genai"}, "other": {}}
    with _engine(empty_url) as engine, engine.begin() as connection:
        for benchmark_id, kind in kinds.items():
            _add_benchmark(connection, benchmark_id, **kind)
            for role in ("model", "dataset"):
                _insert(
                    connection, "benchmark_files", benchmark_id=benchmark_id, role=role,
                    position=0, name=role, kept=False,
                )  # fmt: skip
    SqlStore(empty_url).close()
    with _engine(empty_url) as engine, engine.connect() as connection:
        found = connection.execute(text("SELECT benchmark_id, role FROM benchmark_files")).all()
    assert {tuple(each) for each in found} == {
        *((benchmark_id, "dataset") for benchmark_id in kinds),
        *(("genai", "language_model"), ("one-pass", "language_model"), ("other", "model")),
    }


def test_an_upgrade_takes_the_p50_for_the_primary_metric_of_outcomes(empty_url: str) -> None:
    _make_first_schema(empty_url)
    measured = {"target_uid": "rpi4b-0001-0001", "latency_p50_ms": 12.5, "workload": "w"}
    with _engine(empty_url) as engine, engine.begin() as connection:
        _add_outcome(connection, 1, "measured", **measured, p50_error=0.01)
        _add_outcome(connection, 2, "failed")
    store = SqlStore(empty_url)
    with store.read() as uow:
        found = {
            each.benchmark_id: (each.primary_metric, each.primary_better, each.primary_value)
            for each in uow.attempts.outcomes()
        }
        (repeated,) = uow.attempts.repeated_numbers(family="rpi4b", newest=9)
    store.close()
    assert found == {"measured": ("p50", "lower", 12.5), "failed": (None, None, None)}
    assert (repeated.value, repeated.error) == (12.5, 0.01)


def test_an_upgrade_reports_what_was_used_before_it(empty_url: str) -> None:
    _make_first_schema(empty_url)
    charge = {
        "attempt": 1, "user_id": "ada", "family": "rpi4b", "rate": 1.0, "time_limit_s": 60.0,
        "reserved": 60_000_000, "reserved_at": 0, "charged": 5_000_000, "board_s": 5.0,
        "refunded": "", "settled_at": 9_000_000,
    }  # fmt: skip
    with _engine(empty_url) as engine, engine.begin() as connection:
        _add_attempt(connection, "started", 3_500_000)
        _add_attempt(connection, "refused", None)
        for benchmark_id in ("started", "refused"):
            _insert(connection, "charges", benchmark_id=benchmark_id, **charge)
    store = SqlStore(empty_url)
    with store.read() as uow:
        (row,) = uow.accounting.usage(UsageBy.ENGINE, "1970-01")
    store.close()
    assert (row.key, row.runs, row.not_started) == ("ort", 1, 1)
    assert (row.board_s, row.credits, row.wait_s) == (10.0, 10.0, 3.5)


def test_an_upgrade_counts_the_booked_starts_of_benchmarks_that_wait(empty_url: str) -> None:
    _make_first_schema(empty_url)
    starts = {"booked": '"2026-11-28T12:00:00+00:00"', "none": "null"}
    with _engine(empty_url) as engine, engine.begin() as connection:
        for benchmark_id, start in starts.items():
            _insert(
                connection, "benchmarks", benchmark_id=benchmark_id, user_id="ada", submit_time=0,
                status="pending", model="m.onnx", held=False, unpinned=False, lost_in_a_row=0,
                version=1, family="rpi4b", engine="ort", benchmark_type="TYPE1",
            )  # fmt: skip
            body = f'{{"start_time": {start}}}'
            _insert(connection, "descriptions", benchmark_id=benchmark_id, body=body)
    store = SqlStore(empty_url)
    at = datetime(2026, 11, 28, 12, tzinfo=UTC)
    with store.read() as uow:
        found = [
            uow.usage.bookings("ada", at - timedelta(seconds=1)),
            uow.usage.bookings("ada", at),
        ]
    store.close()
    assert found == [1, 0]


def test_an_upgrade_retires_models_that_predict_one_chance_for_all_causes(empty_url: str) -> None:
    _make_first_schema(empty_url)
    with _engine(empty_url) as engine, engine.begin() as connection:
        for kind, version, state in (
            ("failure", 1, "retired"),
            ("failure", 2, "active"),
            ("failure", 3, "shadow"),
            ("failure", 4, "candidate"),
            ("run_time", 1, "active"),
        ):
            _insert(
                connection, "models", kind=kind, version=version, state=state, sha256="0" * 64,
                manifest="", features="", data="{}", metrics="{}", gates="[]", card="",
                created_at=0, state_at=0, by_user_id="", reason="trained",
            )  # fmt: skip
    store = SqlStore(empty_url)
    with store.read() as uow:
        found = {each.reference: (each.state.value, each.reason) for each in uow.models.all()}
    store.close()
    retired = ("retired", "models of failures predict by cause now: train one again")
    assert found == {
        "failure/1": ("retired", "trained"),
        "failure/2": retired,
        "failure/3": retired,
        "failure/4": retired,
        "run_time/1": ("active", "trained"),
    }


def test_tables_that_no_migration_makes_are_found(empty_url: str) -> None:
    SqlStore(empty_url).close()
    with _engine(empty_url) as engine, engine.begin() as connection:
        connection.execute(text("ALTER TABLE users DROP COLUMN share"))
    ((kind, _, table, column),) = _differences(empty_url)
    assert (kind, table, column.name) == ("add_column", "users", "share")


@pytest.mark.postgres
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE alembic_version SET version_num = '0046'",
        "DROP TRIGGER guard_attempts ON attempts",
        "ALTER TABLE users ALTER COLUMN share DROP NOT NULL",
    ],
)
def test_a_database_that_tests_share_is_emptied_unless_its_schema_was_changed(
    postgres_url: str, postgres_server: str, postgres_template: str, change: str
) -> None:
    template_url = databases.named(postgres_server, postgres_template)
    store = SqlStore(postgres_url)
    with store.write() as uow:
        uow.benchmarks.add(make.a_benchmark())
    store.close()
    assert databases.stored_text(postgres_url) != databases.stored_text(template_url)
    assert databases.empty(postgres_url, template_url)
    with _engine(postgres_url) as engine, engine.begin() as connection:
        connection.execute(text("UPDATE status_counts SET stored = 0 WHERE status = 'pending'"))
    assert databases.stored_text(postgres_url) == databases.stored_text(template_url)
    with _engine(postgres_url) as engine, engine.begin() as connection:
        connection.execute(text(change))
    assert not databases.empty(postgres_url, template_url)


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


@pytest.mark.parametrize("schema", ["0045", "9999", "x"])
def test_a_database_of_another_schema_is_refused(database_url: str, schema: str) -> None:
    with _engine(database_url) as engine, engine.begin() as connection:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{schema}'"))
    with pytest.raises(ConfigError, match=rf"schema {schema},.* 0046 to .*an empty"):
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
