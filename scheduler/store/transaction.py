"""One transaction: statements, translated errors, and what waits for the commit."""

from __future__ import annotations

import functools
import logging
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Insert,
    Table,
    bindparam,
    delete,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    StatementError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.sql import Executable
from sqlalchemy.sql.dml import ReturningInsert

from edgeyard.errors import (
    ConcurrentUpdate,
    DatabaseDamaged,
    InvalidInput,
    OutOfSpace,
    Unavailable,
)
from edgeyard.scheduler.model import strict_json
from edgeyard.scheduler.model.acts import Act, Acting, act_of, acting
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.quotas import check_pending_total
from edgeyard.scheduler.store.direct import Done, driver_of, read_directly, write_directly
from edgeyard.scheduler.store.rows import act_row, event_row
from edgeyard.scheduler.store.tables import (
    acts,
    benchmarks,
    event_counter,
    events,
    explanations,
    logins,
    outcomes,
    status_counts,
    user_contents,
    user_usage,
)

logger = logging.getLogger(__name__)

Row = Mapping[str, object]

_SQLITE_ERROR = 1  # SQLite's code of a wrong statement, which is a bug of ours
_SQLITE_FULL = 13
_SQLITE_DAMAGED = (11, 26)
"""A damaged page; a file that is no database."""
_POSTGRES_DAMAGED = ("XX001", "XX002")
_SQLITE_CANT_OPEN = 14
_POSTGRES_DISK_FULL = "53100"
_POSTGRES_RETRIED = frozenset({"40001", "40P01"})
"""Serialization failure and deadlock: the transaction is undone, and another try helps."""

_IDS_PER_STATEMENT = 5_000  # in one statement; SQLite accepts 32,766 values
_NAMES_LOCK = 0x65647966
_FLUSH_LOCK = 0x65647965  # any number that nothing else locks in our database

_LOCK = (
    select(benchmarks.c.benchmark_id)
    .where(benchmarks.c.benchmark_id.in_(bindparam("ids", expanding=True)))
    .order_by(benchmarks.c.benchmark_id)  # who locks several does so in one order
    .with_for_update()
)
_COUNT = (
    update(status_counts)
    .where(status_counts.c.status == bindparam("which"))
    .values(stored=status_counts.c.stored + bindparam("more"))
)
_NUMBER = (
    update(event_counter)
    .values(last_seq=event_counter.c.last_seq + bindparam("more"))
    .returning(event_counter.c.last_seq)
)


_CONTENT = (
    user_contents.c.user_id == bindparam("of_user"),
    user_contents.c.sha256 == bindparam("of_sha256"),
)
_FEWER_NAMES = (
    update(user_contents)
    .where(*_CONTENT)
    .values(names=user_contents.c.names + bindparam("more"))
    .returning(user_contents.c.names)
)
_NAMELESS = delete(user_contents).where(*_CONTENT)
_PENDING = select(status_counts.c.stored).where(status_counts.c.status == Status.PENDING.value)
_LAST_OUTCOME = select(func.max(outcomes.c.seq))
_LAST_ACT = select(func.max(acts.c.seq))
_EMAIL = select(logins.c.email).where(logins.c.user_id == bindparam("of_user"))
_OWNER = select(benchmarks.c.user_id).where(benchmarks.c.benchmark_id == bindparam("of_benchmark"))


