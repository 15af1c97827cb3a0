"""The store: engines, transactions, and the settings that keep each database safe."""

from __future__ import annotations

import copy
import logging
import math
import os
import random
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Executable,
    Table,
    UnaryExpression,
    create_engine,
    event,
    make_url,
    select,
)
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DataError,
    IntegrityError,
    NoSuchModuleError,
)
from sqlalchemy.pool import ConnectionPoolEntry

from edgeyard.errors import (
    ConcurrentUpdate,
    ConfigError,
    DatabaseDamaged,
    InvalidInput,
    OutOfSpace,
    Unavailable,
)
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.retention import Limits, PruneReport, RetentionClass
from edgeyard.scheduler.ports import Store, UnitOfWork
from edgeyard.scheduler.store.accounting import SqlAccounting
from edgeyard.scheduler.store.accounts import SqlAccounts
from edgeyard.scheduler.store.attempts import SqlAttempts
from edgeyard.scheduler.store.ballast import Ballast
from edgeyard.scheduler.store.benchmarks import SqlBenchmarks
from edgeyard.scheduler.store.boards import SqlBoardOverrides, SqlRegistrations
from edgeyard.scheduler.store.canaries import SqlCanaries
from edgeyard.scheduler.store.checks import SqlChecks
from edgeyard.scheduler.store.contents import SqlFiles
from edgeyard.scheduler.store.credits import SqlCredits
from edgeyard.scheduler.store.cycles import RunCache, SqlCycles
from edgeyard.scheduler.store.leadership import SqlLeadership
from edgeyard.scheduler.store.log import SqlLog
from edgeyard.scheduler.store.migrate import migrate
from edgeyard.scheduler.store.models import SqlModels
from edgeyard.scheduler.store.policies import SqlPolicies
from edgeyard.scheduler.store.progress import PhaseProgress, ProgressBuffer, write_progress
from edgeyard.scheduler.store.prune import RULES, Rule, limit_of, rows_to_prune
from edgeyard.scheduler.store.readers import SqliteReaders
from edgeyard.scheduler.store.reservations import SqlReservations
from edgeyard.scheduler.store.scenarios import SqlScenarios, SqlSimulations
from edgeyard.scheduler.store.scoring import SqlScoring
from edgeyard.scheduler.store.series import SqlSeries
from edgeyard.scheduler.store.shares import SqlShares
from edgeyard.scheduler.store.submissions import SqlCampaigns, SqlSchedules
from edgeyard.scheduler.store.subscriptions import (
    SqlDeliveries,
    SqlLabConditions,
    SqlSubscriptions,
)
from edgeyard.scheduler.store.tables import (
    attempts,
    benchmarks,
    descriptions,
    event_counter,
    events,
    result_files,
    tokens,
    user_files,
    users,
)
from edgeyard.scheduler.store.transaction import Row, Transaction, translated
from edgeyard.scheduler.store.uploads import SqlUploads
from edgeyard.scheduler.store.usage import SqlUsage
from edgeyard.scheduler.store.webhooks import SqlWebhooks
from edgeyard.scheduler.store.write_queue import WriteQueue

logger = logging.getLogger(__name__)

WAIT_S = 5.0
"""Maximum wait for the write lock or a connection; after that a client gets 503 and may retry."""

IDLE_S = 10.0
"""Maximum pause within a transaction, after which PostgreSQL ends it: its process is stopped."""

RETRY_DELAYS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0)
"""Maximum delays before the retries of a transaction that conflicts with others."""

CONNECTIONS = 40
"""Connections at a time: as many as a web server has worker threads; each waits at most `WAIT_S`
for a free one."""

# WAL: readers and the one writer don't wait for each other. Killing the process loses nothing that
# was committed whatever `synchronous` is; only FULL, which syncs the log at every commit, makes a
# commit survive a power cut too, and a result answered 2xx must.
_SQLITE_PRAGMAS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA journal_size_limit = 67108864",  # 64 MiB: a long reader may grow the log, not for ever
    "PRAGMA temp_store = MEMORY",
)

