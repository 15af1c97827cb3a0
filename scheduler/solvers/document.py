"""The document that an integer programme reads and the plan that it answers: stable JSON.

DECICE's wrapper: columns become a document, whoever solves it answers with a plan, and the plan
becomes scores again. Edgeyard's own programmes read the same document, so that an external solver
can be tried in their place. Both have a JSON Schema (`DOCUMENT_SCHEMA`, `PLAN_SCHEMA`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SCHEMA = "edgeyard.ilp/1"

_NUMBER: Mapping[str, object] = {"type": "number", "minimum": 0}
_INDEX: Mapping[str, object] = {"type": "integer", "minimum": 0}


def _object(properties: Mapping[str, object], **more: object) -> dict[str, object]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": sorted(properties),
        "properties": dict(properties),
        **more,
    }


DOCUMENT_SCHEMA: Mapping[str, object] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "What is to be planned",
    **_object(
        {
            "schema": {"const": SCHEMA},
            "objective": {"enum": ["completion", "deadlines", "fairness"]},
            "boards": {"type": "array", "items": _object({"id": {"type": "string"}})},
            "users": {
                "type": "array",
                "items": _object(
                    {
                        "usage_board_s": _NUMBER,
                        "share": {"type": "number", "exclusiveMinimum": 0},
                    }
                ),
            },
            "jobs": {
                "type": "array",
                "items": _object(
                    {
                        "user": _INDEX,
                        "deadline_s": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                    }
                ),
            },
            "pairs": {
                "type": "array",
                "items": _object({"job": _INDEX, "board": _INDEX, "run_s": _NUMBER}),
            },
        }
    ),
}
"""``pairs`` are the only allowed ones; ``user``, ``job`` and ``board`` are places in their lists;
``deadline_s`` is from now."""

PLAN_SCHEMA: Mapping[str, object] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A plan",
    **_object(
        {
            "schema": {"const": SCHEMA},
            "status": {"enum": ["optimal", "feasible", "none"]},
            "gap": {"anyOf": [_NUMBER, {"type": "null"}]},
            "starts": {
                "type": "array",
                "items": _object({"job": _INDEX, "board": _INDEX, "start_s": _NUMBER}),
            },
        }
    ),
}
"""``gap`` is ``|objective - bound| / |objective|``, null where it isn't known; who has no start is
not planned."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Document:
    """What is to be planned.

    Attributes:
        run_s: Shape (jobs, boards), seconds; NaN where the job may not use the board.
        deadlines_s: Shape (jobs,), from now; NaN without one.
        users: Shape (jobs,): places in ``usage_board_s`` and ``shares``.
        usage_board_s: Shape (users,).
        shares: Shape (users,), above 0.
    """

    objective: str
    boards: tuple[str, ...]
    run_s: NDArray[np.float64]
    deadlines_s: NDArray[np.float64]
    users: NDArray[np.intp]
    usage_board_s: NDArray[np.float64]
    shares: NDArray[np.float64]

    def as_json(self) -> dict[str, object]:
        """As `DOCUMENT_SCHEMA` says."""
        jobs, boards = np.nonzero(~np.isnan(self.run_s))
        return {
            "schema": SCHEMA,
            "objective": self.objective,
            "boards": [{"id": each} for each in self.boards],
            "users": [
                {"usage_board_s": usage, "share": share}
                for usage, share in zip(
                    self.usage_board_s.tolist(), self.shares.tolist(), strict=True
                )
            ],
            "jobs": [
                {"user": user, "deadline_s": None if np.isnan(due) else due}
                for user, due in zip(self.users.tolist(), self.deadlines_s.tolist(), strict=True)
            ],
            "pairs": [
                {"job": job, "board": board, "run_s": run_s}
                for job, board, run_s in zip(
                    jobs.tolist(), boards.tolist(), self.run_s[jobs, boards].tolist(), strict=True
                )
            ],
        }


