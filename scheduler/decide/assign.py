"""Who gets which board: down the queue, the best free board each.

A benchmark for which no board is free is passed over: it never holds up the next one. When the
queue is through, no board is left idle that a waiting benchmark could have used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.model.decision import PendingBenchmark

NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignment:
    """Boards given out in one cycle.

    Attributes:
        board_of_job: Shape (jobs,): row of the board, `NOBODY` for none.
        job_of_board: Shape (boards,): row of the benchmark that got it, `NOBODY` for none.
        blocked_by: Shape (boards,): row of the first board given out that it must not run beside,
            `NOBODY` for none.
    """

    board_of_job: NDArray[np.intp]
    job_of_board: NDArray[np.intp]
    blocked_by: NDArray[np.intp]


def assign(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    order: NDArray[np.intp],
    ready: NDArray[np.bool_],
    feasible: NDArray[np.bool_],
    scores: NDArray[np.float32],
) -> Assignment:
    """Give boards out.

    Args:
        batch: The batch.
        pending: The benchmarks, in the batch's order.
        order: Rows of benchmarks, first to last.
        ready: Shape (jobs,): may be placed at all.
        feasible: Shape (classes, boards).
        scores: Shape (classes, boards).
    """
    boards = batch.shape[1]
    board_of_job = np.full(len(pending), NOBODY, dtype=np.intp)
    job_of_board = np.full(boards, NOBODY, dtype=np.intp)
    blocked_by = np.full(boards, NOBODY, dtype=np.intp)
    conflicts = batch.snapshot.conflicts
    # In columns of the seeded order, the first of equal scores is the one that the seed favours.
    columns = batch.board_order
    column_of_board = np.empty_like(columns)
    column_of_board[columns] = np.arange(boards)
    worth = scores[:, columns]  # a copy
    worth[~feasible[:, columns]] = -np.inf
    open_classes = [bool(each) for each in np.logical_or.reduce(feasible, axis=1)]
    row_of_job = batch.class_of_job.tolist()
    row_of_uid = {uid: row for row, uid in enumerate(batch.snapshot.uids)}
    for job in order[ready[order]].tolist():
        row = row_of_job[job]
        if not open_classes[row]:
            continue
        column = _best(
            worth[row],
            [
                int(column_of_board[row_of_uid[uid]])
                for uid in pending[job].tried_uids
                if uid in row_of_uid
            ],
        )
        if worth[row, column] == -np.inf:
            open_classes[row] = False  # boards are only ever taken: it stays so
            continue
        board = int(columns[column])
        board_of_job[job], job_of_board[board] = board, job
        worth[:, column] = -np.inf
        if conflicts is not None:
            beside = np.flatnonzero(conflicts[board] | conflicts[:, board])
            beside = beside[beside != board]
            worth[:, column_of_board[beside]] = -np.inf
            blocked_by[beside] = np.where(blocked_by[beside] == NOBODY, board, blocked_by[beside])
    return Assignment(board_of_job=board_of_job, job_of_board=job_of_board, blocked_by=blocked_by)


def _best(worth: NDArray[np.float32], tried: list[int]) -> int:
    """Column of the best board; one on which the benchmark failed only if there is no other."""
    if tried:
        others = worth.copy()
        others[tried] = -np.inf
        best = int(others.argmax())
        if others[best] != -np.inf:
            return best
    return int(worth.argmax())
