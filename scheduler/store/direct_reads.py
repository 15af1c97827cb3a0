"""Reads on SQLite without SQLAlchemy's work for each execution, which takes longer than SQLite's.

SQLAlchemy compiles a statement once; what it knows of it (text, binds, types) is kept with the
statement, and the driver is called directly. Statements that are made for one execution, other
databases and whatever else is unusual go the usual way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Dialect, Executable, Select

_Row = Mapping[str, object]
_Processor = Callable[[Any], Any]

_EXPANDING = "__[POSTCOMPILE_ids]"
"""Where SQLAlchemy's text has the list of `among`."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a statement is executed.

    Attributes:
        text: Of the statement, with a question mark for each value, or for the list ``ids``.
        binds: Names of the values in the order of the text, what they are unless they are given,
            and how they become the driver's.
        columns: How columns of the driver's values become ours, where they are not the same.
    """

    text: str
    binds: tuple[tuple[str, object, _Processor | None], ...]
    columns: tuple[tuple[int, _Processor], ...]


_MISSING = object()
_USED_ONCE = "used once"
_plans: WeakKeyDictionary[Executable, _Plan | str | None] = WeakKeyDictionary()


def read_directly(
    connection: Connection, statement: Executable, values: _Row | None
) -> list[dict[str, object]] | None:
    """Return the rows of a statement by column name; None: execute it in the usual way.

    Nothing is raised here: the usual way raises what is wrong, as the library's exceptions.
    """
    if connection.dialect.name != "sqlite":
        return None  # a plan that was made for another store of this process is not for it
    plan = _plans.get(statement)
    if plan is None or isinstance(plan, str):
        if statement not in _plans:
            _plans[statement] = _USED_ONCE
        elif plan == _USED_ONCE:
            _plans[statement] = _planned(statement, connection.dialect)
        return None
    if connection.dispatch.before_cursor_execute:
        return None  # somebody listens to what is executed
    driver = cast(sqlite3.Connection, connection.connection.driver_connection)
    try:
        bound = _bound(plan, values or {})
        if bound is None:
            return None
        cursor = driver.execute(*bound)
        rows: list[Any] = cursor.fetchall()
    except (sqlite3.Error, ArithmeticError, TypeError, ValueError, AttributeError):
        return None  # a value of a wrong type, or one that the database refuses
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
        if name == "ids":
            ids = cast("Sequence[object]", value)
            if not ids:
                return None
            text = text.replace(_EXPANDING, ", ".join("?" * len(ids)))
            parameters += ids if process is None else [process(each) for each in ids]
        else:
            parameters.append(value if process is None else process(value))
    return text, parameters


def _planned(statement: Executable, dialect: Dialect) -> _Plan | None:
    """Return how a statement is executed directly; None where it can't be."""
    if not isinstance(statement, Select):
        return None
    compiled: Any = statement.compile(dialect=dialect)
    names = compiled.positiontup
    binds = {name: bind for bind, name in compiled.bind_names.items()}
    columns = list(statement.selected_columns)
    keys = [each.key for each in columns]
    usual = (
        any(bind.callable is not None for bind in binds.values())
        or any(bind.expanding and name != "ids" for name, bind in binds.items())
        or any(bind.literal_execute for bind in binds.values())
        or str(compiled).count("__[POSTCOMPILE") != sum(bind.expanding for bind in binds.values())
        or len(set(keys)) != len(keys)
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
            for name, bind in ((name, binds[name]) for name in names)
        ),
        columns=tuple(
            (place, process)
            for place, column in enumerate(columns)
            if (process := column.type.dialect_impl(dialect).result_processor(dialect, None))
        ),
    )