@contextmanager
def translated() -> Iterator[None]:
    """Turn the database's exceptions into ours.

    Raises:
        Unavailable: Locked, full, unreachable or out of connections; worth another try.
        DatabaseDamaged: A page of its file can't be read.
        ConcurrentUpdate: It conflicts with what another transaction stored or has locked.
        InvalidInput: A value that a column can't hold.
    """
    try:
        yield
    except PoolTimeout as error:
        raise Unavailable("all connections to the database are in use") from error
    except IntegrityError as error:
        raise ConcurrentUpdate("the change conflicts with stored data") from error
    except DataError as error:
        raise InvalidInput.at("", "a value that the database cannot store") from error
    except (OperationalError, InterfaceError) as error:
        raise _unavailable(error) from error
    except DBAPIError as error:
        if _is_damage(error.orig):
            raise _damaged(error.orig) from error
        # python's sqlite3 puts a full disk and a broken file here now and then
        if error.connection_invalidated:
            raise _unavailable(error) from error
        raise
    except StatementError as error:
        if isinstance(error.orig, (OverflowError, UnicodeEncodeError)):
            raise InvalidInput.at("", "a value that the database cannot store") from error
        raise
    except (sqlite3.DataError, OverflowError, UnicodeEncodeError) as error:
        raise InvalidInput.at("", "a value that the database cannot store") from error
    except sqlite3.IntegrityError as error:
        raise ConcurrentUpdate("the change conflicts with stored data") from error
    except (sqlite3.OperationalError, sqlite3.InterfaceError) as error:
        raise _unavailable(error) from error
    except sqlite3.DatabaseError as error:
        if _is_damage(error):
            raise _damaged(error) from error
        raise


def _is_damage(error: BaseException | None) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    damaged = code is not None and code & 0xFF in _SQLITE_DAMAGED
    return damaged or getattr(error, "sqlstate", None) in _POSTGRES_DAMAGED


def _damaged(cause: BaseException | None) -> DatabaseDamaged:
    logger.error("the database is damaged", extra={"event": "store.damaged", "cause": str(cause)})
    return DatabaseDamaged()


def _unavailable(error: DBAPIError | sqlite3.Error) -> Exception:
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None and code & 0xFF == _SQLITE_ERROR:
        return error
    # the driver's own words may name hosts and users: they go to the log, not to callers
    logger.warning(
        "the database refused an operation", extra={"event": "store.refused", "cause": str(cause)}
    )
    if getattr(cause, "sqlstate", None) in _POSTGRES_RETRIED:
        return ConcurrentUpdate("another transaction changed the same data")
    full = (code is not None and code & 0xFF == _SQLITE_FULL) or getattr(
        cause, "sqlstate", None
    ) == _POSTGRES_DISK_FULL
    if full:
        return OutOfSpace("the database is full")
    if code is not None and code & 0xFF == _SQLITE_CANT_OPEN:
        return Unavailable("its file can't be opened: its folder is missing, or is not writable")
    return Unavailable("the database is locked or does not answer")


