"""Who gets which board: down the queue, the best free board each; or a short queue all at once.

One after the other, each takes the free board that the scores like best *for it*. Jointly, by
SciPy's ``linear_sum_assignment``, boards go so that the scores' sum is the largest, among all ways
that serve the same benchmarks: those that come first in the queue. That they do is built into the
weights. Sets of benchmarks that can be served together are the independent sets of a transversal
matroid, so that for any weights that fall along the queue the heaviest set is the one that is first
by the queue's order (Edmonds 1971, greedy algorithm); the weights differ by more than all scores
together can make up for.

Nobody gets a board on which it might still run at that board's next commitment
(`edgeyard.scheduler.decide.commitments`). Those whose promised start has come are the first.

A benchmark for which no board is free is passed over: it never holds up the next one. When the
queue is through, no board is left idle that a waiting benchmark could have used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.commitments import Commitments
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
        withheld: By row of the benchmark, why it got none although a board was free: its user may
            have no more, or the board is promised.
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
    promised: Commitments,
    joint_most: int = 0,
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
        promised: Which boards are kept for whom, and who would come too late.
        joint_most: Queues of up to so many get their boards jointly, if no boards share cores.
    """
    boards = batch.shape[1]
    board_of_job = np.full(len(pending), NOBODY, dtype=np.intp)
    job_of_board = np.full(boards, NOBODY, dtype=np.intp)
    blocked_by = np.full(boards, NOBODY, dtype=np.intp)
    conflicts = batch.snapshot.conflicts
    # The first of equal scores in the seeded order is the one that the seed favours.
    place = np.empty(boards, dtype=np.intp)
    place[batch.board_order] = np.arange(boards)
    rows = batch.class_of_job
    queue = order[ready[order]]
    if promised.kept:
        due = np.isin(queue, list(promised.kept))
        queue = np.concatenate((queue[due], queue[~due]))
    asking = np.bincount(rows[queue], minlength=batch.shape[0])
    open_pairs, open_scores = promised.in_time(pairs, scores)
    choices = _Choices(open_pairs, open_scores, place, asking)
    row_of_job = rows.tolist()
    row_of_uid = {uid: row for row, uid in enumerate(batch.snapshot.uids)}
    withheld: dict[int, Waiting] = {}
    planned: dict[int, int] = {}
    if conflicts is None and 1 < len(queue) <= joint_most:
        planned = _jointly(batch, pending, queue, open_pairs, open_scores)
    for job in queue.tolist():
        row = row_of_job[job]
        own = promised.kept.get(job, NOBODY)
        at_own = pairs.at(row, own) if own != NOBODY and choices.free[own] else None
        uids = pending[job].tried_uids
        tried = [row_of_uid[uid] for uid in uids if uid in row_of_uid] if uids else ()
        board = choices.best(row, tried)
        if at_own is None and board == NOBODY:
            if promised.starts:
                kept = _kept_from(row, pairs, promised, choices)
                if kept != NOBODY:
                    withheld[job] = promised.waiting(kept)
            continue
        if (stopped := ledgers.refusal(job)) is not None:
            withheld[job] = stopped
            continue
        if job in planned and choices.free[planned[job]]:
            board = planned[job]
        if at_own is not None:
            at_other = None if board == NOBODY else pairs.at(row, board)
            if at_other is None or scores[at_own] >= scores[at_other]:
                board = own
        ledgers.place(job)
        board_of_job[job], job_of_board[board] = board, job
        choices.take(board)
        if conflicts is not None:
            beside = np.flatnonzero(conflicts[board] | conflicts[:, board])
            beside = beside[beside != board]
            choices.free[beside] = False
            blocked_by[beside] = np.where(blocked_by[beside] == NOBODY, board, blocked_by[beside])
    return Assignment(
        board_of_job=board_of_job,
        job_of_board=job_of_board,
        blocked_by=blocked_by,
        withheld=withheld,
    )


