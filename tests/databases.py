"""Fresh databases for tests: SQLite files copied from a migrated one, and a throw-away PostgreSQL.

The fixtures are imported by ``tests/conftest.py``.
"""

from __future__ import annotations

import functools
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import NullPool, Table, create_engine, select

from deploy import programs
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.tables import metadata

_START_S = 60.0  # for a machine with its cores taken; it is some tenths of a second otherwise
_number = itertools.count(1)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty database; copying it is quicker than migrating."""
    path = tmp_path_factory.mktemp("template") / "edgeyard.db"
    SqlStore(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """URL of a fresh SQLite database of the newest schema."""
    path = tmp_path / "edgeyard.db"
    shutil.copy(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a throw-away server's own database, one server a test process.

    Skips where PostgreSQL's programs are missing.
    """
    with running_postgres() as url:
        yield url


@contextmanager
def running_postgres() -> Iterator[str]:
    """A throw-away server, and the URL of its own database."""
    folder_of_programs = _programs()
    if folder_of_programs is None:
        pytest.skip("PostgreSQL's programs (Debian: postgresql) are not installed")
    user = _user()
    # not under pytest's folder: that is closed to the server's user, and too long for a socket
    folder = Path(tempfile.mkdtemp(prefix="edgeyard-pg-"))
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    try:
        _run(
            folder_of_programs / "initdb",
            *("-D", folder / "data", "-U", "edgeyard", "-A", "trust", "-N", "-E", "UTF8"),
            "--locale=C",
            user=user,
        )
        server = subprocess.Popen(
            [
                *(folder_of_programs / "postgres", "-D", folder / "data", "-k", folder),
                *("-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200"),
            ],
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            url = f"postgresql://edgeyard@/postgres?host={folder}"
            _wait(url, server)
            yield url
        finally:
            server.terminate()
            try:
                server.wait(2)  # it waits for clients that a failed test left behind
            except subprocess.TimeoutExpired:
                server.send_signal(3)
                server.wait(10)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    """Name of a migrated, empty database; copying it is quicker than migrating."""
    _command(postgres_server, "CREATE DATABASE template_edgeyard")
    SqlStore(named(postgres_server, "template_edgeyard")).close()
    return "template_edgeyard"


@pytest.fixture
def empty_postgres_url(postgres_server: str) -> str:
    """URL of a fresh PostgreSQL database with nothing in it."""
    name = f"test_{next(_number)}"
    _command(postgres_server, f"CREATE DATABASE {name}")
    return named(postgres_server, name)


@pytest.fixture
def postgres_url(postgres_server: str, postgres_template: str) -> Iterator[str]:
    """URL of a PostgreSQL database that is like a fresh one of the newest schema."""
    name = _new_or_emptied(postgres_server, postgres_template)
    yield named(postgres_server, name)
    _postgres_used.append(name)


def _sqlite_in(folder: Path) -> str:
    return f"sqlite:///{folder}/edgeyard.db"


_url_in: Callable[[Path], str] = _sqlite_in


def database_in(folder: Path) -> str:
    """URL of the folder's own database, the same one at every call.

    SQLite, unless the test uses `each_database`.
    """
    return _url_in(folder)


def stored_text(url: str) -> str:
    """All rows of all tables, each with the names of its columns, in an order of their own.

    Where PostgreSQL puts rows depends on what it has cleaned up, so it is not the order of a copy.
    """
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.connect() as connection:
            return "\n".join(
                f"{table.name}: {row}"
                for table in metadata.sorted_tables
                for row in sorted(
                    str(dict(row)) for row in connection.execute(select(table)).mappings()
                )
            )
    finally:
        engine.dispose()


_opened: list[SqlStore] = []
_postgres_in_use: dict[Path, str] = {}
_postgres_used: list[str] = []


def open_store(folder: Path, *, now: Callable[[], datetime] | None = None) -> SqlStore:
    """A store on `database_in` the folder, which is closed at the end of the test at the latest."""
    url = database_in(folder)
    store = SqlStore(url) if now is None else SqlStore(url, now=now)
    _opened.append(store)
    return store


@pytest.fixture(autouse=True)
def closed_stores() -> Iterator[None]:
    """Close what a test opened by `open_store`, and let later tests have its databases."""
    before, in_use = len(_opened), set(_postgres_in_use)
    yield
    for store in _opened[before:]:
        store.close()
    del _opened[before:]
    for folder in _postgres_in_use.keys() - in_use:
        _postgres_used.append(_postgres_in_use.pop(folder))


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
def each_database(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the tests of a module once with `database_in` on SQLite, and once on PostgreSQL.

    Fixtures of a wider scope than a test that open a store have to name this one.
    """
    global _url_in
    kind = str(request.param)
    _url_in = (_sqlite_copies if kind == "sqlite" else _postgres_copies)(request)
    try:
        yield kind
    finally:
        _url_in = _sqlite_in


def _sqlite_copies(request: pytest.FixtureRequest) -> Callable[[Path], str]:
    template = request.getfixturevalue("sqlite_template")

    def url_in(folder: Path) -> str:
        path = folder / "edgeyard.db"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(template, path)
        return f"sqlite:///{path}"

    return url_in


def _postgres_copies(request: pytest.FixtureRequest) -> Callable[[Path], str]:
    server = request.getfixturevalue("postgres_server")
    template = request.getfixturevalue("postgres_template")

    def url_in(folder: Path) -> str:
        name = _postgres_in_use.get(folder)
        if name is None:
            name = _new_or_emptied(server, template)
        _postgres_in_use[folder] = name
        return named(server, name)

    def forget() -> None:
        _postgres_used.extend(_postgres_in_use.values())
        _postgres_in_use.clear()

    request.addfinalizer(forget)
    return url_in


def _new_or_emptied(server: str, template: str) -> str:
    """Name of a database that holds what a new one holds.

    To empty a used one takes less time than to make one, and to delete it at the end.
    """
    while _postgres_used:
        name = _postgres_used.pop()
        if empty(named(server, name), named(server, template)):
            return name
    name = f"test_{next(_number)}"
    _command(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    return name


def empty(url: str, template_url: str) -> bool:
    """Bring a database back to what a new one holds; False if a test has changed its schema."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    if _schema(url) != _first_schema(template_url):
        return False
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with engine.begin() as connection:
        tables = [f'DELETE FROM "{table.name}"' for table in reversed(metadata.sorted_tables)]
        connection.exec_driver_sql("; ".join(tables))
        connection.exec_driver_sql("SELECT setval(seqrelid, seqstart, false) FROM pg_sequence")
        for table, rows in _first_rows(template_url):
            connection.execute(table.insert(), rows)
    engine.dispose()
    return True


_SCHEMA = (
    "SELECT attrelid::regclass::text, attname, format_type(atttypid, atttypmod), attnotnull,"
    " attidentity FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
    " WHERE relnamespace = 'public'::regnamespace AND attnum > 0",
    "SELECT adrelid::regclass::text, adnum, pg_get_expr(adbin, adrelid) FROM pg_attrdef",
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'public'::regnamespace",
    "SELECT tgname, tgenabled, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
    "SELECT setconfig FROM pg_db_role_setting JOIN pg_database ON setdatabase = pg_database.oid"
    " WHERE datname = current_database()",
)
"""What together states the tables of a database and the rules about their rows."""


def _schema(url: str) -> list[object]:
    """All of a database but the rows of its tables, and the version that is recorded of it."""
    with psycopg.connect(url, autocommit=True) as connection:
        found: list[object] = [sorted(connection.execute(each).fetchall()) for each in _SCHEMA]
        known = connection.execute("SELECT to_regclass('public.alembic_version')").fetchone()
        if known != (None,):
            found.append(connection.execute("SELECT version_num FROM alembic_version").fetchall())
    return found


@functools.cache
def _first_schema(template_url: str) -> list[object]:
    """The schema that migrations make."""
    return _schema(template_url)


@functools.cache
def _first_rows(template_url: str) -> list[tuple[Table, list[dict[str, object]]]]:
    """What migrations put into tables of an empty database."""
    url = template_url.replace("postgresql:", "postgresql+psycopg:")
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        found = [
            (table, [dict(row) for row in connection.execute(select(table)).mappings()])
            for table in metadata.sorted_tables
        ]
    return [(table, rows) for table, rows in found if rows]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of a fresh database, once of each kind."""
    url = request.getfixturevalue(f"{request.param}_url")
    assert isinstance(url, str)
    return url


@pytest.fixture
def store(database_url: str) -> Iterator[SqlStore]:
    """A fresh store, once on each database."""
    opened = SqlStore(database_url)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_store(sqlite_url: str) -> Iterator[SqlStore]:
    """A fresh store on SQLite, for tests of what uses a store."""
    opened = SqlStore(sqlite_url)
    yield opened
    opened.close()


def _programs() -> Path | None:
    found = programs.find("initdb")
    return None if found is None else Path(found).parent


def _user() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root; None: as who we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    pytest.skip("PostgreSQL doesn't run as root, and there is no user postgres or nobody")


def _run(*command: str | Path, user: pwd.struct_passwd | None) -> None:
    done = subprocess.run(
        command,
        user=None if user is None else user.pw_uid,
        group=None if user is None else user.pw_gid,
        extra_groups=None if user is None else [],
        cwd="/",
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            assert server.poll() is None, "PostgreSQL ended at its start"
            assert time.monotonic() < deadline, "PostgreSQL did not start"
            time.sleep(0.05)


def _command(url: str, command: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(command.encode())


def named(url: str, database: str) -> str:
    return url.replace("/postgres?", f"/{database}?")