def among(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether it is one of ``ids``, a list among the statement's values: made once, read often."""
    return column.in_(bindparam("ids", expanding=True))


@functools.cache
def _insert(table: Table, dialect: str) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


@functools.cache
def _insert_new(table: Table, dialect: str) -> Insert:
    # without the option the driver's count of rows is lost for inserts
    statement = _insert(table, dialect).on_conflict_do_nothing()
    return statement.execution_options(preserve_rowcount=True)


@functools.cache
def _insert_each(table: Table, dialect: str) -> ReturningInsert[Any]:
    return _insert(table, dialect).on_conflict_do_nothing().returning(*table.primary_key)


@functools.cache
def _adding(table: Table, column: str, dialect: str) -> ReturningInsert[Any]:
    """Insert a row, or add its number to that of the row that is there; returns the sum."""
    insert = _insert(table, dialect)
    summed = table.c[column] + insert.excluded[column]
    keys = [each.name for each in table.primary_key]
    return insert.on_conflict_do_update(index_elements=keys, set_={column: summed}).returning(
        table.c[column]
    )


@functools.cache
def _upsert(table: Table, dialect: str) -> Insert:
    insert = _insert(table, dialect)
    keys = [column.name for column in table.primary_key]
    others = {c.name: insert.excluded[c.name] for c in table.c if c.name not in keys}
    return insert.on_conflict_do_update(index_elements=keys, set_=others)


_ROWS_PER_FETCH = 2_000
"""Rows that are converted to columns together; they fit in the processor's caches."""


class Transaction:
    """A connection with an open transaction, and what is written right before its commit.

    Events and outcomes are numbered, and counts of statuses changed, in `flush`: on PostgreSQL
    under one advisory lock, which is so held for the commit alone.
    """

    def __init__(self, connection: Connection, *, writes: bool) -> None:
        self._connection = connection
        self._driver = driver_of(connection)
        self.writes = writes
        self.dialect = connection.dialect.name
        self.locks = writes and self.dialect == "postgresql"
        self._events: list[dict[str, object]] = []
        self._moves: Counter[Status] = Counter()
        self._explanations: dict[str, dict[str, object]] = {}
        self._outcomes: list[dict[str, object]] = []
        self._locked: set[str] = set()
        self._names: dict[tuple[str, str], tuple[int, int]] = {}
        self._max_pending: int | None = None
        self._acts: dict[Acting, list[Event]] = {}

    def lock(self, benchmark_ids: Iterable[str]) -> None:
        """Lock these benchmarks and what belongs to them until the end.

        The row of a benchmark is also the lock of its attempts, results and files: to change one of
        those, a transaction locks the benchmark first, so that all lock in one order. A unit of
        work that only reads locks nothing, and SQLite has a single writer anyway.
        """
        if not self.locks:
            return
        new = sorted(set(benchmark_ids) - self._locked)
        self.rows_of(_LOCK, new)
        self._locked.update(new)

    def lock_names(self, *, exclusively: bool = False) -> None:
        """Let no content lose its last name while this unit of work adds or reads names.

        Args:
            exclusively: Let no other transaction add names until the end, in order to remove
                content without a name.
        """
        if self.locks:
            lock = func.pg_advisory_xact_lock if exclusively else func.pg_advisory_xact_lock_shared
            self._connection.execute(select(lock(_NAMES_LOCK)))

    def lock_table(self, table: Table) -> None:
        """Lock a small table until the end, if the transaction `locks` at all."""
        if self.locks:
            self._connection.execute(text(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE"))

    def run(self, statement: Executable, values: Row | Sequence[Row] | None = None) -> Done:
        """Execute a statement that writes, with `translated` errors.

        Args:
            statement: One that is kept is executed in less time than one that is made anew.
            values: Of one execution, or of several.

        Raises:
            TypeError: The unit of work is for reading.
        """
        self._writable()
        self._note_act()
        if values is not None:
            _check(values)
        with translated():
            if self._driver is not None:
                done = write_directly(self._driver, self._connection.dialect, statement, values)
                if done is not None:
                    return done
            result = cast("CursorResult[object]", self._connection.execute(statement, values))
            rows = cast("Sequence[Row]", result.mappings().all() if result.returns_rows else ())
            return Done(result.rowcount, rows)

    def changed(self, statement: Executable, values: Row) -> Sequence[Row]:
        """Execute a statement that writes, and return the rows that it changed."""
        return self.run(statement, values).rows

    def rows(self, statement: Executable, values: Row | None = None) -> Sequence[Row]:
        """Return all rows, by column name."""
        found = self._read_directly(statement, values)
        if found is not None:
            return found
        with translated():
            return cast(
                "Sequence[Row]", self._connection.execute(statement, values).mappings().all()
            )

    def rows_of(self, statement: Executable, ids: Sequence[object]) -> list[Row]:
        """Return the rows of a statement with a condition `among`, for any number of ids."""
        found: list[Row] = []
        for start in range(0, len(ids), _IDS_PER_STATEMENT):
            found += self.rows(statement, {"ids": list(ids[start : start + _IDS_PER_STATEMENT])})
        return found

    def columns(self, statement: Executable, values: Row | None = None) -> list[list[Any]]:
        """Return all rows as columns of the driver's values; an empty list without rows."""
        columns: list[list[Any]] = []
        with translated():
            result = self._connection.execute(statement, values)
            assert result.cursor is not None
            while rows := result.cursor.fetchmany(_ROWS_PER_FETCH):
                columns = columns or [[] for _ in rows[0]]
                for column, more in zip(columns, zip(*rows, strict=True), strict=True):
                    column.extend(more)
            result.close()
        return columns

    def row(self, statement: Executable, values: Row | None = None) -> Row | None:
        """Return the first row, or None."""
        found = self._read_directly(statement, values)
        if found is not None:
            return found[0] if found else None
        with translated():
            return cast(
                "Row | None", self._connection.execute(statement, values).mappings().first()
            )

    def value(self, statement: Executable, values: Row | None = None) -> object:
        """Return the first column of the first row, or None."""
        found = self._read_directly(statement, values)
        if found is not None:
            return next(iter(found[0].values())) if found else None
        with translated():
            return self._connection.execute(statement, values).scalar()

    def _read_directly(
        self, statement: Executable, values: Row | None
    ) -> list[dict[str, object]] | None:
        if self._driver is None:
            return None
        with translated():
            return read_directly(self._driver, self._connection.dialect, statement, values)

    def insert(self, table: Table, row: Row | Sequence[Row]) -> bool:
        """Insert; return False, without failing the transaction, if a unique key is taken."""
        count = 1 if isinstance(row, Mapping) else len(row)
        return self.run(_insert_new(table, self.dialect), row).rowcount == count

    def insert_each(self, table: Table, rows: Sequence[Row]) -> frozenset[tuple[object, ...]]:
        """Insert rows whose unique keys are free; return their primary keys."""
        if not rows:
            return frozenset()
        done = self.run(_insert_each(table, self.dialect), rows)
        return frozenset(tuple(key.values()) for key in done.rows)

    def insert_all(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows whose keys are known to be free."""
        if rows:
            self.run(_insert(table, self.dialect), rows)

    def replace(self, table: Table, row: Row) -> None:
        """Insert, or replace the row of the same primary key."""
        self.run(_upsert(table, self.dialect), row)

    def count_move(self, old: Status | None, new: Status, count: int = 1) -> None:
        """Count benchmarks that change from status ``old`` (None: new ones) to ``new``."""
        self._writable()
        if old is not None:
            self._moves[old] -= count
        self._moves[new] += count

    def count_gone(self, status: Status) -> None:
        """Count a deleted benchmark of this status."""
        self._writable()
        self._moves[status] -= 1

    def name(self, user_id: str, sha256: str, size_bytes: int, more: int = 1) -> None:
        """Add names that a user gives to content: uploads, results, files of benchmarks."""
        self._writable()
        _, before = self._names.get((user_id, sha256), (0, 0))
        self._names[user_id, sha256] = (size_bytes, before + more)

    def count_names(self) -> None:
        """Write what `name` collected: the names of content, and the bytes of each user."""
        named, self._names = self._names, {}
        grown: Counter[str] = Counter()
        for (user_id, sha256), (size_bytes, more) in sorted(named.items()):
            key = {"of_user": user_id, "of_sha256": sha256}
            if more > 0:
                row = {"user_id": user_id, "sha256": sha256, "size_bytes": size_bytes}
                adding = _adding(user_contents, "names", self.dialect)
                if self.run(adding, {**row, "names": more}).rows[0]["names"] == more:
                    grown[user_id] += size_bytes
            elif more < 0:
                left = self.run(_FEWER_NAMES, {**key, "more": more}).rows
                if left and cast(int, left[0]["names"]) <= 0:
                    self.run(_NAMELESS, key)
                    grown[user_id] -= size_bytes
        adding = _adding(user_usage, "stored_bytes", self.dialect)
        for user_id, size_bytes in sorted(grown.items()):
            if size_bytes:
                self.run(adding, {"user_id": user_id, "stored_bytes": size_bytes})

    def bound_pending(self, max_pending: int) -> None:
        """Refuse the commit if more benchmarks than this would be pending."""
        self._max_pending = max_pending

    def add_event(self, event: Event) -> None:
        """Buffer an event until `flush` numbers it; it tells more of the act that it belongs to."""
        self._writable()
        row = event_row(event)
        _check(row)
        self._events.append(row)
        self._note_act(event)

    def _note_act(self, event: Event | None = None) -> None:
        """Remember that this transaction belongs to the act of this context, if there is one."""
        who = acting()
        if who is not None:
            events = self._acts.setdefault(who, [])
            if event is not None:
                events.append(event)

    def _write_acts(self) -> None:
        """Write the record of each act, in the order of their commits."""
        noted, self._acts = self._acts, {}
        made = [act for who, events in noted.items() if (act := act_of(who, events)) is not None]
        if not made:
            return
        rows = [self._completed(act) for act in made]
        last = cast("int | None", self.value(_LAST_ACT)) or 0
        self.insert_all(acts, [{**row, "seq": last + i} for i, row in enumerate(rows, 1)])

    def _completed(self, act: Act) -> dict[str, object]:
        """Return the row of an act, with what only the store knows."""
        row = act_row(act)
        if act.user_id is not None:
            row["email"] = self.value(_EMAIL, {"of_user": act.user_id})
        if act.benchmark_id is not None and act.owner_id is None:
            row["owner_id"] = self.value(_OWNER, {"of_benchmark": act.benchmark_id})
        return row

    def add_act(self, act: Act) -> None:
        """Write the record of an act that no context tells of; `lock_log` comes first."""
        last = cast("int | None", self.value(_LAST_ACT)) or 0
        self.insert_all(acts, [{**self._completed(act), "seq": last + 1}])

    def add_explanation(self, row: dict[str, object]) -> None:
        """Buffer a row of ``explanations`` until `flush`; the last one of a benchmark counts."""
        self._writable()
        _check(row)
        self._explanations[str(row["benchmark_id"])] = row

    def add_outcome(self, row: dict[str, object]) -> None:
        """Buffer a row of ``outcomes`` until `flush` numbers it; the first of an attempt stays."""
        self._writable()
        _check(row)
        self._outcomes.append(row)

    def _writable(self) -> None:
        # the database would refuse, too, but what is buffered only at the commit
        if not self.writes:
            raise TypeError("a read-only unit of work can't write: open it with write()")

    def flush(self) -> None:
        """Write everything that is buffered; only the commit may follow."""
        if self._explanations:
            rows = [row for _, row in sorted(self._explanations.items())]
            self.run(_upsert(explanations, self.dialect), rows)
        self.count_names()
        moves = [
            {"which": status.value, "more": more}
            for status, more in sorted(self._moves.items())
            if more
        ]
        if not moves and not self._events and not self._outcomes and not self._acts:
            return
        self.lock_log()
        self._write_acts()
        if moves:
            self.run(_COUNT, moves)
            self._check_pending()
        if self._outcomes:
            last = cast("int | None", self.value(_LAST_OUTCOME)) or 0
            rows = [{**row, "seq": last + i} for i, row in enumerate(self._outcomes, 1)]
            self.insert(outcomes, rows)
        if self._events:
            numbered = self.run(_NUMBER, {"more": len(self._events)}).rows
            last = cast(int, numbered[0]["last_seq"])
            first = last - len(self._events) + 1
            self.insert_all(
                events, [{"seq": first + i, **row} for i, row in enumerate(self._events)]
            )

    def lock_log(self) -> None:
        """Let transactions commit in the order of their numbers.

        The lock is held until the commit, so a reader of "seq > last" misses none. SQLite's write
        lock does the same.
        """
        if self.dialect == "postgresql":
            self._connection.execute(select(func.pg_advisory_xact_lock(_FLUSH_LOCK)))

    def _check_pending(self) -> None:
        max_pending = self._max_pending
        if max_pending is None or self._moves[Status.PENDING] <= 0:
            return
        check_pending_total(cast(int, self.value(_PENDING)), max_pending)


def _check(values: Row | Sequence[Row]) -> None:
    """Refuse texts and numbers that one of the databases would refuse, or change silently."""
    for row in [values] if isinstance(values, Mapping) else values:
        for name, value in row.items():
            if isinstance(value, str) and value.isascii() and "\0" not in value:
                continue  # as most are: no pointer is made for these
            if isinstance(value, (str, int, float)):
                strict_json.check_json(value, f"/{name}")
