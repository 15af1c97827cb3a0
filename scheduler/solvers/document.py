"""The document that a planner reads and the plan that it returns: stable JSON.

Columns become a document, a solver answers with a plan, and the plan becomes scores or starts.
Edgeyard's own programmes read the same document, so that an external solver can be tried in their
place. Both have a JSON Schema (`DOCUMENT_SCHEMA`, `PLAN_SCHEMA`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

SCHEMA = "edgeyard.ilp/2"

_TOLERANCE_S = 1e-6

_NUMBER: Mapping[str, object] = {"type": "number", "minimum": 0}
_POSITIVE: Mapping[str, object] = {"type": "number", "exclusiveMinimum": 0}
_INDEX: Mapping[str, object] = {"type": "integer", "minimum": 0}


class PlanStatus(StrEnum):
    """How a plan was found, or that there is none."""

    OPTIMAL = "optimal"  # proven, within the gap that was allowed
    FEASIBLE = "feasible"  # the best that the solver found within its limits
    GREEDY = "greedy"  # the solver found nothing in time: the plan of a simple rule
    NONE = "none"  # nothing can be planned


def _object(properties: Mapping[str, object], **more: object) -> dict[str, object]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": sorted(properties),
        "properties": dict(properties),
        **more,
    }


def _or_null(schema: Mapping[str, object]) -> Mapping[str, object]:
    return {"anyOf": [schema, {"type": "null"}]}


DOCUMENT_SCHEMA: Mapping[str, object] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Jobs and boards to plan",
    **_object(
        {
            "schema": {"const": SCHEMA},
            "objective": {"enum": ["completion", "deadlines", "fairness", "run time"]},
            "cool_down_s": _NUMBER,
            "boards": {
                "type": "array",
                "items": _object(
                    {"id": {"type": "string"}, "ready_s": _NUMBER, "closes_s": _or_null(_NUMBER)}
                ),
            },
            "users": {
                "type": "array",
                "items": _object({"usage_board_s": _NUMBER, "share": _POSITIVE}),
            },
            "jobs": {
                "type": "array",
                "items": _object(
                    {
                        "user": _INDEX,
                        "deadline_s": _or_null({"type": "number"}),
                        "weight": _POSITIVE,
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
"""``pairs`` are the only allowed ones; ``user``, ``job`` and ``board`` are indices into the lists.

All times are seconds from now: ``ready_s``, when a board is expected to be free; ``closes_s``, when
its next reservation or lease begins; ``deadline_s``. A board rests ``cool_down_s`` between runs.
"""

PLAN_SCHEMA: Mapping[str, object] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A plan",
    **_object(
        {
            "schema": {"const": SCHEMA},
            "status": {"enum": [each.value for each in PlanStatus]},
            "gap": _or_null(_NUMBER),
            "starts": {
                "type": "array",
                "items": _object({"job": _INDEX, "board": _INDEX, "start_s": _NUMBER}),
            },
        }
    ),
}
"""``gap`` is ``|objective - bound| / |objective|``, null where it is not known.

