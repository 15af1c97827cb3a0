"""Who gets which board: down the queue, the best free board each.

A benchmark for which no board is free is passed over: it never holds up the next one. When the
queue is through, no board is left idle that a waiting benchmark could have used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.ledgers import Ledgers
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.model.benchmark import Waiting
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
        withheld: By row of the benchmark, why its user may have no more although a board was free.
    """

    board_of_job: NDArray[np.intp]
    job_of_board: NDArray[np.intp]
    blocked_by: NDArray[np.intp]
    withheld: Mapping[int, Waiting] = field(default_factory=dict)


def assign(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    order: NDArray[np.intp],
    ready: NDArray[np.bool_],
    pairs: Pairs,
    scores: NDArray[np.float32],
    ledgers: Ledgers,
) -> Assignment:
    """Give boards out.

    Args:
        batch: The batch.
        pending: The benchmarks, in the batch's order.
        order: Rows of benchmarks, first to last.
        ready: Shape (jobs,): may be placed at all.
        pairs: Which class may use which board.
        scores: Shape (pairs,).
        ledgers: What users may still have; asked and told in the order of the queue.
    """
    boards = batch.shape[1]
    board_of_job = np.full(len(pending), NOBODY, dtype=np.intp)
    job_of_board = np.full(boards, NOBODY, dtype=np.intp)
    blocked_by = np.full(boards, NOBODY, dtype=np.intp)
    conflicts = batch.snapshot.conflicts
    # The first of equal scores in the seeded order is the one that the seed favours.
    place = np.empty(boards, dtype=np.intp)
    place[batch.board_order] = np.arange(boards)
    free = np.ones(boards, dtype=np.bool_)
    preferences: dict[int, NDArray[np.intp]] = {}
    row_of_job = batch.class_of_job.tolist()
    row_of_uid = {uid: row for row, uid in enumerate(batch.snapshot.uids)}
    withheld: dict[int, Waiting] = {}
    for job in order[ready[order]].tolist():
        row = row_of_job[job]
        best = preferences.get(row)
        if best is None:
            its = pairs.of(row)
            own = pairs.boards[its]
            best = own[np.lexsort((place[own], -scores[its]))]
        if len(best):
            # Boards are only ever taken: those that are gone need not be looked at again.
            first = int(free[best].argmax())
            best = best[first:] if free[best[first]] else best[:0]
        preferences[row] = best
        if not len(best):
            continue
        if (stopped := ledgers.refusal(job)) is not None:
            withheld[job] = stopped
            continue
        ledgers.place(job)
        tried = [row_of_uid[uid] for uid in pending[job].tried_uids if uid in row_of_uid]
        board = _first_free(best, free, tried)
        board_of_job[job], job_of_board[board] = board, job
        free[board] = False
        if conflicts is not None:
            beside = np.flatnonzero(conflicts[board] | conflicts[:, board])
            beside = beside[beside != board]
            free[beside] = False
            blocked_by[beside] = np.where(blocked_by[beside] == NOBODY, board, blocked_by[beside])
    return Assignment(
        board_of_job=board_of_job,
        job_of_board=job_of_board,
        blocked_by=blocked_by,
        withheld=withheld,
    )


def _first_free(best: NDArray[np.intp], free: NDArray[np.bool_], tried: list[int]) -> int:
    """The best free board; one on which the benchmark failed only if there is no other."""
    if tried:
        others = best[free[best] & ~np.isin(best, tried)]
        if len(others):
            return int(others[0])
    return int(best[0])
