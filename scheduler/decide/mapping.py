"""Mapping heuristics of heterogeneous computing: a benchmark may wait for a busy, faster board.

All of them compare expected *completion times*: when a board is expected to come free (now, or when
the runs that hold it, or a board that shares its cores, are expected to have ended and it has
cooled down), plus the expected run time there. Both come from the predictions that forecasts use.
Each cycle maps the queue anew. A benchmark whose board is free starts, if it is the first that is
mapped to it; the others wait, although another board may be free.

- `met`, minimum execution time: first to last, each goes to the board that runs it in the least
  time, busy or not; of equal ones to the one where it ends first.
- `mct`, minimum completion time: first to last, each goes to the board where it ends first.
- `min_min`: of all benchmarks' earliest ends the earliest is taken first, again and again.
- `max_min`: of all benchmarks' earliest ends the latest is taken first.
- `sufferage`: in rounds; a board goes to the benchmark that would lose most by its second best.
- `ilp_completion`, `ilp_deadlines`, `ilp_fairness`: the first benchmarks of the queue start as in a
  plan (`edgeyard.scheduler.solvers.programmes`): the one with the shortest mean completion time,
  with the least weight of missed deadlines, or fair to users. A benchmark that would end no later
  on a free board takes that one. The rest of the queue is mapped as by `mct`.

Source: Maheswaran, Ali, Siegel, Hensgen, Freund, "Dynamic Mapping of a Class of Independent Tasks
onto Heterogeneous Computing Systems", JPDC 59, 1999; Braun et al., "A Comparison of Eleven Static
Heuristics ...", JPDC 61, 2001. Ties, which these leave open, go by score, then by the seeded order
of the boards; between benchmarks by the queue.

Not mapped are those whose reservation is due and those that have waited for the policy's
``guard_s``: they come first and take a free board as without a mapping, so that none is held back
for ever. None is held back for a board with a reservation or a lease to come, nor for one that is
busy with something unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.ledgers import Ledgers
from edgeyard.scheduler.decide.programme import MAX_PLANNED, plan_queue
from edgeyard.scheduler.framework.batch import NO_ROW, Batch, Pairs
from edgeyard.scheduler.framework.policy import Planner, Policy
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import WaitReason
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.prediction.simulated_lab import expected_times
from edgeyard.scheduler.prediction.timeline import (
    Occupancy,
    Timeline,
    conflict_group,
    leases_of,
)

Floats = NDArray[np.float64]

MAX_MAPPED = 2_000
"""Benchmarks that a cycle maps: of each class the first ones, equally many of each.

The others wait for a later cycle.
"""

PROGRAMMES = {
    Planner.ILP_COMPLETION: "completion",
    Planner.ILP_DEADLINES: "deadlines",
    Planner.ILP_FAIRNESS: "fairness",
}
"""Objectives of the plans that a solver makes."""

_TOLERANCE_S = 1e-9
"""Ends that differ by less count as equal."""

_NO_UIDS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Group:
    """Benchmarks that differ in nothing that counts here.

    Attributes:
        row: Their class.
        tried: Rows of the boards that they use only if there is no other.
        avoided: Rows of the boards that they don't use.
        jobs: Their rows, first to last.
    """

    row: int
    tried: list[int]
    avoided: list[int]
    jobs: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A benchmark that is held back although a board is free.

    Attributes:
        board: Row of the board that it waits for.
        free_at: When that is expected to come free for it.
        free_board: Row of a board that is free, the one where it would end first.
        sooner_s: By how much sooner it is expected to end on ``board``, seconds.
        problem: Why the plan is a simple rule's and not the solver's; "" if it is not.
    """

    board: int
    free_at: datetime
    free_board: int
    sooner_s: float
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingResult:
    """What a mapping leads to now; by rows of benchmarks.

    Attributes:
        boards: Rows of the boards on which benchmarks start now.
        holds: Who is held back although a board is free.
        refused: Who may have no more, and why.
    """

    boards: dict[int, int]
    holds: dict[int, Hold]
    refused: dict[int, WaitReason]


