"""From a batch to the document of its first benchmarks, and from a plan back to scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.prediction.estimates import run_times
from edgeyard.scheduler.solvers.document import Document, Plan

UNKNOWN_S = 60.0
"""Run time of what nothing is known of, and no bound was stated for; the same on all boards."""

_LATER, _ELSEWHERE = 0.5, 0.25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """A document and where its rows come from.

    Attributes:
        classes: Shape (jobs,): class of each job.
        boards: Shape (boards,): row in the batch of each board.
    """

    document: Document
    classes: NDArray[np.intp]
    boards: NDArray[np.intp]


def window_of(batch: Batch, pairs: Pairs, objective: str, jobs: int, cells: int) -> Window:
    """Return the first benchmarks of the queue that have a free board, as a document.

    Jobs and boards are in an order that depends on the seed and on what they are, not on how they
    were handed in: of plans that are equally good a solver's choice depends on it.

    Args:
        batch: The batch.
        pairs: What is allowed.
        objective: Of the document.
        jobs: Most of them.
        cells: Most pairs of jobs and boards; the last jobs are left out to keep to it.
    """
    width = np.diff(pairs.starts)
    rows = batch.class_of_job[batch.queue]
    first = batch.queue[width[rows] > 0][:jobs]
    first = first[np.cumsum(width[batch.class_of_job[first]]) <= cells]
    used = np.unique(batch.class_of_job[first])
    spans = [np.arange(pairs.starts[row], pairs.starts[row + 1]) for row in used.tolist()]
    chosen = np.concatenate(spans) if spans else np.empty(0, dtype=np.intp)
    free = np.zeros(batch.shape[1], dtype=np.bool_)
    free[pairs.boards[chosen]] = True
    boards = batch.board_order[free[batch.board_order]]
    table = np.full((batch.shape[0], len(boards)), np.nan)
    column = np.empty(batch.shape[1], dtype=np.intp)
    column[boards] = np.arange(len(boards))
    table[pairs.rows[chosen], column[pairs.boards[chosen]]] = _seconds(batch, pairs, chosen)
    names = sorted({batch.job_users[job] for job in first.tolist()})
    place = {name: index for index, name in enumerate(names)}
    order = sorted(first.tolist(), key=lambda job: (_what(batch, job), batch.job_users[job]))
    classes = batch.class_of_job[order] if order else np.empty(0, dtype=np.intp)
    owed = [batch.knowledge.entitlements.get(name) for name in names]
    return Window(
        document=Document(
            objective=objective,
            boards=tuple(batch.snapshot.uids[board] for board in boards.tolist()),
            run_s=table[classes],
            deadlines_s=np.array([_deadline_s(batch, row) for row in classes.tolist()], np.float64),
            users=np.array([place[batch.job_users[job]] for job in order], dtype=np.intp),
            usage_board_s=np.array(
                [0.0 if each is None else each.usage_board_s for each in owed], np.float64
            ),
            shares=np.array([1.0 if each is None else each.share for each in owed], np.float64),
        ),
        classes=classes,
        boards=boards,
    )


def plan_scores(window: Window, plan: Plan, pairs: Pairs) -> NDArray[np.float32]:
    """Return a plan as scores; see `edgeyard.plugins.scorers.ilp.Ilp`.

    Returns:
        Shape (pairs,).
    """
    scores = np.full(len(pairs), np.nan, dtype=np.float32)
    planned = np.flatnonzero(plan.board >= 0)
    for row in np.unique(window.classes[planned]).tolist():
        its = pairs.of(row)
        job = int(planned[window.classes[planned] == row][0])
        took = np.full(int(pairs.boards[its].max()) + 1, np.nan)
        known = window.boards < len(took)
        took[window.boards[known]] = window.document.run_s[job, known]
        seconds = np.maximum(took[pairs.boards[its]], 1e-9)
        scores[its] = _ELSEWHERE * np.nanmin(seconds) / seconds
    # Later first, so that a start now outweighs one of the same class later.
    for job in planned[np.argsort(-plan.start_s[planned], kind="stable")].tolist():
        at = pairs.at(int(window.classes[job]), int(window.boards[plan.board[job]]))
        if at is not None:
            scores[at] = 1.0 if plan.start_s[job] <= 0.0 else _LATER
    return scores


def _seconds(batch: Batch, pairs: Pairs, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
    """Expected run times; where nothing is known, the stated bound, or the same for all."""
    rows = pairs.rows[chosen]
    expected = run_times(batch, rows, pairs.boards[chosen])
    bound = batch.user_times_s[rows]
    expected = np.where(np.isnan(expected), bound, np.fmin(expected, bound))
    return np.where(np.isnan(expected), UNKNOWN_S, expected)


def _deadline_s(batch: Batch, row: int) -> float:
    due = batch.deadlines[row]
    return np.nan if due is None else (due - batch.now).total_seconds()


def _what(batch: Batch, job: int) -> tuple[str, ...]:
    """Return what a benchmark is, for an order that does not depend on its place."""
    row = int(batch.class_of_job[job])
    kind = batch.kinds[row]
    return (
        str(batch.deadlines[row]),
        batch.families[row],
        str(batch.target_uids[row]),
        repr(kind),
        repr(batch.constraints[row]),
        f"{batch.ram_bytes[row]} {batch.storage_bytes[row]} {batch.user_times_s[row]}",
    )