def _kept_from(row: int, pairs: Pairs, promised: Commitments, choices: _Choices) -> int:
    """A board that the class could use now, were it not kept for others; `NOBODY` for none."""
    its = pairs.of(row)
    boards = pairs.boards[its]
    kept = choices.free[boards] | np.isin(boards, list(promised.kept.values()))
    late = boards[kept & promised.late(pairs.rows[its], boards)]
    return int(late[0]) if len(late) else NOBODY


class _Choices:
    """The best free board of each class.

    Boards are only ever taken. So the boards of a class that several benchmarks share are sorted
    once, and those that are gone are passed once; for one that asks alone a look at its scores is
    less work than sorting them.

    Attributes:
        free: Shape (boards,).
    """

    def __init__(
        self,
        pairs: Pairs,
        scores: NDArray[np.float32],
        place: NDArray[np.intp],
        asking: NDArray[np.intp],
    ) -> None:
        """Nothing is taken yet.

        Args:
            place: Shape (boards,): the lowest comes first of equal scores.
            asking: Shape (classes,): how many benchmarks of each want a board.
        """
        self._pairs, self._scores, self._place = pairs, scores, place
        self._asking = asking.tolist()
        self._flags = bytearray(b"\x01" * len(place))
        self.free = np.frombuffer(self._flags, dtype=np.bool_)
        self._sorted: dict[int, list[int]] = {}
        self._passed: dict[int, int] = {}

    def take(self, board: int) -> None:
        """It is given out."""
        self._flags[board] = 0

    def best(self, row: int, tried: Sequence[int] = ()) -> int:
        """The best that is free; one of ``tried`` only if there is no other; `NOBODY` for none."""
        if self._asking[row] > 1 and not tried:
            return self._first(row)
        its = self._pairs.of(row)
        boards = self._pairs.boards[its]
        open_ = self.free[boards]
        if tried:
            others = open_ & ~np.isin(boards, tried)
            open_ = others if others.any() else open_
        if not open_.any():
            return NOBODY
        boards, scores = boards[open_], self._scores[its][open_]
        best = boards[scores == scores.max()]
        return int(best[self._place[best].argmin()])

    def _first(self, row: int) -> int:
        boards = self._sorted.get(row)
        if boards is None:
            its = self._pairs.of(row)
            own = self._pairs.boards[its]
            boards = own[np.lexsort((self._place[own], -self._scores[its]))].tolist()
            self._sorted[row] = boards
        flags, passed, count = self._flags, self._passed.get(row, 0), len(boards)
        while passed < count and not flags[boards[passed]]:
            passed += 1
        self._passed[row] = passed
        return boards[passed] if passed < count else NOBODY


def _jointly(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    queue: NDArray[np.intp],
    pairs: Pairs,
    scores: NDArray[np.float32],
) -> dict[int, int]:
    """Board by benchmark; who is not in it has none to get."""
    from scipy.optimize import linear_sum_assignment  # takes a moment: others do without

    jobs, boards = len(queue), batch.shape[1]
    step = 2.0 * jobs + 2.0  # more than all scores, and all that trying again costs, can add up to
    worth = np.zeros((jobs, boards))
    row_of_uid = {uid: row for row, uid in enumerate(batch.snapshot.uids)}
    luck = np.empty(boards)
    luck[batch.board_order] = np.linspace(1e-6, 0.0, boards)
    for number, job in enumerate(queue.tolist()):
        its = pairs.of(int(batch.class_of_job[job]))
        there = pairs.boards[its]
        worth[number, there] = step * (jobs - number) + scores[its] + luck[there]
        tried = [row_of_uid[uid] for uid in pending[job].tried_uids if uid in row_of_uid]
        worth[number, tried] = np.maximum(worth[number, tried] - 1.0, 0.0)
    chosen, given = linear_sum_assignment(worth, maximize=True)
    return {
        int(queue[number]): int(board)
        for number, board in zip(chosen.tolist(), given.tolist(), strict=True)
        if worth[number, board] > 0.0
    }