_CACHED_STATEMENTS = 300
"""Cached statements per connection to SQLite. An engine uses a few hundred of up to 20 KiB."""

_LOCKED_S = 0.02
_MIN_FREE_PAGES = 256  # 1 MiB: new rows take these before long
_PAGES_PER_VACUUM = 64

_Result = TypeVar("_Result")


class SqlUnitOfWork(UnitOfWork):
    """`UnitOfWork` on one transaction."""

    def __init__(self, tx: Transaction, now: Callable[[], datetime], store: SqlStore) -> None:
        self.tx = tx
        self.benchmarks = SqlBenchmarks(tx, store._progress)
        self.attempts = SqlAttempts(tx, store._progress)
        self.files = SqlFiles(tx, now)
        self.accounts = SqlAccounts(tx)
        self.log = SqlLog(tx, now)
        self.cycles = SqlCycles(tx, store._runs)
        self.policies = SqlPolicies(tx)
        self.campaigns = SqlCampaigns(tx)
        self.schedules = SqlSchedules(tx)
        self.board_overrides = SqlBoardOverrides(tx)
        self.registrations = SqlRegistrations(tx)
        self.webhooks = SqlWebhooks(tx)
        self.subscriptions = SqlSubscriptions(tx)
        self.deliveries = SqlDeliveries(tx)
        self.lab_conditions = SqlLabConditions(tx)
        self.credits = SqlCredits(tx)
        self.reservations = SqlReservations(tx)
        self.scoring = SqlScoring(tx)
        self.leadership = SqlLeadership(tx)
        self.usage = SqlUsage(tx)
        self.scenarios = SqlScenarios(tx)
        self.simulations = SqlSimulations(tx)
        self.uploads = SqlUploads(tx)
        self.models = SqlModels(tx)
        self.shares = SqlShares(tx)
        self.accounting = SqlAccounting(tx)
        self.checks = SqlChecks(tx)
        self.series = SqlSeries(tx)
        self.canaries = SqlCanaries(tx)


_NEEDED = (benchmarks, descriptions, attempts, users, tokens, user_files, result_files, events)
"""Tables without which no list and no submission is answered."""

_LOOKED_AT = 100
"""Newest rows of each that `SqlStore.ping` reads: what the lists of the API show first."""

_LOOK_EVERY_S = 10.0


