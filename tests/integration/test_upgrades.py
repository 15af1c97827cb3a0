"""Databases that servers of earlier commits have left are upgraded, and lose nothing.

`tests/data/make_stored_database.py` made them. A server killed half-way has changed nothing.
"""

from __future__ import annotations

import gzip
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import MetaData, create_engine, select
from typer.testing import CliRunner

from deploy.process import start
from edgeyard.benchmark_api.cli import app
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.migrate import MIGRATIONS, revisions
from tests.integration.test_store_schema import _differences as differences

DATA = Path(__file__).parents[1] / "data"
FIRST = "7af483e3"
"""The commit from whose schema on every database is upgraded."""

FIRST_SCHEMA = "0054"
RELEASES = re.findall(
    r"^## \[(.+)\] - ", (DATA.parents[1] / "CHANGELOG.md").read_text("utf-8"), re.M
)
STORED = [FIRST, *RELEASES]
KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]

Rows = Mapping[str, Mapping[tuple[object, ...], Mapping[str, object]]]
"""By table and primary key."""

LEARNED_ANEW = {"alembic_version", "forecast_results"}
"""Tables whose rows an upgrade is to replace: scores of forecasts were in other units (0058)."""


def stored_text(stored: str, kind: str) -> str:
    return gzip.decompress((DATA / f"stored_{stored}_{kind}.sql.gz").read_bytes()).decode()


def stored_schema(stored: str, kind: str) -> str:
    (found,) = re.findall(
        r"^INSERT INTO .*alembic_version.*\('(\w+)'", stored_text(stored, kind), re.M
    )
    return str(found)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, stored: str, kind: str) -> str:
    """URL of a database as the server of that commit or release left it."""
    text = stored_text(stored, kind)
    if kind == "sqlite":
        (tmp_path / "lab").mkdir()
        connection = sqlite3.connect(tmp_path / "lab/edgeyard.db")
        connection.executescript(text)
        connection.close()
        return f"sqlite:///{tmp_path}/lab/edgeyard.db"
    found = str(request.getfixturevalue("empty_postgres_url"))
    with psycopg.connect(found, autocommit=True) as postgres:
        postgres.execute(text.encode())
    return found


def rows(url: str) -> Rows:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        tables = MetaData()
        tables.reflect(connection)
        found = {
            table.name: {
                tuple(row[column.name] for column in table.primary_key)
                or tuple(row.values()): dict(row)
                for row in connection.execute(select(table)).mappings()
            }
            for table in tables.sorted_tables
        }
    engine.dispose()
    return found


def lost(before: Rows, after: Rows) -> list[str]:
    """Rows that are gone, and values that are others."""
    found = []
    for table, stored in before.items():
        if table in LEARNED_ANEW:
            continue
        for key, row in stored.items():
            now = after.get(table, {}).get(key)
            if now is None:
                found.append(f"{table} {key}")
                continue
            found += [
                f"{table} {key} {column}: {value!r} is {now[column]!r}"
                for column, value in row.items()
                if column in now and now[column] != value
            ]
    return found


def test_there_are_databases_of_the_first_schema_and_of_each_release_of_both_kinds() -> None:
    names = {each.name for each in DATA.glob("stored_*.sql.gz")}
    assert names == {f"stored_{each}_{kind}.sql.gz" for each in STORED for kind in
                     ("sqlite", "postgresql")}  # fmt: skip
    assert sum((DATA / name).stat().st_size for name in names) < 1_000_000
    assert stored_schema(FIRST, "sqlite") == FIRST_SCHEMA


def test_no_migration_is_ever_removed() -> None:
    """They are one chain, from the first one to the newest, and through all that was stored."""
    known, head = revisions()
    files = [path.read_text() for path in MIGRATIONS.glob("versions/v*.py")]
    below = {
        revision: before[0] if before else None
        for text in files
        for revision in re.findall(r'^revision = "(\w+)"', text, re.M)
        for before in [re.findall(r'^down_revision = "(\w+)"', text, re.M)]
    }
    chain: list[str] = []
    at: str | None = head
    while at is not None:
        chain.append(at)
        at = below[at]
    assert set(chain) == known
    assert chain[-1] == "0046"
    schemas = [stored_schema(each, "sqlite") for each in STORED]
    assert schemas == [stored_schema(each, "postgresql") for each in STORED]
    assert set(schemas) <= known


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", STORED)
def test_a_stored_database_is_upgraded_and_loses_nothing(url: str) -> None:
    before = rows(url)
    assert len(before["benchmarks"]) > 5
    assert len(before["outcomes"]) > 1
    SqlStore(url).close()
    assert differences(url) == []
    assert lost(before, rows(url)) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", [FIRST])
@pytest.mark.parametrize("number", [1, 2, 6, "last"])
def test_an_upgrade_that_is_killed_half_way_has_changed_nothing_and_is_run_again(
    url: str, number: int | str
) -> None:
    before = rows(url)
    steps = sum(each > FIRST_SCHEMA for each in revisions()[0]) + 2  # before, each migration, after
    armed = str(steps if number == "last" else number)
    program = f"from edgeyard.scheduler.store import SqlStore; SqlStore({url!r})"
    killed = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"EDGEYARD_FAILPOINT": armed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == 137, killed.stderr
    where = {"1": "migrate:before", str(steps): "migrate:after"}.get(armed, "migrate:applied")
    assert where in killed.stderr
    assert rows(url) == before
    SqlStore(url).close()
    assert differences(url) == []
    assert lost(before, rows(url)) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", [FIRST])
def test_a_server_serves_what_an_older_one_has_stored(
    url: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {} if kind == "sqlite" else {"EDGEYARD_DATABASE_URL": url}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    data = tmp_path / "lab"
    data.mkdir(exist_ok=True)
    made = CliRunner().invoke(app, ["server", "admin-token", "--data-dir", str(data)])
    assert made.exit_code == 0, made.output
    server = replace(start(data, settings), token=made.stdout.strip())
    try:
        shown = {each: server.show(each)["status"] for each in ("done", "second", "late", "waits")}
        assert shown == dict.fromkeys(("done", "second"), "completed") | dict.fromkeys(
            ("late", "waits"), "pending"
        )
        results = server.call("GET", "/v1/results?benchmark_id=done")
        assert results["items"][0]["primary_value"] > 0
        boards = server.call("GET", "/v1/boards/emuslow-0001-0001")
        assert (boards["state"], boards["reason"]) == ("drained", "fan")
        assert "ada" in [each["user_id"] for each in server.call("GET", "/v1/users")["items"]]
    finally:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=60)
