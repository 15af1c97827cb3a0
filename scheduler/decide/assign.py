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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

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

    @property
    def held(self) -> Sequence[int]:
        """Rows of the benchmarks that are held back although a board is free."""
        return [*self.holds, *self.planned]


def assign(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    order: NDArray[np.intp],
    ready: NDArray[np.bool_],
    pairs: Pairs,
    scores: NDArray[np.float32],
    ledgers: Ledgers,
    timeline: Timeline,
    planner: CostPlanner,
    max_joint_jobs: int = 0,
    mapper: Mapper | None = None,
    guarded: NDArray[np.bool_] | None = None,
    explorer: Explorer | None = None,
    gangs: Mapping[int, Gang] = MappingProxyType({}),
    gang_placer: GangPlacer | None = None,
) -> Assignment:
    """Assign boards to benchmarks.

    Args:
        pending: The benchmarks, in the batch's order.
        order: Rows of benchmarks, first to last.
        ready: Shape (jobs,): may be placed at all.
        pairs: Which class may use which board.
        scores: Shape (pairs,).
        ledgers: What users may still have; they are asked and updated in the order of the queue.
        timeline: Which boards are reserved for whom, and who might not be over in time.
        planner: Learns of each benchmark what it gets, and may hold it back if it has neither
            waited for the policy's ``guard_s`` nor a reservation that is due.
        max_joint_jobs: Maximum queue that is assigned jointly, if no boards share cores.
        mapper: Chooses the boards of all that neither have waited for the policy's ``guard_s`` nor
            have a reservation that is due; None: the policy has no mapping.
        guarded: Shape (jobs,): have waited for the guard time; None: no benchmark.
        explorer: Draws benchmarks that get a board at random; None: all get the best one.
        gangs: The gang of each benchmark that has one, by row.
        gang_placer: Finds boards for them; needed where there are gangs.
    """
    boards = batch.shape[1]
    board_of_job = [NO_ROW] * len(pending)
    blocked_by = np.full(boards, NO_ROW, dtype=np.intp)
    conflicts = batch.snapshot.conflicts
    rows = batch.class_of_job
    queue = order[ready[order]]
    if timeline.due_boards:
        due = np.isin(queue, list(timeline.due_boards))
        queue = np.concatenate((queue[due], queue[~due]))
    mapped_queue = queue[:0]
    in_gang = np.isin(queue, list(gangs)) if gangs else np.zeros(len(queue), dtype=np.bool_)
    if mapper is not None and guarded is not None:
        first = guarded[queue] | np.isin(queue, list(timeline.due_boards)) | in_gang
        queue, mapped_queue = queue[first], queue[~first]
    asking = np.bincount(rows[queue], minlength=batch.shape[0])
    open_pairs, open_scores = timeline.in_time(pairs, scores)
    choices = _Choices(open_pairs, open_scores, batch.board_order, asking)
    reserved_for = timeline.due_boards
    tried = {
        job: batch.rows_of_uids(each.tried_uids)
        for job, each in enumerate(pending)
        if each.tried_uids
    }
    avoided_of_job = _avoided_boards(batch, pending)
    bounded = bool(ledgers)
    kept_off = bounded and bool(timeline.next_starts or leases_of(batch))
    withheld: dict[int, WaitReason] = {}
    planned: dict[int, int] = {}
    explored: dict[int, tuple[int, bool]] = {}
    held_for: dict[int, int] = {}
    if conflicts is None and 1 < len(queue) <= max_joint_jobs and not in_gang.any():
        planned = _assign_jointly(batch, pending, queue, open_pairs, open_scores)

    def give(job: int, board: int) -> None:
        board_of_job[job] = board
        planner.place(job, board)
        take(board)

    def take(board: int) -> None:
        choices.take(board)
        if conflicts is not None:
            others = np.flatnonzero(conflicts[board] | conflicts[:, board])
            others = others[others != board]
            choices.free[others] = False
            blocked_by[others] = np.where(blocked_by[others] == NO_ROW, board, blocked_by[others])

    def withhold(job: int, row: int, avoided: Sequence[int]) -> None:
        """Record why a benchmark gets no board although one is free."""
        if avoided and (failed := choices.best(row)) != NO_ROW:
            withheld[job] = _retry_reason(batch, pending[job], failed)
        elif timeline.next_starts:
            own_later = own_reservation_reason(timeline, job)
            reserved = NO_ROW if own_later else _reserved_board(row, pairs, timeline, choices)
            if own_later is not None:
                withheld[job] = own_later
            elif reserved != NO_ROW:
                withheld[job] = reserved_board_reason(timeline, reserved)

    def place_gang(gang: Gang, placer: GangPlacer) -> None:
        """Give boards to all benchmarks of a gang, or state why they wait."""
        if gang.waiting is None and (stopped := ledgers.refusal_together(gang.jobs)) is not None:
            withheld.update(dict.fromkeys(gang.jobs, stopped))
            return
        refused = gang.waiting
        if refused is None:
            found = placer.boards(gang, pairs, open_pairs, open_scores, reserved_for, choices.free)
            if len(found) == gang.size:
                for each, board in zip(gang.jobs, found, strict=True):
                    ledgers.place(each)
                    give(each, board)
                return
            is_guarded = guarded is not None and bool(guarded[list(gang.jobs)].any())
            holds = is_guarded and placer.may_hold(gang)
            for board in found if holds else ():
                take(board)
                held_for[board] = gang.jobs[0]
            refused = waiting_reasons.gang_boards(gang.size, len(found), held=holds)
        for each in gang.jobs:
            planner.pass_over(each)
            withheld[each] = refused

    for job, row in zip(queue.tolist(), rows[queue].tolist(), strict=True):
        if job in gangs:
            if gang_placer is not None and job not in withheld and board_of_job[job] == NO_ROW:
                place_gang(gangs[job], gang_placer)
            continue
        own = reserved_for.get(job, NO_ROW)
        avoided = avoided_of_job.get(job, ())
        may_own = own != NO_ROW and choices.free[own] and own not in avoided
        at_own = pairs.at(row, own) if may_own else None
        board = choices.best(row, tried.get(job, ()), avoided)
        if at_own is None and board == NO_ROW:
            planner.pass_over(job)
            if kept_off and (stopped := ledgers.refusal(job)) is not None:
                withheld[job] = stopped
            else:
                withhold(job, row, avoided)
            continue
        if bounded and (stopped := ledgers.refusal(job)) is not None:
            withheld[job] = stopped
            continue
        if planned and job in planned and choices.free[planned[job]]:
            board = planned[job]
        if at_own is not None:
            at_other = None if board == NO_ROW else pairs.at(row, board)
            if at_other is None or scores[at_own] >= scores[at_other]:
                board = own
        else:
            if planner.may_hold and own == NO_ROW and (guarded is None or not guarded[job]):
                board = planner.choose(job, board, choices.free, (*tried.get(job, ()), *avoided))
                if board == NO_ROW:
                    continue
            if (
                explorer is not None
                and explorer.is_drawn(job)
                and not avoided
                and job not in tried
                and job not in planned
            ):
                those = open_pairs.boards[open_pairs.of(row)]
                those = those[choices.free[those]]
                drawn = explorer.board(job, those)
                if len(those) > 1:
                    explored[job] = len(those), drawn == board
                    board = drawn
        if bounded:
            ledgers.place(job)
        give(job, board)
    holds: Mapping[int, Hold] = {}
    if mapper is not None and len(mapped_queue):
        so_far = {job: board_of_job[job] for job in queue.tolist() if board_of_job[job] != NO_ROW}
        mapped = mapper.map(
            mapped_queue, open_pairs, open_scores, choices.free.copy(), so_far, ledgers
        )
        for job, board in mapped.boards.items():
            give(job, board)
        holds = mapped.holds
        withheld.update(mapped.refused)
        for job, row in zip(mapped_queue.tolist(), rows[mapped_queue].tolist(), strict=True):
            if board_of_job[job] == NO_ROW and job not in withheld and job not in holds:
                avoided = avoided_of_job.get(job, ())
                if choices.best(row, tried.get(job, ()), avoided) == NO_ROW:
                    planner.pass_over(job)
                    withhold(job, row, avoided)
    given = np.array(board_of_job, dtype=np.intp)
    job_of_board = np.full(boards, NO_ROW, dtype=np.intp)
    placed = np.flatnonzero(given != NO_ROW)
    job_of_board[given[placed]] = placed
    for board, first_job in held_for.items():
        job_of_board[board] = first_job
    return Assignment(
        board_of_job=given,
        job_of_board=job_of_board,
        blocked_by=blocked_by,
        withheld=_WithheldReasons(batch, withheld, {**holds, **planner.holds})
        if holds or planner.holds
        else withheld,
        holds=holds,
        explored=explored,
        planned=planner.holds,
    )


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
        for row in np.flatnonzero(asking > 1).tolist():
            self._keys[self._starts[row] : self._starts[row + 1]].sort()
        self._boards = board_order[self._keys & _PLACE]
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
        for board in self._boards[self._starts[row] : self._starts[row + 1]].tolist():
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