class _Damage:
    """Whether any transaction has met a damaged page; shared by all copies of a store."""

    def __init__(self) -> None:
        self._is_met = False
        self._looked_at_s = -math.inf

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Remember that the body met damage."""
        try:
            yield
        except DatabaseDamaged:
            self._is_met = True
            raise

    def check(self) -> None:
        """Raise `DatabaseDamaged` if any transaction has."""
        if self._is_met:
            raise DatabaseDamaged

    def is_look_due(self) -> bool:
        """Return whether the newest rows were not read within the last seconds."""
        now_s = time.monotonic()
        is_due = now_s - self._looked_at_s >= _LOOK_EVERY_S
        if is_due:
            self._looked_at_s = now_s
        return is_due


def _newest_first(table: Table) -> list[UnaryExpression[Any]]:
    return [column.desc() for column in table.primary_key]


class SqlStore(Store):
    """`Store` on SQLite or PostgreSQL; migrates when it is made.

    On SQLite one connection writes, and a queue of this process's threads shares it, because
    SQLite's own lock would starve some; ``busy_timeout`` waits for other processes. On PostgreSQL
    a unit of work that writes locks the benchmarks that it reads, and those of the attempts that
    it reads, before anything that belongs to them.
    """

    def __init__(
        self,
        url: str,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        wait_s: float = WAIT_S,
        ballast_bytes: int = 0,
        durable: bool = True,
    ) -> None:
        """Open the database and bring it to the schema of this code.

        Args:
            url: ``sqlite:///PATH`` or ``postgresql://…``.
            now: Clock for the expiry of idempotency keys.
            wait_s: See `WAIT_S`.
            ballast_bytes: Space reserved on the disk of an SQLite database, which is released
                when the disk is full; see `transact`.
            durable: Commits survive a power cut. SQLite is faster without.

        Raises:
            ConfigError: The URL is wrong, or the database is not one that this code can use.
            Unavailable: It does not answer.
        """
        self._now = now
        self._epoch: int | None = None
        self._damage = _Damage()
        self._runs = RunCache()
        self._progress = ProgressBuffer(self._write_progress)
        parsed = parsed_url(url)
        path = Path(parsed.database or "db")
        self._readers: SqliteReaders | None = None
        self._turns = WriteQueue(wait_s) if parsed.get_backend_name() == "sqlite" else None
        self._ballast = Ballast(
            path.with_suffix(".ballast"), 0 if self._turns is None else ballast_bytes
        )
        if self._turns is not None:
            self._ballast.release_where_full()
            _restrict_access(path)
            self._reader = _sqlite(parsed, wait_s, writes=False, durable=durable)
            self._writer = _sqlite(parsed, wait_s, writes=True, durable=durable)
            self._readers = SqliteReaders(self._reader, CONNECTIONS, wait_s)
        else:
            self._writer = engine_of_postgresql(parsed, wait_s)
            self._reader = self._writer.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        try:
            self._migrate(parsed)
        except BaseException:
            self.close()
            raise
        self._ballast.restore()

    @property
    def short_of_space(self) -> bool:
        self._ballast.restore()
        return self._ballast.is_released()

    def restore_reserve(self) -> None:
        self._ballast.restore()

    def _migrate(self, url: URL) -> None:
        shown = url.render_as_string(hide_password=True)
        try:
            with translated(), self._writer.begin() as connection:
                migrate(connection)
        except DatabaseDamaged as error:
            raise ConfigError(
                [f"{shown} is not a database that Edgeyard can use, or is damaged"]
            ) from error
        except Unavailable as error:
            raise Unavailable(f"cannot open {shown}: {error}") from error
        except (ConcurrentUpdate, InvalidInput) as error:
            cause = error.__cause__
            if not isinstance(cause, IntegrityError | DataError):
                raise Unavailable(f"cannot open {shown}: {error}") from error
            raise ConfigError(
                [
                    f"{shown} could not be upgraded, and was not changed, because a migration does "
                    f"not fit its data: {cause.orig}. Start the Edgeyard that it was last used "
                    "with, and correct the rows or report the problem"
                ]
            ) from error
        except DatabaseError as error:
            raise ConfigError([f"{shown} is not a database that Edgeyard can use"]) from error

    @contextmanager
    def read(self) -> Iterator[SqlUnitOfWork]:
        with self._damage.noted(), translated(), self._reading() as connection:
            yield SqlUnitOfWork(Transaction(connection, writes=False), self._now, self)

    def transact(
        self, work: Callable[[SqlUnitOfWork], _Result], *, frees_space: bool = False
    ) -> _Result:
        try:
            done = self._transact(work)
        except OutOfSpace:
            if not frees_space or not self._ballast.release():
                raise
            done = self._transact(work)
        if frees_space:
            self._ballast.restore()
        return done

    def _transact(self, work: Callable[[SqlUnitOfWork], _Result]) -> _Result:
        for pause_s in RETRY_DELAYS_S:
            try:
                with self.write() as uow:
                    return work(uow)
            except ConcurrentUpdate as error:
                logger.info(
                    "another transaction conflicted",
                    extra={"event": "store.retried", "cause": str(error)},
                )
            time.sleep(random.uniform(0.0, pause_s))
        try:
            with self.write() as uow:
                return work(uow)
        except ConcurrentUpdate as error:
            raise Unavailable("other requests keep changing the same data: try again") from error

    @contextmanager
    def write(self) -> Iterator[SqlUnitOfWork]:
        noted = self._damage.noted()
        with noted, self._turn_to_write(), _connected(self._writer) as connection:
            tx = self._transaction(connection)
            yield SqlUnitOfWork(tx, self._now, self)
            tx.flush()
            failpoint("commit:before")
            with translated():
                connection.commit()
            failpoint("commit:after")

    def fenced(self, epoch: int) -> SqlStore:
        fenced = copy.copy(self)
        fenced._epoch = epoch
        return fenced

    def ping(self) -> None:
        self._damage.check()
        with self.read() as uow:
            if self._damage.is_look_due():
                for table in _NEEDED:
                    uow.tx.rows(select(table).order_by(*_newest_first(table)).limit(_LOOKED_AT))
            else:
                uow.tx.rows(select(event_counter))

    def prune(
        self, limits: Limits, *, dry_run: bool = False
    ) -> Mapping[RetentionClass, PruneReport]:
        now = self._now()
        found: dict[RetentionClass, PruneReport] = {}
        for name, rule in RULES.items():
            before = limit_of(name, limits, now)
            if before is None:
                continue
            found.setdefault(rule.limit, PruneReport())
            for rows in rows_to_prune(rule, before, self._rows):
                size = sum(cast(int, row["size"]) for row in rows)
                if dry_run:
                    found[rule.limit] += PruneReport(len(rows), size)
                    continue
                gone = 0
                for start in range(0, len(rows), rule.step):
                    few = rows[start : start + rule.step]
                    gone += self.transact(partial(_remove, rule, few, before), frees_space=True)
                found[rule.limit] += PruneReport(gone, size if gone else 0)
        if not dry_run:
            self._give_back_pages()
            self._ballast.restore()
        return found

    def _rows(self, statement: Executable, values: Row) -> Sequence[Row]:
        with self.read() as uow:
            return uow.tx.rows(statement, values)

    def _give_back_pages(self) -> None:
        """Release the free pages of an SQLite file, a few at a time; PostgreSQL does so itself."""
        if self._turns is None:
            return
        while True:
            with self._turn_to_write(), _connected(self._writer) as connection:
                with translated():
                    free = connection.exec_driver_sql("PRAGMA freelist_count").scalar() or 0
                    if free < _MIN_FREE_PAGES:
                        return
                    driver = cast(sqlite3.Connection, connection.connection.driver_connection)
                    few = f"PRAGMA incremental_vacuum({_PAGES_PER_VACUUM})"
                    driver.execute(few).fetchall()  # a page a step
                    left = connection.exec_driver_sql("PRAGMA freelist_count").scalar() or 0
                    connection.commit()
                if left >= free:  # a file that was made before its pages could be given back
                    return

    def record_progress(
        self, attempt: Attempt, progress: float, message: str | None = None
    ) -> None:
        assert attempt.phase is not None
        self._progress.note(
            PhaseProgress(attempt.benchmark_id, attempt.number, attempt.phase, progress, message)
        )

    def flush_progress(self) -> None:
        """Write the buffered progress now."""
        self._progress.flush()

    def _write_progress(self, newest: Sequence[PhaseProgress]) -> None:
        self.transact(lambda uow: write_progress(uow.tx, newest))

    def close(self) -> None:
        self._progress.close()
        if self._readers is not None:
            self._readers.close()
        for engine in (self._reader, self._writer):
            event.listen(engine, "checkin", _discard)  # connections that are still in use
            engine.dispose()

    def _reading(self) -> AbstractContextManager[Connection]:
        """Return a connection in a transaction that reads."""
        return _begun(self._reader) if self._readers is None else self._readers.transaction()

    def _transaction(self, connection: Connection) -> Transaction:
        """Begin a transaction that writes.

        Raises:
            LeadershipLost: The store is fenced, and its epoch is over.
        """
        tx = Transaction(connection, writes=True)
        if self._epoch is not None:
            SqlLeadership(tx).hold(self._epoch)
        return tx

    def _turn_to_write(self) -> AbstractContextManager[None]:
        return nullcontext() if self._turns is None else self._turns.turn()


def _remove(rule: Rule, rows: Sequence[Row], before: datetime, uow: SqlUnitOfWork) -> int:
    return rule.remove(uow.tx, rows, before)


@contextmanager
def _begun(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection:
        connection.begin()
        yield connection


@contextmanager
def _connected(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in a transaction; exceptions of the caller are not translated."""
    with translated():
        connection = engine.connect()
    try:
        with translated():
            connection.begin()
        yield connection
    finally:
        with translated():
            connection.close()  # rolls back what was not committed


