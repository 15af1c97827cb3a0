"""From a batch to the document of its first benchmarks, and from a plan back to scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.prediction.estimates import UNKNOWN_RUN_S, past_pairs
from edgeyard.scheduler.solvers.document import Document, Plan

_LATER, _ELSEWHERE = 0.5, 0.25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """A document and where its rows come from.

    Attributes:
        classes: Shape (jobs,): class of each job.
        boards: Shape (boards,): row in the batch of each board.
        seconds: Shape (pairs,): expected run times of all pairs, of the window and beyond.
    """

    document: Document
    classes: NDArray[np.intp]
    boards: NDArray[np.intp]
    seconds: NDArray[np.float64]


def window_of(batch: Batch, pairs: Pairs, objective: str, jobs: int) -> Window:
    """Return the first benchmarks of the queue that have a free board, as a document.

    Jobs and boards are in an order that depends on the seed and on what they are, not on how they
    were handed in: of plans that are equally good a solver's choice depends on it.

    Args:
        pairs: What is allowed now.
        objective: Of the document.
        jobs: Most of them.
    """
    width = np.diff(pairs.starts)
    rows = batch.class_of_job[batch.queue]
    first = batch.queue[width[rows] > 0][:jobs]
    used = np.unique(batch.class_of_job[first])
    place = np.empty(batch.shape[1], dtype=np.intp)
    place[batch.board_order] = np.arange(batch.shape[1])
    seconds = _seconds(batch, pairs)
    best = {row: _best_boards(pairs, seconds, row, place, len(first)) for row in used.tolist()}
    chosen = np.concatenate([*best.values()]) if best else np.empty(0, dtype=np.intp)
    open_ = np.zeros(batch.shape[1], dtype=np.bool_)
    open_[pairs.boards[chosen]] = True
    boards = batch.board_order[open_[batch.board_order]]
    column = np.empty(batch.shape[1], dtype=np.intp)
    column[boards] = np.arange(len(boards))
    order = sorted(first.tolist(), key=lambda job: (_identity(batch, job), batch.job_users[job]))
    classes = batch.class_of_job[order] if order else np.empty(0, dtype=np.intp)
    run_s = np.full((len(order), len(boards)), np.nan)
    for job, row in enumerate(classes.tolist()):
        run_s[job, column[pairs.boards[best[row]]]] = seconds[best[row]]
    users, usage_board_s, shares = user_columns(batch, order)
    return Window(
        document=Document(
            objective=objective,
            boards=tuple(batch.snapshot.uids[board] for board in boards.tolist()),
            run_s=run_s,
            deadlines_s=deadlines_s(batch, classes),
            users=users,
            usage_board_s=usage_board_s,
            shares=shares,
            ready_s=np.zeros(len(boards)),
            closes_s=np.full(len(boards), np.inf),
            weights=np.ones(len(order)),
        ),
        classes=classes,
        boards=boards,
        seconds=seconds,
    )


def user_columns(
    batch: Batch, jobs: Sequence[int]
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """Return the columns of a `Document` about the users of its jobs.

    Returns:
        Shape (jobs,): the row of each job's user; shape (users,): what each has used, and each
        one's share.
    """
    names = sorted({batch.job_users[job] for job in jobs})
    row_of_name = {name: row for row, name in enumerate(names)}
    owed = [batch.knowledge.entitlements.get(name) for name in names]
    return (
        np.array([row_of_name[batch.job_users[job]] for job in jobs], dtype=np.intp),
        np.array([0.0 if each is None else each.usage_board_s for each in owed], dtype=np.float64),
        np.array([1.0 if each is None else each.share for each in owed], dtype=np.float64),
    )


def _best_boards(
    pairs: Pairs,
    seconds: NDArray[np.float64],
    row: int,
    place: NDArray[np.intp],
    count: int,
) -> NDArray[np.intp]:
    """Return a class's pairs with the shortest runs, as many as there are jobs in the window.

    More change nothing: the other jobs use at most ``count - 1`` boards, so that one of these is
    always left where a job ends no later than on any other board.
    """
    its = np.arange(pairs.starts[row], pairs.starts[row + 1])
    return its[np.lexsort((place[pairs.boards[its]], seconds[its]))[:count]]


def plan_scores(window: Window, plan: Plan, pairs: Pairs) -> NDArray[np.float32]:
    """Return a plan as preferences; see `edgeyard.plugins.scorers.ilp.Ilp`.

    Returns:
        Shape (pairs,).
    """
    scores = np.full(len(pairs), np.nan, dtype=np.float32)
    planned = np.flatnonzero(plan.board >= 0)
    for row in np.unique(window.classes[planned]).tolist():
        seconds = np.maximum(window.seconds[pairs.of(row)], 1e-9)
        scores[pairs.of(row)] = _ELSEWHERE * seconds.min() / seconds
    # Later first, so that a start now outweighs one of the same class later.
    for job in planned[np.argsort(-plan.start_s[planned], kind="stable")].tolist():
        at = pairs.at(int(window.classes[job]), int(window.boards[plan.board[job]]))
        if at is not None:
            scores[at] = 1.0 if plan.start_s[job] <= 0.0 else _LATER
    return scores


def plan_seconds(window: Window, plan: Plan, pairs: Pairs) -> NDArray[np.float32]:
    """Return when a class's next benchmark would end on each board if the others keep to the plan.

    That is its planned end on the board where the plan has it, and elsewhere the end of its run
    after all that is planned there.

    Returns:
        Shape (pairs,); NaN for classes without a planned benchmark.
    """
    scores = np.full(len(pairs), np.nan, dtype=np.float32)
    planned = np.flatnonzero(plan.board >= 0)
    ends = plan.ends_s(window.document)
    free_s = np.zeros(int(pairs.boards.max(initial=-1)) + 1)
    np.maximum.at(free_s, window.boards, window.document.ready_s)
    planned_boards = window.boards[plan.board[planned]]
    np.maximum.at(free_s, planned_boards, ends[planned] + window.document.cool_down_s)
    for row in np.unique(window.classes[planned]).tolist():
        its = pairs.of(row)
        scores[its] = free_s[pairs.boards[its]] + window.seconds[its]
    for job, board in zip(planned.tolist(), planned_boards.tolist(), strict=True):
        at = pairs.at(int(window.classes[job]), board)
        if at is not None:
            scores[at] = min(scores[at], np.float32(ends[job]))
    return scores


def deadlines_s(batch: Batch, classes: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the deadlines of classes in seconds from now, NaN for none."""
    due = [batch.deadlines[row] for row in classes.tolist()]
    return np.array(
        [np.nan if each is None else (each - batch.now).total_seconds() for each in due],
        dtype=np.float64,
    )


def _seconds(batch: Batch, pairs: Pairs) -> NDArray[np.float64]:
    """Return expected run times; where nothing is known, the stated bound, or the same for all."""
    expected = np.exp(past_pairs(batch, pairs).run_time_parts().location)
    bound = batch.user_times_s[pairs.rows]
    expected = np.where(np.isnan(expected), bound, np.fmin(expected, bound))
    return np.where(np.isnan(expected), UNKNOWN_RUN_S, expected)


def _identity(batch: Batch, job: int) -> tuple[str, ...]:
    """Return the identity of a benchmark, for an order that does not depend on the queue."""
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
