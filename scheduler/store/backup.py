"""Copies of a whole database: made while servers use it, checked, and put back.

SQLite is copied by its online backup, PostgreSQL by ``pg_dump`` and ``pg_restore``. Nothing here
changes a schema: a copy has the one that the database had.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import inspect, text
from sqlalchemy.exc import DatabaseError

from edgeyard.atomic_files import sync_folder
from edgeyard.errors import ConfigError, OutOfSpace, Unavailable
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.model.database_state import DatabaseState
from edgeyard.scheduler.store.migrate import revisions
from edgeyard.scheduler.store.sql_store import WAIT_S, SqlStore, engine_of_postgresql, parsed_url

_STATE = "SELECT version_num, last_seq FROM alembic_version, event_counter"
_FULL = ("No space left on device", "disk is full")


class DatabaseCopier:
    """Copies the database of a URL to a file, and back."""

    def __init__(self, url: str, programs: Path | None = None) -> None:
        """Nothing is opened yet.

        Args:
            url: Of the database, as for `SqlStore`.
            programs: Folder of ``pg_dump`` and ``pg_restore``; None: found on PATH, or where Debian
                has them.

        Raises:
            ConfigError: The URL is wrong.
        """
        self._url = parsed_url(url)
        self._programs = programs
        self.kind = self._url.get_backend_name()
        self.path = Path(self._url.database or "") if self.kind == "sqlite" else None
        self.shown = self._url.set(drivername=self.kind).render_as_string(hide_password=True)

    def state(self) -> DatabaseState | None:
        """Return how far the database has come; None: there is none, or it is empty.

        Raises:
            ConfigError: It is not one of Edgeyard, or can't be read.
            Unavailable: It does not answer.
        """
        if self.path is not None:
            return _state_of_file(self.path) if self.path.exists() else None
        engine = engine_of_postgresql(self._url, WAIT_S)
        try:
            with engine.connect() as connection:
                if not inspect(connection).get_table_names():
                    return None
                schema, events = connection.execute(text(_STATE)).one()
                return DatabaseState(schema, events)
        except DatabaseError as error:
            raise Unavailable(f"cannot read {self.shown}: {error.orig}") from error
        finally:
            engine.dispose()

    def copy(self, target: Path) -> DatabaseState:
        """Write a consistent copy of the database as it is now; servers may go on using it.

        Raises:
            ConfigError: There is no database, or ``pg_dump`` is missing or refuses.
            OutOfSpace: The disk of the target is full.
            Unavailable: The database does not answer.
        """
        before = self.state()
        if before is None:
            raise ConfigError([f"{self.shown} is no database of Edgeyard: nothing to back up"])
        if self.path is None:
            self._run("pg_dump", "--format=custom", f"--file={target}", doing="writing the backup")
            return before
        with (
            _translated("writing the backup", self.shown),
            closing(_reader(self.path)) as source,
            closing(sqlite3.connect(target)) as made,
        ):
            # In one step: a copy in several begins anew at each commit, so never ends under load.
            # The log lets others write meanwhile.
            source.backup(made, pages=-1)
        return _state_of_file(target)

    def check_schema(self, schema: str) -> None:
        """Check that this code can upgrade a copy of this schema.

        Raises:
            ConfigError: A newer Edgeyard wrote it, or one older than the first migration.
        """
        known, head = revisions()
        if schema not in known:
            newer = "newer " if schema > head else ""
            raise ConfigError(
                [
                    f"the backup has schema {schema}, and this Edgeyard can use {min(known)} to "
                    f"{head} only: use the {newer}Edgeyard that made it"
                ]
            )

    def check(self, copy: Path, *, upgrade: bool) -> None:
        """Check that a copy is whole and that this code can use it.

        Args:
            copy: Written by `copy`; an SQLite file is upgraded.
            upgrade: Also try the migrations to the schema of this code (SQLite alone).

        Raises:
            ConfigError: It is damaged, or can't be upgraded.
        """
        if self.kind != "sqlite":
            self._run("pg_restore", "--list", str(copy), connects=False, doing="reading the backup")
            return
        with (
            _translated("checking the backup", "the database of the backup"),
            closing(sqlite3.connect(copy)) as connection,
        ):
            found = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
        if found != ["ok"]:
            raise ConfigError([f"the database of the backup is damaged: {'; '.join(found)}"])
        if upgrade:
            SqlStore(f"sqlite:///{copy}").close()

    def restore(self, copy: Path) -> None:
        """Put a copy where there is no database, all at once.

        Raises:
            ConfigError: There is one, or ``pg_restore`` is missing or refuses.
            OutOfSpace: The disk of the database is full; there is none as before.
            Unavailable: The database does not answer.
        """
        if self.path is None:
            options = ("--single-transaction", "--exit-on-error", str(copy))
            self._run("pg_restore", *options, doing="restoring the database")
            return
        part = self.path.with_name(f".{self.path.name}.part")
        with _translated("restoring the database", self.shown):
            try:
                with copy.open("rb") as source, part.open("wb") as target:
                    part.chmod(0o600)
                    shutil.copyfileobj(source, target, 1 << 20)
                    target.flush()
                    os.fsync(target.fileno())
                failpoint("restore:database")
                part.replace(self.path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            sync_folder(self.path.parent)

    def leftovers(self) -> Sequence[Path]:
        """Return logs of an SQLite database that is not there itself."""
        if self.path is None or self.path.exists():
            return ()
        names = (
            self.path.with_name(f"{self.path.name}-{end}") for end in ("wal", "shm", "journal")
        )
        return [each for each in names if each.exists()]

    def _run(self, program: str, *arguments: str, doing: str, connects: bool = True) -> None:
        """Run a program of PostgreSQL; the password is in its environment, not its arguments."""
        environment = dict(os.environ)
        options = ["--no-owner", "--no-privileges"]
        if connects:
            bare = self._url._replace(drivername="postgresql", password=None)
            options += ["--no-password", f"--dbname={bare.render_as_string(hide_password=False)}"]
            if self._url.password is not None:
                environment["PGPASSWORD"] = str(self._url.password)
        command = [str(self._program(program)), *options, *arguments]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise ConfigError([f"{command[0]} can't be run: {error.strerror}"]) from error
        if done.returncode == 0:
            return
        message = done.stderr.strip() or f"status {done.returncode}"
        if any(each in message for each in _FULL):
            raise OutOfSpace(doing)
        raise ConfigError([f"{doing}: {program} failed: {message[-1000:]}"])

    def _program(self, name: str) -> Path:
        """Return its path: of the stated folder, on PATH, or the newest that Debian has."""
        if self._programs is not None:
            return self._programs / name
        found = shutil.which(name)
        versions = sorted(
            Path("/usr/lib/postgresql").glob(f"*/bin/{name}"),
            key=lambda path: float(path.parts[-3]),
        )
        if found is None and not versions:
            raise ConfigError(
                [
                    f"{name} is not found: install the client programs of PostgreSQL (Debian: "
                    "postgresql-client), or name their folder with --pg-programs"
                ]
            )
        return versions[-1] if found is None else Path(found)


def _state_of_file(path: Path) -> DatabaseState:
    with _translated("reading the database", str(path)), closing(_reader(path)) as connection:
        found = connection.execute(_STATE).fetchone()
    if found is None:
        raise ConfigError([f"{path} is not a database of Edgeyard"])
    return DatabaseState(*found)


def _reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=WAIT_S)


@contextmanager
def _translated(doing: str, where: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if any(each in str(error) for each in _FULL):
            raise OutOfSpace(doing) from error
        raise ConfigError([f"{where} can't be used: {error}"]) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise OutOfSpace(doing) from error
        raise ConfigError([f"{doing}: {error.strerror}"]) from error