def _discard(connection: object, record: ConnectionPoolEntry) -> None:
    record.invalidate()


def check_url(url: str) -> None:
    """Check the URL of a database, without a connection; see `parsed_url`."""
    parsed_url(url)


def parsed_url(url: str) -> URL:
    """Return the URL of a database with the driver that this code uses.

    Raises:
        ConfigError: It is none of SQLite or PostgreSQL, or its driver is not installed.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ConfigError(
            ["the database URL is not valid: use sqlite:///PATH or postgresql://USER@HOST/NAME"]
        ) from error
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError(
            [f"the database URL begins with {parsed.drivername}: use sqlite or postgresql"]
        )
    try:
        parsed.get_dialect().import_dbapi()
    except (ImportError, NoSuchModuleError) as error:
        raise ConfigError(
            [
                f"the database URL needs the driver {parsed.get_driver_name()}, which can't be "
                f"used here ({error}): install edgeyard with its extra postgres, which brings "
                "psycopg"
            ]
        ) from error
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigError(["the database URL has no file name: use sqlite:///PATH"])
    return parsed


def _sqlite(url: URL, wait_s: float, *, writes: bool, durable: bool) -> Engine:
    engine = create_engine(
        url,
        pool_size=1 if writes else CONNECTIONS,
        max_overflow=0,
        pool_timeout=wait_s,
        connect_args={
            "timeout": wait_s,
            "isolation_level": None,
            "cached_statements": _CACHED_STATEMENTS,
        },
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, record: object) -> None:
        if writes:  # has an effect only before the first page of a new database is written
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        _set_wal(connection, wait_s)
        for pragma in _SQLITE_PRAGMAS:
            connection.execute(pragma)
        if not durable:
            connection.execute("PRAGMA synchronous = OFF")
        if not writes:
            connection.execute("PRAGMA query_only = ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        driver = cast(sqlite3.Connection, connection.connection.driver_connection)
        if driver.in_transaction:  # which `SqliteReaders` has begun
            return
        # a read that turns into a write gets BUSY at once, however long the time-out
        driver.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _restrict_access(path: Path) -> None:
    """Let only the owner read the file; SQLite gives its logs the same permissions."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        if stat.S_IMODE(path.stat().st_mode) != 0o600:
            path.chmod(0o600)
    except OSError as error:  # SQLite reports a file that cannot be used at all
        logger.warning(
            "the permissions of the database could not be set",
            extra={"event": "store.rights", "cause": error.strerror},
        )


def _set_wal(connection: sqlite3.Connection, wait_s: float) -> None:
    """Retry as ``busy_timeout`` would, which SQLite ignores while the mode changes."""
    until = time.monotonic() + wait_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() >= until:
                raise
            time.sleep(_LOCKED_S)


def engine_of_postgresql(url: URL, wait_s: float) -> Engine:
    """Return an engine whose sessions end lost and stopped transactions."""
    engine = create_engine(
        url,
        pool_size=CONNECTIONS // 2,
        max_overflow=CONNECTIONS // 2,
        pool_timeout=wait_s,
        pool_pre_ping=True,  # the server may have been restarted meanwhile
        connect_args={
            "connect_timeout": max(1, round(wait_s)),
            # A lost connection is detected within seconds instead of hours.
            "keepalives_idle": round(IDLE_S),
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": round(IDLE_S * 1000),
        },
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, record: object) -> None:
        connection.execute(f"SET lock_timeout = {round(wait_s * 1000)}")
        # A stopped or disconnected process must not hold the locks of its transaction.
        connection.execute(f"SET idle_in_transaction_session_timeout = {round(IDLE_S * 1000)}")
        connection.commit()

    return engine