def document_from_json(data: Mapping[str, object]) -> Document:
    """Return a document from JSON that fits `DOCUMENT_SCHEMA`.

    Raises:
        ValueError: It doesn't, or an index points nowhere.
    """
    try:
        jobs, boards = _dicts(data["jobs"]), _dicts(data["boards"])
        users, pairs = _dicts(data["users"]), _dicts(data["pairs"])
        run_s = np.full((len(jobs), len(boards)), np.nan)
        for each in pairs:
            job, board, took = int(each["job"]), int(each["board"]), float(each["run_s"])
            if job < 0 or board < 0 or not 0 <= took < np.inf:
                raise ValueError(f"pair {each!r}")
            run_s[job, board] = took
        who = np.array([int(each["user"]) for each in jobs], dtype=np.intp)
        if len(who) and not 0 <= who.min() <= who.max() < len(users):
            raise ValueError("a job's user is not in the list")
        return Document(
            objective=str(data["objective"]),
            boards=tuple(str(each["id"]) for each in boards),
            run_s=run_s,
            deadlines_s=np.array(
                [np.nan if each["deadline_s"] is None else each["deadline_s"] for each in jobs],
                dtype=np.float64,
            ),
            users=who,
            usage_board_s=np.array([each["usage_board_s"] for each in users], dtype=np.float64),
            shares=np.array([each["share"] for each in users], dtype=np.float64),
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"no document of {SCHEMA}: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Who starts where and when.

    Attributes:
        status: ``optimal`` (within the gap that was asked for), ``feasible`` (the best that was
            found in its time) or ``none``.
        gap: ``|objective - bound| / |objective|``; NaN where it isn't known.
        board: Shape (jobs,): row of the board, -1 for who is not planned.
        start_s: Shape (jobs,): from now; NaN for who is not planned.
        value: Of the objective; NaN without a plan.
        solver_s: Time that the solver took, for reports alone.
    """

    status: str
    gap: float
    board: NDArray[np.intp]
    start_s: NDArray[np.float64]
    value: float = np.nan
    solver_s: float = 0.0

    def as_json(self) -> dict[str, object]:
        """As `PLAN_SCHEMA` says."""
        planned = np.flatnonzero(self.board >= 0)
        return {
            "schema": SCHEMA,
            "status": self.status,
            "gap": None if np.isnan(self.gap) else self.gap,
            "starts": [
                {"job": job, "board": int(self.board[job]), "start_s": float(self.start_s[job])}
                for job in planned.tolist()
            ],
        }


def no_plan(document: Document) -> Plan:
    """Nobody starts."""
    jobs = len(document.users)
    return Plan(
        status="none",
        gap=np.nan,
        board=np.full(jobs, -1, dtype=np.intp),
        start_s=np.full(jobs, np.nan),
    )


def plan_from_json(data: Mapping[str, object], document: Document) -> Plan:
    """Return a plan of anybody's, checked against what it plans.

    Raises:
        ValueError: It is no plan, or uses a pair that is not allowed, or a board twice at a time.
    """
    board = np.full(len(document.users), -1, dtype=np.intp)
    start_s = np.full(len(document.users), np.nan)
    try:
        for each in _dicts(data["starts"]):
            job, where, start = int(each["job"]), int(each["board"]), float(each["start_s"])
            if job < 0 or where < 0 or board[job] >= 0 or np.isnan(document.run_s[job, where]):
                raise ValueError(f"start {each!r} is not allowed")
            board[job], start_s[job] = where, start
        status, gap = str(data["status"]), data["gap"]
        found = Plan(
            status=status,
            gap=np.nan if gap is None else float(str(gap)),
            board=board,
            start_s=start_s,
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"no plan of {SCHEMA}: {error!r}") from error
    check_plan(document, found)
    return found


def check_plan(document: Document, plan: Plan) -> None:
    """Each board takes one job at a time, and only those that may use it.

    Raises:
        ValueError: Which doesn't.
    """
    planned = np.flatnonzero(plan.board >= 0)
    where, start = plan.board[planned], plan.start_s[planned]
    took = document.run_s[planned, where]
    if np.isnan(took).any() or not (np.isfinite(start) & (start >= 0)).all():
        raise ValueError("a job is planned where it may not run, or at no time")
    order = np.lexsort((start, where))
    where, start, took = where[order], start[order], took[order]
    same_board = where[1:] == where[:-1]
    if (same_board & (start[1:] < start[:-1] + took[:-1] - 1e-6)).any():
        raise ValueError("a board is planned for two jobs at a time")


def _dicts(value: object) -> Sequence[Mapping[str, int | float]]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise TypeError("not a list of objects")
    return value
