"""Statements on SQLite without SQLAlchemy's work at each execution.

That takes longer than SQLite's. SQLAlchemy compiles a statement once; what it knows of it (text,
binds, types) is kept with the statement, and the driver is called directly. Statements that are
made for one execution, other databases and whatever else is unusual go the usual way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Delete, Dialect, Executable, Insert, Select, Update

_Row = Mapping[str, object]
_Processor = Callable[[Any], Any]
_Names = tuple[str, ...]

_EXPANDING = "__[POSTCOMPILE_ids]"
"""Placeholder of the list of `among` in SQLAlchemy's text."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a statement that writes did.

    Attributes:
        rowcount: How many rows it changed.
        rows: Those that it returned, by column name.
    """

    rowcount: int
    rows: Sequence[_Row] = ()


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a statement is executed.

    Attributes:
        text: Of the statement, with a question mark for each value, or for the list ``ids``.
        binds: Names of the values in the order of the text, what they are unless they are given,
            and how they become the driver's.
        has_list: One of the values is the list ``ids``.
        columns: How columns of the driver's values become ours, where they are not the same.
        returns: The statement returns rows.
    """

    text: str
    binds: tuple[tuple[str, object, _Processor | None], ...]
    has_list: bool
    columns: tuple[tuple[int, _Processor], ...]
    returns: bool


_MAX_PADDED = 8192
"""SQLite accepts 32,766 values."""

_MISSING = object()
_plans: WeakKeyDictionary[Executable, dict[_Names, _Plan | None]] = WeakKeyDictionary()
"""By the names of the given values: which columns an insert has depends on them. No plan is made
at the first execution, which may be the only one."""


def driver_of(connection: Connection) -> sqlite3.Connection | None:
    """Return SQLite's own connection; None where statements are to be executed in the usual way.

    That is on another database, and where somebody listens to what is executed.
    """
    if connection.dialect.name != "sqlite" or connection.dispatch.before_cursor_execute:
        return None
    return cast(sqlite3.Connection, connection.connection.driver_connection)


def read_directly(
    driver: sqlite3.Connection, dialect: Dialect, statement: Executable, values: _Row | None
) -> list[dict[str, object]] | None:
    """Return the rows of a statement by column name; None: execute it in the usual way.

    The usual way raises what is wrong, as the library's exceptions.

    Raises:
        sqlite3.Error: It ended the transaction, as a full disk does: another try would read, and
            later writes would be kept, outside of it.
    """
    plan = _plan_of(statement, dialect, ())
    if plan is None:
        return None
    try:
        bound = _bound(plan, values or {})
        if bound is None:
            return None
        cursor = driver.execute(*bound)
        return _rows(plan, cursor)
    except sqlite3.Error:
        if not driver.in_transaction:
            raise
        return None  # a value that the database refuses
    except (ArithmeticError, TypeError, ValueError, AttributeError):
        return None  # a value of a wrong type


def write_directly(
    driver: sqlite3.Connection,
    dialect: Dialect,
    statement: Executable,
    values: _Row | Sequence[_Row] | None,
) -> Done | None:
    """Execute a statement that writes; None, with nothing done: execute it in the usual way.

    Args:
        values: Of one execution, or of several, all with the names of the first.

    Raises:
        sqlite3.Error: The database refuses. Another try could be outside of the transaction, which
            some of these errors end.
    """
    rows: Sequence[_Row] = (
        [{}] if values is None else [values] if isinstance(values, Mapping) else values
    )
    if not rows:
        return None
    plan = _plan_of(statement, dialect, tuple(rows[0]))
    if plan is None:
        return None
    try:
        bound = [_bound(plan, row) for row in rows]
    except (ArithmeticError, TypeError, ValueError, AttributeError):
        return None
    if None in bound:
        return None
    every = cast("list[tuple[str, list[object]]]", bound)
    if len(every) > 1 and not plan.returns and not plan.has_list:
        return Done(driver.executemany(plan.text, [given for _, given in every]).rowcount)
    count, found = 0, list[_Row]()
    for text, given in every:
        cursor = driver.execute(text, given)
        if plan.returns:
            found += _rows(plan, cursor)
        count += cursor.rowcount
    return Done(count, found)