def hold_reason(batch: Batch, hold: Hold) -> WaitReason:
    """Return why a benchmark waits that is held back."""
    uids = batch.snapshot.uids
    reason = waiting_reasons.held_for_board(
        uids[hold.board], hold.free_at, hold.sooner_s, uids[hold.free_board]
    )
    if not hold.problem:
        return reason
    return replace(reason, sentence=f"{reason.sentence} (by a greedy plan: {hold.problem})")


class Mapper:
    """Maps the benchmarks of one cycle to boards."""

    def __init__(
        self,
        batch: Batch,
        pending: Sequence[PendingBenchmark],
        holders: Sequence[BoardHolder],
        policy: Policy,
        fits: Callable[[Batch], NDArray[np.bool_]],
        timeline: Timeline,
    ) -> None:
        """Store the input of the mapping; `map` computes it.

        Args:
            pending: The benchmarks, in the batch's order.
            holders: Live attempts that have a board.
            policy: Its ``mapping`` is not None.
            fits: Returns what the filters let pass, shape (classes, boards); called with a batch
                whose boards are free of the holders.
            timeline: Its reservations and leases close boards to those that wait.
        """
        self._batch, self._pending, self._holders = batch, pending, holders
        self._policy, self._timeline, self._fits = policy, timeline, fits

    def map(
        self,
        queue: NDArray[np.intp],
        pairs: Pairs,
        scores: NDArray[np.float32],
        free: NDArray[np.bool_],
        given: dict[int, int],
        ledgers: Ledgers,
    ) -> MappingResult:
        """Map the queue.

        Args:
            queue: Rows of benchmarks, first to last.
            pairs: Which class may start on which board now.
            scores: Shape (pairs,).
            free: Shape (boards,): not given out in this cycle, nor next to such a board.
            given: By row of the benchmark, boards that were given out in this cycle.
            ledgers: What users may still have; they are asked in the order of the mapping.
        """
        mapped = MappingResult(boards={}, holds={}, refused={})
        if not len(queue) or not len(pairs):
            return mapped
        rows, boards, closed = self._candidates(pairs)
        rated = np.concatenate((rows, self._batch.class_of_job[list(given)]))
        at = np.concatenate((boards, np.array(list(given.values()), dtype=np.intp)))
        expected_s, left_s = expected_times(self._batch, rated, at, self._holders)
        ready_s = self._occupancy.free_s(left_s)
        ready_s[closed] = np.inf
        expected_s, given_s = np.split(expected_s, [len(rows)])
        run = _Mapping(self, queue, pairs, scores, rows, boards, expected_s, mapped, ledgers)
        run.begin(ready_s, free)
        for board, its_s in zip(given.values(), given_s.tolist(), strict=True):
            run.occupy(board, its_s + self._policy.cool_down_s)
        run.run(self._policy.planner)
        return mapped

    def _candidates(
        self, pairs: Pairs
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_]]:
        """Return classes and boards of possible pairs, and the boards that are not waited for."""
        possible = np.zeros(self._batch.shape, dtype=np.bool_)
        taken = self._occupancy.taken
        waits = taken & np.isfinite(self._occupancy.free_s(np.zeros(len(self._holders))))
        if self._timeline.next_starts or leases_of(self._batch):
            waits &= ~self._timeline.slots.cut
        if waits.any():
            possible[:, waits] = self._fits(self._occupancy.when_idle())[:, waits]
        possible[pairs.rows, pairs.boards] = True
        rows, boards = np.nonzero(possible)
        return rows, boards, taken & ~waits

    @cached_property
    def _occupancy(self) -> Occupancy:
        return Occupancy(self._batch, self._holders, self._policy.cool_down_s)

    def groups_of(self, queue: NDArray[np.intp]) -> list[_Group]:
        """Return the benchmarks in groups that differ in nothing that counts here.

        At most `MAX_MAPPED` benchmarks in all, but at least one of each group.
        """
        batch, now = self._batch, self._batch.now
        found: dict[tuple[int, frozenset[str], frozenset[str]], list[int]] = {}
        apart = np.array(
            [
                bool(each.tried_uids or (each.avoids_boards and each.avoided_uids(now)))
                for each in self._pending
            ],
            dtype=np.bool_,
        )[queue]
        alike = queue[~apart]  # of a class, most of them
        rows = batch.class_of_job[alike]
        by_class = np.argsort(rows, kind="stable")
        classes, starts = np.unique(rows[by_class], return_index=True)
        for row, jobs in zip(classes.tolist(), np.split(alike[by_class], starts)[1:], strict=True):
            found[row, _NO_UIDS, _NO_UIDS] = jobs[:MAX_MAPPED].tolist()
        for job in queue[apart].tolist():
            each = self._pending[job]
            row = int(batch.class_of_job[job])
            key = row, frozenset(each.tried_uids), each.avoided_uids(now)
            found.setdefault(key, []).append(job)
        limit = max(MAX_MAPPED // max(len(found), 1), 1)
        return [
            _Group(row, batch.rows_of_uids(tried), batch.rows_of_uids(avoided), jobs[:limit])
            for (row, tried, avoided), jobs in found.items()
        ]


class _Mapping:
    """A mapping under way; rows are groups of benchmarks.

    Attributes:
        run_s: Shape (groups, boards): expected run times; inf where it can't run.
        ready_s: Shape (boards,): when each board is expected to be free, seconds from now.
        ends_s: Shape (groups, boards): when the next benchmark would end there.
        start: Shape (groups, boards): could start there now.
    """

    def __init__(
        self,
        mapper: Mapper,
        queue: NDArray[np.intp],
        pairs: Pairs,
        scores: NDArray[np.float32],
        rows: NDArray[np.intp],
        boards: NDArray[np.intp],
        expected_s: Floats,
        mapped: MappingResult,
        ledgers: Ledgers,
    ) -> None:
        batch = mapper._batch
        classes, count = batch.shape
        by_class = np.full((classes, count), np.inf)
        by_class[rows, boards] = expected_s
        now = np.zeros((classes, count), dtype=np.bool_)
        now[pairs.rows, pairs.boards] = True
        place = np.empty(count)
        place[batch.board_order] = np.linspace(0.0, 1e-6, count)  # less than scores differ by
        ties = np.broadcast_to(place, (classes, count)).copy()
        ties[pairs.rows, pairs.boards] -= scores
        groups = mapper.groups_of(queue)
        of_group = np.array([each.row for each in groups], dtype=np.intp)
        self.run_s = by_class[of_group]
        for number, each in enumerate(groups):
            if each.avoided:
                self.run_s[number, each.avoided] = np.inf
            if each.tried:
                others = self.run_s[number].copy()
                others[each.tried] = np.inf
                if np.isfinite(others).any():
                    self.run_s[number] = others
        self.start = now[of_group] & np.isfinite(self.run_s)
        self._ties = ties[of_group]
        self._jobs = [deque(each.jobs) for each in groups]
        self._place = np.empty(len(batch.class_of_job), dtype=np.intp)
        self._place[queue] = np.arange(len(queue))
        self._mapper, self._mapped, self._ledgers = mapper, mapped, ledgers
        self._cool_down_s = mapper._policy.cool_down_s
        self._shares = batch.snapshot.conflicts is not None
        self._free_boards: dict[int, int] = {}
        self._problem = ""

    def begin(self, ready_s: Floats, free: NDArray[np.bool_]) -> None:
        """Take when boards come free; each is closed where it is not ``free`` now."""
        self.ready_s = ready_s
        self.start[:, ~free] = False
        self.ends_s = self.ready_s + self.run_s
        self._starts = self.start.sum(axis=1)  # of each group
        self._may_start = bool(self._starts.any())
        self._open_boards = self.start.any(axis=0)

    def occupy(self, board: int, until_s: float) -> None:
        """Mark a board, and those that share its cores, as taken until a time."""
        for near in self._with_conflicts(board):
            ready_s = max(float(self.ready_s[near]), until_s)
            self.ready_s[near] = ready_s
            np.add(self.run_s[:, near], ready_s, out=self.ends_s[:, near])
            if self._open_boards[near]:
                self._open_boards[near] = False
                self._starts -= self.start[:, near]
                self.start[:, near] = False
                self._may_start = bool(self._starts.any())

    def run(self, heuristic: Planner | None) -> None:
        """Map until no benchmark could start any more."""
        if heuristic is Planner.SUFFERAGE:
            self._map_by_sufferage()
        elif heuristic in (Planner.MIN_MIN, Planner.MAX_MIN):
            self._map_by_ends(latest=heuristic is Planner.MAX_MIN)
        elif heuristic in PROGRAMMES:
            self._map_by_programme(PROGRAMMES[heuristic])
        else:
            self._map_in_queue_order(by_run_time=heuristic is Planner.MET)

    def _with_conflicts(self, board: int) -> list[int]:
        return conflict_group(self._mapper._batch, board) if self._shares else [board]

    def _map_in_queue_order(self, *, by_run_time: bool) -> None:
        """Map the benchmarks one after the other in the order of the queue."""
        shortest = self._quickest_boards() if by_run_time else None
        group_of = {job: group for group, jobs in enumerate(self._jobs) for job in jobs}
        queue = np.array(list(group_of), dtype=np.intp)
        for job in queue[np.argsort(self._place[queue])].tolist():
            if not self._may_start:
                return
            group = group_of[job]
            board = self._best(group, None if shortest is None else shortest[group])
            if board != NO_ROW:
                self._map(group, board)

    def _quickest_boards(self) -> list[NDArray[np.intp]]:
        """Return for each group the boards that run it in the least time, busy or not."""
        reachable = np.where(np.isfinite(self.ready_s), self.run_s, np.inf)
        shortest = reachable.min(axis=1, keepdims=True)
        same = np.isfinite(reachable) & (reachable <= shortest + _TOLERANCE_S)
        return [np.flatnonzero(each) for each in same]

    def _map_by_ends(self, *, latest: bool) -> None:
        """Map the benchmark whose earliest end is the earliest of all, or the latest."""
        groups = np.arange(len(self._jobs))
        best = self._best_of(groups)
        open_ = best != NO_ROW
        sign = -1.0 if latest else 1.0
        places = np.array([self._place[jobs[0]] for jobs in self._jobs], dtype=np.intp)
        keys = np.full(len(groups), np.inf)

        def note(changed: NDArray[np.intp]) -> None:
            ends = self.ends_s[changed, best[changed]].tolist()
            keys[changed] = [sign * round(end, 6) for end in ends]

        note(groups[open_])
        while open_.any() and self._starts[open_].any():
            first = groups[open_]
            first = first[keys[first] == keys[first].min()]
            group = int(first[places[first].argmin()])
            board = int(best[group])
            self._map(group, board)
            if self._jobs[group]:
                places[group] = self._place[self._jobs[group][0]]
            else:
                open_[group] = False
            near = self._with_conflicts(board)
            there = best == near[0] if len(near) == 1 else np.isin(best, near)
            changed = np.flatnonzero(open_ & there)
            if len(changed):
                best[changed] = self._best_of(changed)
                note(changed)

    def _map_by_programme(self, objective: str) -> None:
        """Map as a solver's plan has it; the rest of the queue gets what is left."""
        group_of = {job: group for group, jobs in enumerate(self._jobs) for job in jobs}
        queue = sorted(group_of, key=lambda job: int(self._place[job]))[:MAX_PLANNED]
        mapper = self._mapper
        order, self._problem = plan_queue(
            mapper._batch,
            mapper._pending,
            mapper._timeline,
            objective,
            queue,
            [group_of[job] for job in queue],
            self.run_s,
            self.ready_s,
        )
        for job, board in order:
            group = group_of[job]
            self._jobs[group].remove(job)
            self._map_job(job, group, self._free_board_no_later(group, board))
        self._map_in_queue_order(by_run_time=False)

    def _free_board_no_later(self, group: int, board: int) -> int:
        """Return a free board where a benchmark of the group ends no later, otherwise ``board``."""
        free = np.flatnonzero(self.start[group])
        if self.start[group, board] or not len(free):
            return board
        other = int(free[self.ends_s[group, free].argmin()])
        return other if self.ends_s[group, other] <= self.ends_s[group, board] else board

    def _map_by_sufferage(self) -> None:
        """Map in rounds: of those that want the same board, who would lose most gets it."""
        groups = np.arange(len(self._jobs))
        open_ = self._best_of(groups) != NO_ROW
        while open_.any() and self._starts[open_].any():
            rest = groups[open_]
            best = self._best_of(rest)
            ends = self.ends_s[rest]
            rows = np.arange(len(rest))
            own = ends[rows, best]
            ends[rows, best] = np.inf
            losses = (ends.min(axis=1) - own).tolist()
            wants: dict[int, tuple[float, int, int]] = {}
            for group, board, loss_s in zip(rest.tolist(), best.tolist(), losses, strict=True):
                claim = (-round(loss_s, 6), int(self._place[self._jobs[group][0]]), group)
                wants[board] = min(claim, wants.get(board, claim))
            for board, (_, _, group) in sorted(wants.items(), key=lambda each: each[1]):
                self._map(group, board)
                if not self._jobs[group]:
                    open_[group] = False

    def _best_of(self, groups: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the board where each group's next benchmark ends first, `NO_ROW` for none."""
        ends = self.ends_s[groups]
        earliest = ends.min(axis=1, keepdims=True)
        ties = np.where(ends <= earliest + _TOLERANCE_S, self._ties[groups], np.inf)
        return np.where(np.isfinite(earliest[:, 0]), ties.argmin(axis=1), NO_ROW)

    def _best(self, group: int, among: NDArray[np.intp] | None) -> int:
        """Return the board, of some or of all, where the group's next benchmark ends first."""
        ends = self.ends_s[group]
        if among is not None:
            if len(among) < 2:
                return int(among[0]) if len(among) else NO_ROW
            ends = ends[among]
        earliest = ends.min()
        if not np.isfinite(earliest):
            return NO_ROW
        same = np.flatnonzero(ends <= earliest + _TOLERANCE_S)
        if among is not None:
            same = among[same]
        return int(same[0] if len(same) == 1 else same[self._ties[group, same].argmin()])

    def _map(self, group: int, board: int) -> None:
        """Map the group's next benchmark to a board."""
        self._map_job(self._jobs[group].popleft(), group, board)

    def _map_job(self, job: int, group: int, board: int) -> None:
        """Map a benchmark of a group to a board."""
        if self.start[group, board]:
            refusal = self._ledgers.refusal(job) if self._ledgers else None
            if refusal is not None:
                self._mapped.refused[job] = refusal
                return
            if self._ledgers:
                self._ledgers.place(job)
            self._mapped.boards[job] = board
        else:
            self._hold(job, group, board)
        self.occupy(board, float(self.ends_s[group, board]) + self._cool_down_s)

    def _hold(self, job: int, group: int, board: int) -> None:
        """Record that a benchmark is held back for a board, if it could start on a free one."""
        if not self._starts[group]:
            return
        other = self._free_boards.get(group, NO_ROW)
        if other == NO_ROW or not self.start[group, other]:  # none comes free, nor changes
            free = np.flatnonzero(self.start[group])
            other = self._free_boards[group] = int(free[self.ends_s[group, free].argmin()])
        self._mapped.holds[job] = Hold(
            board=board,
            free_at=self._mapper._batch.now + timedelta(seconds=float(self.ready_s[board])),
            free_board=other,
            sooner_s=float(self.ends_s[group, other] - self.ends_s[group, board]),
            problem=self._problem,
        )
