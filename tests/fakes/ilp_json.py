"""Reads documents and plans of integer programmes, as an external solver would."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from edgeyard.scheduler.solvers.document import SCHEMA, Document, Plan, PlanStatus, check_plan


def document_from_json(data: Mapping[str, object]) -> Document:
    """Return a document from JSON that fits `DOCUMENT_SCHEMA`.

    Raises:
        ValueError: It does not fit, a number is not finite, or an index points to nothing.
    """
    try:
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema is {data['schema']!r}, expected {SCHEMA!r}")
        jobs, boards = _dicts(data["jobs"]), _dicts(data["boards"])
        users, pairs = _dicts(data["users"]), _dicts(data["pairs"])
        run_s = np.full((len(jobs), len(boards)), np.nan)
        for each in pairs:
            job, board = _index(each["job"], len(jobs)), _index(each["board"], len(boards))
            run_s[job, board] = _number(each["run_s"], "run_s")
        return Document(
            objective=str(data["objective"]),
            boards=tuple(str(each["id"]) for each in boards),
            run_s=run_s,
            deadlines_s=np.array(
                [
                    np.nan
                    if each["deadline_s"] is None
                    else _number(each["deadline_s"], "deadline_s", -math.inf)
                    for each in jobs
                ],
                dtype=np.float64,
            ),
            users=np.array([_index(each["user"], len(users)) for each in jobs], dtype=np.intp),
            usage_board_s=np.array(
                [_number(each["usage_board_s"], "usage_board_s") for each in users], np.float64
            ),
            shares=np.array([_above_0(each["share"], "share") for each in users], np.float64),
            ready_s=np.array([_number(each["ready_s"], "ready_s") for each in boards], np.float64),
            closes_s=np.array(
                [
                    np.inf if each["closes_s"] is None else _number(each["closes_s"], "closes_s")
                    for each in boards
                ],
                dtype=np.float64,
            ),
            weights=np.array([_above_0(each["weight"], "weight") for each in jobs], np.float64),
            cool_down_s=_number(data["cool_down_s"], "cool_down_s"),
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not a document of schema {SCHEMA}: {error!r}") from error


def plan_from_json(data: Mapping[str, object], document: Document) -> Plan:
    """Return the plan of an external solver, checked against the document.

    Raises:
        ValueError: It is no plan, or breaks a rule of `check_plan`.
    """
    jobs, boards = document.shape
    board = np.full(jobs, -1, dtype=np.intp)
    start_s = np.full(jobs, np.nan)
    try:
        for each in _dicts(data["starts"]):
            job, where = _index(each["job"], jobs), _index(each["board"], boards)
            if board[job] >= 0:
                raise ValueError(f"job {job} has two starts")
            if np.isnan(document.run_s[job, where]):
                raise ValueError(f"job {job} cannot run on board {where}")
            board[job], start_s[job] = where, _real(each["start_s"], "start_s")
        gap = data["gap"]
        found = Plan(
            status=PlanStatus(str(data["status"])),
            gap=np.nan if gap is None else _number(gap, "gap"),
            board=board,
            start_s=start_s,
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not a plan of schema {SCHEMA}: {error!r}") from error
    check_plan(document, found)
    return found


def _dicts(value: object) -> Sequence[Mapping[str, object]]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise TypeError("not a list of objects")
    return value


def _index(value: object, count: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < count:
        raise ValueError(f"{value!r} is not an index: a whole number from 0, below {count}")
    return value


def _real(value: object, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name}: {value!r} is not a number")
    return float(value)


def _number(value: object, name: str, min_value: float = 0.0) -> float:
    number = _real(value, name)
    if not math.isfinite(number) or number < min_value:
        raise ValueError(f"{name}: {value!r} is not allowed: it must be finite and not negative")
    return number


def _above_0(value: object, name: str) -> float:
    number = _number(value, name)
    if number <= 0.0:
        raise ValueError(f"{name}: {value!r} is not allowed: it must be above 0")
    return number