def _rows(plan: _Plan, cursor: sqlite3.Cursor) -> list[dict[str, object]]:
    rows: list[Any] = cursor.fetchall()
    names = [each[0] for each in cursor.description]
    if plan.columns:
        rows = [list(row) for row in rows]
        for place, process in plan.columns:
            for row in rows:
                row[place] = process(row[place])
    return [dict(zip(names, row, strict=True)) for row in rows]


def _bound(plan: _Plan, given: _Row) -> tuple[str, list[object]] | None:
    """Return the text and the values of a plan; None where one is missing."""
    text, parameters = plan.text, list[object]()
    for name, default, process in plan.binds:
        value = given.get(name, default)
        if value is _MISSING:
            return None
        if name == "ids" and plan.has_list:
            ids = cast("Sequence[object]", value)
            if not ids:
                return None
            padded = [*ids, *[ids[-1]] * (_padded_length(len(ids)) - len(ids))]
            text = text.replace(_EXPANDING, ", ".join("?" * len(padded)))
            parameters += padded if process is None else [process(each) for each in padded]
        else:
            parameters.append(value if process is None else process(value))
    return text, parameters


def _padded_length(length: int) -> int:
    """Return the next power of two, up to a limit.

    The driver keeps the program of each text that it has met, 10 to 20 KiB on each connection: with
    a text for each length there would be no end of them.
    """
    return length if length > _MAX_PADDED else 1 << (length - 1).bit_length()


def _plan_of(statement: Executable, dialect: Dialect, names: _Names) -> _Plan | None:
    """Return how a statement is executed; None: in the usual way."""
    plans = _plans.get(statement)
    if plans is None:
        _plans[statement] = {}
        return None
    if names not in plans:
        plans[names] = _planned(statement, dialect, names)
    return plans[names]


def _planned(statement: Executable, dialect: Dialect, names: _Names) -> _Plan | None:
    """Return how a statement is executed directly; None where it can't be."""
    if not isinstance(statement, Select | Insert | Update | Delete):
        return None
    reads = isinstance(statement, Select)
    compiled: Any = statement.compile(dialect=dialect, column_keys=None if reads else sorted(names))
    order = compiled.positiontup
    binds = {name: bind for bind, name in compiled.bind_names.items()}
    # What is derived from a statement that writes takes over its `exported_columns`, once read.
    columns = list(statement.exported_columns) if reads else compiled._result_columns
    keys = [each.key if reads else each.keyname for each in columns]
    usual = (
        any(bind.callable is not None for bind in binds.values())
        or any(bind.expanding and name != "ids" for name, bind in binds.items())
        or any(bind.literal_execute for bind in binds.values())
        or str(compiled).count("__[POSTCOMPILE") != sum(bind.expanding for bind in binds.values())
        or len(set(keys)) != len(keys)
        # values that the library makes itself, and those that it would miss
        or (not reads and (compiled.insert_prefetch or compiled.update_prefetch))
        or not set(names) <= set(order)
    )
    if usual:
        return None
    return _Plan(
        text=str(compiled),
        binds=tuple(
            (
                name,
                _MISSING if bind.required else bind.value,
                bind.type.dialect_impl(dialect).bind_processor(dialect),
            )
            for name, bind in ((name, binds[name]) for name in order)
        ),
        has_list=any(bind.expanding for bind in binds.values()),
        columns=tuple(
            (place, process)
            for place, column in enumerate(columns)
            if (process := column.type.dialect_impl(dialect).result_processor(dialect, None))
        ),
        returns=bool(columns),
    )