A job without a start is not planned. The plan of a simple rule, because the solver found none, has
the status ``greedy``.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Document:
    """Jobs and boards to plan.

    Attributes:
        objective: ``completion``, ``deadlines``, ``fairness`` or ``run time``.
        boards: Their names.
        run_s: Shape (jobs, boards), seconds; NaN where the job may not use the board.
        deadlines_s: Shape (jobs,), from now; NaN without one.
        users: Shape (jobs,): indices into ``usage_board_s`` and ``shares``.
        usage_board_s: Shape (users,).
        shares: Shape (users,), above 0.
        ready_s: Shape (boards,): when each is expected to be free, from now.
        closes_s: Shape (boards,): when a run must be over, from now; inf: never.
        weights: Shape (jobs,), above 0: how bad it is to miss the deadline.
        cool_down_s: How long a board rests between two runs.
    """

    objective: str
    boards: tuple[str, ...]
    run_s: NDArray[np.float64]
    deadlines_s: NDArray[np.float64]
    users: NDArray[np.intp]
    usage_board_s: NDArray[np.float64]
    shares: NDArray[np.float64]
    ready_s: NDArray[np.float64]
    closes_s: NDArray[np.float64]
    weights: NDArray[np.float64]
    cool_down_s: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of jobs and of boards."""
        return len(self.users), len(self.boards)

    def ends_alone_s(self) -> NDArray[np.float64]:
        """Return when each job would end as the first on each board, shape (jobs, boards).

        NaN where the job may not use the board, or would not be over before it closes.
        """
        ends = self.ready_s + self.run_s
        with np.errstate(invalid="ignore"):
            return np.where(ends <= self.closes_s, ends, np.nan)

    def as_json(self) -> dict[str, object]:
        """Return the document as `DOCUMENT_SCHEMA` describes it."""
        jobs, boards = np.nonzero(~np.isnan(self.run_s))
        return {
            "schema": SCHEMA,
            "objective": self.objective,
            "cool_down_s": self.cool_down_s,
            "boards": [
                {"id": uid, "ready_s": ready, "closes_s": None if math.isinf(closes) else closes}
                for uid, ready, closes in zip(
                    self.boards, self.ready_s.tolist(), self.closes_s.tolist(), strict=True
                )
            ],
            "users": [
                {"usage_board_s": usage, "share": share}
                for usage, share in zip(
                    self.usage_board_s.tolist(), self.shares.tolist(), strict=True
                )
            ],
            "jobs": [
                {"user": user, "deadline_s": None if math.isnan(due) else due, "weight": weight}
                for user, due, weight in zip(
                    self.users.tolist(),
                    self.deadlines_s.tolist(),
                    self.weights.tolist(),
                    strict=True,
                )
            ],
            "pairs": [
                {"job": job, "board": board, "run_s": run_s}
                for job, board, run_s in zip(
                    jobs.tolist(), boards.tolist(), self.run_s[jobs, boards].tolist(), strict=True
                )
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Where and when jobs start.

    Attributes:
        status: How it was found.
        gap: ``|objective - bound| / |objective|``; NaN where it is not known.
        board: Shape (jobs,): row of the board, -1 for jobs that are not planned.
        start_s: Shape (jobs,): from now; NaN for jobs that are not planned.
        value: Of the objective; NaN where it is not known.
        solver_s: Time that the solver took, for reports alone.
        problem: Why the status is ``greedy``; "" otherwise.
    """

    status: PlanStatus
    gap: float
    board: NDArray[np.intp]
    start_s: NDArray[np.float64]
    value: float = np.nan
    solver_s: float = 0.0
    problem: str = ""

    def ends_s(self, document: Document) -> NDArray[np.float64]:
        """Return when each job ends, shape (jobs,); NaN for jobs that are not planned."""
        ends = np.full(len(self.board), np.nan)
        planned = np.flatnonzero(self.board >= 0)
        ends[planned] = self.start_s[planned] + document.run_s[planned, self.board[planned]]
        return ends

    def as_json(self) -> dict[str, object]:
        """Return the plan as `PLAN_SCHEMA` describes it."""
        planned = np.flatnonzero(self.board >= 0)
        return {
            "schema": SCHEMA,
            "status": self.status.value,
            "gap": None if math.isnan(self.gap) else self.gap,
            "starts": [
                {"job": job, "board": int(self.board[job]), "start_s": float(self.start_s[job])}
                for job in planned.tolist()
            ],
        }


def no_plan(document: Document) -> Plan:
    """Return a plan without any start."""
    jobs = len(document.users)
    return Plan(
        status=PlanStatus.NONE,
        gap=np.nan,
        board=np.full(jobs, -1, dtype=np.intp),
        start_s=np.full(jobs, np.nan),
    )


def check_plan(document: Document, plan: Plan) -> None:
    """Check that each board takes one job at a time, while it is open, and only allowed ones.

    Raises:
        ValueError: The plan breaks a rule; the message names it.
    """
    planned = np.flatnonzero(plan.board >= 0)
    where, start = plan.board[planned], plan.start_s[planned]
    took = document.run_s[planned, where]
    if np.isnan(took).any() or not (np.isfinite(start) & (start >= 0)).all():
        raise ValueError(
            "a job is planned on a board on which it cannot run, or its start is not a time from 0"
        )
    if (start < document.ready_s[where] - _TOLERANCE_S).any():
        raise ValueError("a job is planned before its board is free")
    if (start + took > document.closes_s[where] + _TOLERANCE_S).any():
        raise ValueError("a job is planned beyond the time at which its board closes")
    order = np.lexsort((start, where))
    where, start, took = where[order], start[order], took[order]
    free = start[:-1] + took[:-1] + document.cool_down_s
    if ((where[1:] == where[:-1]) & (start[1:] < free - _TOLERANCE_S)).any():
        raise ValueError("a board is planned for two jobs at the same time")
