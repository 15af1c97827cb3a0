"""Who gets which board: down the queue, the best free board each; or a short queue all at once.

One after the other, each takes the free board that the scores like best *for it*. Jointly, by
SciPy's ``linear_sum_assignment``, boards go so that the scores' sum is the largest, among all ways
that serve the same benchmarks: those that come first in the queue. That they do is built into the
weights. Sets of benchmarks that can be served together are the independent sets of a transversal
matroid, so that for any weights that fall along the queue the heaviest set is the one that is first
by the queue's order (Edmonds 1971, greedy algorithm); the weights differ by more than all scores
together can make up for.

No benchmark gets a board on which it might still run when that board's next reservation or foreign
lease begins (`edgeyard.scheduler.prediction.timeline`). Those whose reservation is due are the
first.

A benchmark for which no board is free is passed over: it never holds up the next one. When the
queue is through, no board is left idle that a waiting benchmark could have used, but one that has
just failed it. Only a policy with a planner may hold a benchmark back although a board is free: by
expected cost (`edgeyard.scheduler.decide.planning`), or by a mapping heuristic
(`edgeyard.scheduler.decide.mapping`). The benchmarks of a gang get boards all at once or none at
all (`edgeyard.scheduler.decide.gangs`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.explore import Explorer
from edgeyard.scheduler.decide.gangs import Gang, GangPlacer
from edgeyard.scheduler.decide.ledgers import Ledgers
from edgeyard.scheduler.decide.mapping import Hold, Mapper, hold_reason
from edgeyard.scheduler.decide.planning import BoardPlan, CostPlanner, plan_hold_reason
from edgeyard.scheduler.decide.reservations import (
    own_reservation_reason,
    reserved_board_reason,
)
from edgeyard.scheduler.framework.batch import NO_ROW, Batch, Pairs
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import WaitReason
from edgeyard.scheduler.model.decision import PendingBenchmark
from edgeyard.scheduler.prediction.timeline import Timeline, leases_of

# A pair's key: its score in the upper half, its board's place in the seeded order in the lower.
_HALF = np.uint64(32)
_PLACE = np.uint64((1 << 32) - 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignment:
    """Assignment of boards in one cycle.

    Attributes:
        board_of_job: Shape (jobs,): row of the board, `NO_ROW` for none.
        job_of_board: Shape (boards,): row of the benchmark that got it, or of the first one of the
            gang for which it is held; `NO_ROW` for none.
        blocked_by: Shape (boards,): row of the first board given out that it must not run next to,
            `NO_ROW` for none.
        withheld: By row of the benchmark, why it got none although a board was free: its user may
            have no more, or the board is reserved.
        holds: By row of the benchmark, for what a mapping heuristic holds it back although a board
            is free.
        planned: The same of the plan by expected cost.
        clearing: By row of the benchmark that waits for the end of a canary, the row of the board
            that it is given; see `edgeyard.scheduler.decide.canaries`.
        explored: By row of the benchmark that got a board at random: how many boards were free for
            it, and whether it is the one that it would have got otherwise.
    """

    board_of_job: NDArray[np.intp]
    job_of_board: NDArray[np.intp]
    blocked_by: NDArray[np.intp]
    withheld: Mapping[int, WaitReason] = field(default_factory=dict)
    holds: Mapping[int, Hold] = field(default_factory=dict)
    explored: Mapping[int, tuple[int, bool]] = field(default_factory=dict)
    planned: Mapping[int, BoardPlan] = field(default_factory=dict)
    clearing: Mapping[int, int] = field(default_factory=dict)

    @property
    def held(self) -> Sequence[int]:
        """Rows of the benchmarks that are held back although a board is free."""
        return [*self.holds, *self.planned]


def assign(
    boards: BoardState,
    queue: NDArray[np.intp],
    *,
    gangs: Mapping[int, Gang],
    gang_placer: GangPlacer,
    mapper: Mapper | None,
    explorer: Explorer,
    max_joint_jobs: int,
) -> Assignment:
    """Assign boards to benchmarks, in passes on one state of the boards.

    Args:
        boards: All of them are free.
        queue: Rows of benchmarks that may be placed, first to last.
        gangs: The gang of each benchmark that has one, by row.
        gang_placer: Finds boards for them.
        mapper: Chooses the boards of all that are in no gang, have not waited for the policy's
            ``guard_s`` and have no reservation that is due; None: the policy has no mapping.
        explorer: Draws benchmarks that get a board at random.
        max_joint_jobs: Maximum queue that is assigned jointly, if no boards share cores.
    """
    due = np.isin(queue, list(boards.timeline.due_boards))
    queue = np.concatenate((queue[due], queue[~due]))
    mapped_queue = queue[:0]
    in_gang = np.isin(queue, list(gangs))
    if mapper is not None:
        first = boards.guarded[queue] | np.isin(queue, list(boards.timeline.due_boards)) | in_gang
        queue, mapped_queue = queue[first], queue[~first]
    if 1 < len(queue) <= max_joint_jobs and not in_gang.any():
        boards.plan_jointly(queue)
    for job in queue.tolist():
        if job in gangs:
            boards.place_gang(gangs[job], gang_placer)
        else:
            boards.serve(job, explorer)
    if mapper is not None and len(mapped_queue):
        boards.map(mapper, mapped_queue)
    return boards.assignment()


class BoardState:
    """The boards of one cycle: who got which, and why others got none although one is free.

    Attributes:
        timeline: Which boards are reserved for whom, and who might not be over in time.
        guarded: Shape (jobs,): have waited for the guard time.
    """

    def __init__(
        self,
        batch: Batch,
        pending: Sequence[PendingBenchmark],
        pairs: Pairs,
        scores: NDArray[np.float32],
        ledgers: Ledgers,
        timeline: Timeline,
        planner: CostPlanner,
        guarded: NDArray[np.bool_],
        of_canaries: Container[int] = (),
    ) -> None:
        """Start with all boards free.

        Args:
            pending: The benchmarks, in the batch's order.
            pairs: Which class may use which board.
            scores: Shape (pairs,).
            ledgers: What users may still have; they are asked and updated in the order of the
                queue.
            timeline: See the attributes.
            planner: Learns of each benchmark what it gets, and may hold it back if it has neither
                waited for the policy's ``guard_s`` nor a reservation that is due.
            guarded: See the attributes.
            of_canaries: Rows of boards that canaries still hold: nobody leaves a board that was
                cleared for one of these.
        """
        self.timeline, self.guarded = timeline, guarded
        self._of_canaries = of_canaries
        self._batch, self._pending, self._pairs, self._scores = batch, pending, pairs, scores
        self._ledgers, self._planner = ledgers, planner
        self._open_pairs, self._open_scores = timeline.in_time(pairs, scores)
        self._rows = batch.class_of_job.tolist()
        asking = np.bincount(batch.class_of_job, minlength=batch.shape[0])
        self._choices = _Choices(self._open_pairs, self._open_scores, batch.board_order, asking)
        self._tried = {
            job: batch.rows_of_uids(each.tried_uids)
            for job, each in enumerate(pending)
            if each.tried_uids
        }
        self._avoided = _avoided_boards(batch, pending)
        self._is_kept_off = bool(timeline.next_starts or leases_of(batch))
        self._board_of_job = [NO_ROW] * len(pending)
        self._blocked_by = np.full(batch.shape[1], NO_ROW, dtype=np.intp)
        self._withheld: dict[int, WaitReason] = {}
        self._planned: dict[int, int] = {}
        self._explored: dict[int, tuple[int, bool]] = {}
        self._held_for: dict[int, int] = {}
        self._holds: Mapping[int, Hold] = {}

    def plan_jointly(self, queue: NDArray[np.intp]) -> None:
        """Choose the boards that serve this queue best together; `serve` gives them."""
        if self._batch.snapshot.conflicts is None:
            self._planned = _assign_jointly(
                self._batch, self._pending, queue, self._open_pairs, self._open_scores
            )

    def serve(self, job: int, explorer: Explorer) -> None:
        """Give a benchmark the board reserved for it or its own choice, or state why it waits."""
        own, best = self._own_board(job), self._best(job)
        if own == NO_ROW and best == NO_ROW:
            self._planner.pass_over(job)
            refused = self._ledgers.refusal(job) if self._is_kept_off else None
            if refused is None:
                self._withhold(job)
            else:
                self._withheld[job] = refused
            return
        refused = self._ledgers.refusal(job)
        if refused is not None:
            self._withheld[job] = refused
            return
        planned = self._planned.get(job, NO_ROW)
        if planned != NO_ROW and self._choices.free[planned]:
            best = planned
        if own == NO_ROW:
            board = self._choose(job, best, explorer)
        else:
            better = self._score(job, best) > self._score(job, own)
            board = best if better and best not in self._of_canaries else own
        if board != NO_ROW:
            self._ledgers.place(job)
            self._give(job, board)

    def place_gang(self, gang: Gang, placer: GangPlacer) -> None:
        """Give boards to all benchmarks of a gang, or state why they wait; once for all of them."""
        if gang.jobs[0] in self._withheld or self._board_of_job[gang.jobs[0]] != NO_ROW:
            return
        refused = gang.waiting
        if refused is None:
            stopped = self._ledgers.refusal_together(gang.jobs)
            if stopped is not None:
                self._withheld.update(dict.fromkeys(gang.jobs, stopped))
                return
            free, due_boards = self._choices.free, self.timeline.due_boards
            found = placer.boards(
                gang, self._pairs, self._open_pairs, self._open_scores, due_boards, free
            )
            if len(found) == gang.size:
                for job, board in zip(gang.jobs, found, strict=True):
                    self._ledgers.place(job)
                    self._give(job, board)
                return
            holds = bool(self.guarded[list(gang.jobs)].any()) and placer.may_hold(gang)
            for board in found if holds else ():
                self._take(board)
                self._held_for[board] = gang.jobs[0]
            refused = waiting_reasons.gang_boards(gang.size, len(found), held=holds)
        for job in gang.jobs:
            self._planner.pass_over(job)
            self._withheld[job] = refused

    def map(self, mapper: Mapper, queue: NDArray[np.intp]) -> None:
        """Give benchmarks the boards that a mapping heuristic chooses among those that are left."""
        so_far = {job: board for job, board in enumerate(self._board_of_job) if board != NO_ROW}
        mapped = mapper.map(
            queue,
            self._open_pairs,
            self._open_scores,
            self._choices.free.copy(),
            so_far,
            self._ledgers,
        )
        for job, board in mapped.boards.items():
            self._give(job, board)
        self._holds = mapped.holds
        self._withheld.update(mapped.refused)
        for job in queue.tolist():
            has_answer = job in self._withheld or job in self._holds
            if self._board_of_job[job] == NO_ROW and not has_answer and self._best(job) == NO_ROW:
                self._planner.pass_over(job)
                self._withhold(job)

    def assignment(self) -> Assignment:
        """Return what the passes have led to."""
        given = np.array(self._board_of_job, dtype=np.intp)
        job_of_board = np.full(self._batch.shape[1], NO_ROW, dtype=np.intp)
        placed = np.flatnonzero(given != NO_ROW)
        job_of_board[given[placed]] = placed
        for board, job in self._held_for.items():
            job_of_board[board] = job
        all_holds: dict[int, Hold | BoardPlan] = {**self._holds, **self._planner.holds}
        return Assignment(
            board_of_job=given,
            job_of_board=job_of_board,
            blocked_by=self._blocked_by,
            withheld=_WithheldReasons(self._batch, self._withheld, all_holds)
            if all_holds
            else self._withheld,
            holds=self._holds,
            explored=self._explored,
            planned=self._planner.holds,
        )

    def _own_board(self, job: int) -> int:
        """Return the board that is reserved for a benchmark now, if it can have it."""
        own = self.timeline.due_boards.get(job, NO_ROW)
        if own == NO_ROW or not self._choices.free[own] or own in self._avoided.get(job, ()):
            return NO_ROW
        return NO_ROW if self._pairs.at(self._rows[job], own) is None else own

    def _best(self, job: int) -> int:
        tried, avoided = self._tried.get(job, ()), self._avoided.get(job, ())
        return self._choices.best(self._rows[job], tried, avoided)

    def _score(self, job: int, board: int) -> float:
        pair = None if board == NO_ROW else self._pairs.at(self._rows[job], board)
        return -np.inf if pair is None else float(self._scores[pair])

    def _choose(self, job: int, best: int, explorer: Explorer) -> int:
        """Return the best board, or another one at random; `NO_ROW`: the planner holds it back."""
        tried, avoided = self._tried.get(job, ()), self._avoided.get(job, ())
        may_hold = self._planner.may_hold and job not in self.timeline.due_boards
        if may_hold and not self.guarded[job]:
            best = self._planner.choose(job, best, self._choices.free, (*tried, *avoided))
        settled = best == NO_ROW or tried or avoided or job in self._planned
        if settled or not explorer.is_drawn(job):
            return best
        boards = self._open_pairs.boards[self._open_pairs.of(self._rows[job])]
        boards = boards[self._choices.free[boards]]
        if len(boards) <= 1:
            return best
        drawn = explorer.board(job, boards)
        self._explored[job] = len(boards), drawn == best
        return drawn

    def _give(self, job: int, board: int) -> None:
        self._board_of_job[job] = board
        self._planner.place(job, board)
        self._take(board)

    def _take(self, board: int) -> None:
        """Take a board, and those that must not run next to it."""
        self._choices.take(board)
        conflicts = self._batch.snapshot.conflicts
        if conflicts is not None:
            others = np.flatnonzero(conflicts[board] | conflicts[:, board])
            others = others[others != board]
            self._choices.free[others] = False
            blocked = self._blocked_by[others]
            self._blocked_by[others] = np.where(blocked == NO_ROW, board, blocked)

    def _withhold(self, job: int) -> None:
        """Record why a benchmark gets no board although one is free."""
        row = self._rows[job]
        if job in self._avoided and (failed := self._choices.best(row)) != NO_ROW:
            self._withheld[job] = _retry_reason(self._batch, self._pending[job], failed)
        elif self.timeline.next_starts:
            own_later = own_reservation_reason(self.timeline, job)
            if own_later is not None:
                self._withheld[job] = own_later
                return
            reserved = _reserved_board(row, self._pairs, self.timeline, self._choices)
            if reserved != NO_ROW:
                self._withheld[job] = reserved_board_reason(self.timeline, reserved)


class _WithheldReasons(Mapping[int, WaitReason]):
    """Reasons of benchmarks that get no board; sentences of held ones are made when read."""

    def __init__(
        self,
        batch: Batch,
        others: Mapping[int, WaitReason],
        holds: Mapping[int, Hold | BoardPlan],
    ) -> None:
        self._batch, self._others, self._holds = batch, others, holds

    def __getitem__(self, job: int) -> WaitReason:
        hold = self._holds.get(job)
        if hold is None:
            return self._others[job]
        if isinstance(hold, BoardPlan):
            return plan_hold_reason(self._batch, hold)
        return hold_reason(self._batch, hold)

    def __contains__(self, job: object) -> bool:
        return job in self._holds or job in self._others

    def __iter__(self) -> Iterator[int]:
        return iter({**self._others, **self._holds})

    def __len__(self) -> int:
        return len({**self._others, **self._holds})


def _avoided_boards(
    batch: Batch, pending: Sequence[PendingBenchmark]
) -> Mapping[int, Sequence[int]]:
    """Return by row of the benchmark the rows of the boards that have just failed it."""
    found = {
        job: batch.rows_of_uids(each.avoided_uids(batch.now))
        for job, each in enumerate(pending)
        if each.avoids_boards
    }
    return {job: rows for job, rows in found.items() if rows}


def _retry_reason(batch: Batch, each: PendingBenchmark, board: int) -> WaitReason:
    """Return why a benchmark waits although a board is free.

    The board has just failed it, or another benchmark of its gang has or had it.
    """
    uid = batch.snapshot.uids[board]
    if uid in each.gang_uids:
        return waiting_reasons.only_board_of_gang(uid)
    return waiting_reasons.only_free_board_failed(uid, dict(each.avoid_until)[uid])


def _reserved_board(row: int, pairs: Pairs, timeline: Timeline, choices: _Choices) -> int:
    """Return a board that the class could use if it were not reserved; `NO_ROW` for none."""
    its = pairs.of(row)
    boards = pairs.boards[its]
    free = choices.free[boards] | np.isin(boards, list(timeline.due_boards.values()))
    late = boards[free & timeline.late(pairs.rows[its], boards)]
    return int(late[0]) if len(late) else NO_ROW


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
        board_order: NDArray[np.intp],
        asking: NDArray[np.intp],
    ) -> None:
        """Start with all boards free.

        Args:
            board_order: Rows of boards: of equal scores, the first one's comes first.
            asking: Shape (classes,): how many benchmarks of each want a board.
        """
        place = np.empty(len(board_order), dtype=np.uint32)
        place[board_order] = np.arange(len(board_order), dtype=np.uint32)
        # Scores are 0 to 1, and the bits of such numbers rise as they do: the least key is best.
        bits = np.ascontiguousarray(scores + np.float32(0.0)).view(np.uint32)  # -0 becomes 0
        self._keys = (~bits).astype(np.uint64) << _HALF | place[pairs.boards]
        self._asking, self._starts = asking.tolist(), pairs.starts.tolist()
        self._boards, self._board_order = pairs.boards, board_order
        self._flags = bytearray(b"\x01" * len(place))
        self.free = np.frombuffer(self._flags, dtype=np.bool_)
        self._firsts: dict[int, Iterator[int]] = {}

    def take(self, board: int) -> None:
        """Mark a board as taken."""
        self._flags[board] = 0

    def best(self, row: int, tried: Sequence[int] = (), avoided: Sequence[int] = ()) -> int:
        """Return the best free board; `NO_ROW` for none.

        Args:
            row: Of the class.
            tried: Boards that are chosen only if there is no other.
            avoided: Boards that are not chosen.
        """
        if self._asking[row] > 1 and not tried and not avoided:
            firsts = self._firsts.get(row)
            if firsts is None:
                firsts = self._firsts[row] = self._free_boards(row)
            return next(firsts, NO_ROW)
        its = slice(self._starts[row], self._starts[row + 1])
        boards = self._boards[its]
        open_ = self.free[boards]
        if avoided:
            open_ = open_ & ~np.isin(boards, avoided)
        if tried:
            others = open_ & ~np.isin(boards, tried)
            open_ = others if others.any() else open_
        if not open_.any():
            return NO_ROW
        return int(boards[open_][self._keys[its][open_].argmin()])

    def _free_boards(self, row: int) -> Iterator[int]:
        """Yield the best board while it is free, then the next one."""
        flags = self._flags
        keys = np.sort(self._keys[self._starts[row] : self._starts[row + 1]])
        for board in self._board_order[keys & _PLACE].tolist():
            while flags[board]:
                yield board


def _assign_jointly(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    queue: NDArray[np.intp],
    pairs: Pairs,
    scores: NDArray[np.float32],
) -> dict[int, int]:
    """Return the board of each benchmark; those that get none are missing."""
    from scipy.optimize import linear_sum_assignment  # takes a moment: others do without

    jobs, boards = len(queue), batch.shape[1]
    step = 2.0 * jobs + 2.0  # more than all scores, and all that trying again costs, can add up to
    weights = np.zeros((jobs, boards))
    luck = np.empty(boards)
    luck[batch.board_order] = np.linspace(1e-6, 0.0, boards)
    for number, job in enumerate(queue.tolist()):
        its = pairs.of(int(batch.class_of_job[job]))
        there = pairs.boards[its]
        weights[number, there] = step * (jobs - number) + scores[its] + luck[there]
        tried = batch.rows_of_uids(pending[job].tried_uids)
        weights[number, tried] = np.maximum(weights[number, tried] - 1.0, 0.0)
        weights[number, batch.rows_of_uids(pending[job].avoided_uids(batch.now))] = 0.0
    chosen, given = linear_sum_assignment(weights, maximize=True)
    return {
        int(queue[number]): int(board)
        for number, board in zip(chosen.tolist(), given.tolist(), strict=True)
        if weights[number, board] > 0.0
    }
