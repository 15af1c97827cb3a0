"""The mapping heuristics as plainly as they are defined, one benchmark and board at a time."""

from __future__ import annotations

from collections import deque
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.ledgers import Ledgers
from edgeyard.scheduler.decide.mapping import Hold, Mapper, MappingResult
from edgeyard.scheduler.framework.batch import NO_ROW, Pairs
from edgeyard.scheduler.framework.policy import Planner
from edgeyard.scheduler.prediction.timeline import conflict_group

Floats = NDArray[np.float64]
_SAME_S = 1e-9


class PlainMapping:
    """A mapping under way; rows are groups of benchmarks.

    Attributes:
        run_s: Shape (groups, boards): expected run times; inf where it can't run.
        ready_s: Shape (boards,): when each board is expected to be free, seconds from now.
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
        place[batch.board_order] = np.linspace(0.0, 0.5, count)
        ties = np.broadcast_to(place, (classes, count)).copy()
        ties[pairs.rows, pairs.boards] -= scores
        groups = mapper.groups_of(queue)
        of_group = np.array([each.row for each in groups], dtype=np.intp)
        self.run_s = by_class[of_group]
        self.start = now[of_group]
        for group, each in enumerate(groups):
            self.run_s[group, each.avoided] = np.inf
            others = self.run_s[group].copy()
            others[each.tried] = np.inf
            if np.isfinite(others).any():
                self.run_s[group] = others
        self.start &= np.isfinite(self.run_s)
        self._ties = ties[of_group]
        self._jobs = [deque(each.jobs) for each in groups]
        self._place = {job: number for number, job in enumerate(queue.tolist())}
        self._mapper, self._mapped, self._ledgers = mapper, mapped, ledgers
        self._cool_down_s = mapper._policy.cool_down_s

    def begin(self, ready_s: Floats, free: NDArray[np.bool_]) -> None:
        """Take when boards come free; each is closed where it is not ``free`` now."""
        self.ready_s = ready_s
        self.start[:, ~free] = False

    def occupy(self, board: int, until_s: float) -> None:
        """Note that a board, and those that share its cores, are taken until then."""
        for near in conflict_group(self._mapper._batch, board):
            self.ready_s[near] = max(float(self.ready_s[near]), until_s)
            self.start[:, near] = False

    def run(self, heuristic: Planner | None) -> None:
        """Map until no benchmark could start any more."""
        if heuristic is Planner.SUFFERAGE:
            self._by_sufferage()
        elif heuristic in (Planner.MIN_MIN, Planner.MAX_MIN):
            self._by_ends(latest=heuristic is Planner.MAX_MIN)
        else:
            self._in_turn(by_run_time=heuristic is Planner.MET)

    def _in_turn(self, *, by_run_time: bool) -> None:
        """Map one after the other, in the queue's order."""
        group_of = {job: group for group, jobs in enumerate(self._jobs) for job in jobs}
        for job in sorted(group_of, key=self._place.__getitem__):
            if not self.start.any():
                return
            group = group_of[job]
            board = self._best(group, by_run_time=by_run_time)
            if board != NO_ROW:
                self._map(group, board)

    def _by_ends(self, *, latest: bool) -> None:
        """Map the benchmark whose earliest end is the earliest of all, or the latest."""
        best = [self._best(group) for group in range(len(self._jobs))]
        open_ = {group for group, board in enumerate(best) if board != NO_ROW}
        sign = -1.0 if latest else 1.0
        while open_ and self.start[list(open_)].any():
            group = min(
                open_,
                key=lambda each: (
                    sign * round(self._end_s(each, best[each]), 6),
                    self._place[self._jobs[each][0]],
                ),
            )
            board = best[group]
            self._map(group, board)
            if not self._jobs[group]:
                open_.discard(group)
            changed = set(conflict_group(self._mapper._batch, board))
            for each in open_:
                if best[each] in changed:
                    best[each] = self._best(each)

    def _by_sufferage(self) -> None:
        """Map in rounds: of those that want the same board, who would lose most gets it."""
        open_ = {group for group in range(len(self._jobs)) if self._best(group) != NO_ROW}
        while open_ and self.start[list(open_)].any():
            wants: dict[int, tuple[float, int, int]] = {}
            for group in open_:
                board = self._best(group)
                ends = self.ready_s + self.run_s[group]
                ends[board] = np.inf
                loss_s = float(ends.min()) - self._end_s(group, board)
                claim = (-round(loss_s, 6), self._place[self._jobs[group][0]], group)
                wants[board] = min(claim, wants.get(board, claim))
            for board, (_, _, group) in sorted(wants.items(), key=lambda each: each[1]):
                self._map(group, board)
                if not self._jobs[group]:
                    open_.discard(group)

    def _end_s(self, group: int, board: int) -> float:
        return float(self.ready_s[board] + self.run_s[group, board])

    def _best(self, group: int, *, by_run_time: bool = False) -> int:
        """Return the board where the group's next benchmark ends first, or runs shortest."""
        run_s = self.run_s[group]
        ends = self.ready_s + run_s
        if by_run_time:
            reachable = np.isfinite(ends)
            shortest = np.where(reachable, run_s, np.inf)
            ends = np.where(shortest <= shortest.min() + _SAME_S, ends, np.inf)
        least = ends.min()
        if not np.isfinite(least):
            return NO_ROW
        same = np.flatnonzero(ends <= least + _SAME_S)
        return int(same[0] if len(same) == 1 else same[self._ties[group, same].argmin()])

    def _map(self, group: int, board: int) -> None:
        """Map the group's next benchmark to a board."""
        job = self._jobs[group].popleft()
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
        self.occupy(board, self._end_s(group, board) + self._cool_down_s)

    def _hold(self, job: int, group: int, board: int) -> None:
        """Note that a benchmark waits for a board, if one is free on which it could start."""
        free = np.flatnonzero(self.start[group])
        if not len(free):
            return
        ends = self.ready_s[free] + self.run_s[group, free]
        other = int(free[ends.argmin()])
        batch = self._mapper._batch
        self._mapped.holds[job] = Hold(
            board=board,
            free_at=batch.now + timedelta(seconds=float(self.ready_s[board])),
            free_board=other,
            sooner_s=self._end_s(group, other) - self._end_s(group, board),
        )
