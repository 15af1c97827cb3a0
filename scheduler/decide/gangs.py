"""Gangs: benchmarks that start in one cycle, each on a board of its own, or not at all.

At its first member's turn in the queue a gang gets boards for all its members, or none. So a gang
never has some boards while it waits for others, and two gangs cannot wait for each other.

Runs on single boards could then keep a large gang waiting for ever. Once a gang has waited for the
policy's ``guard_s``, free boards that it could use are held for it in each cycle, as many as it
needs at most, and nobody behind it in the queue gets them; its benchmarks claim reservations as
others do. Nothing is held if the boards that it could use, as their runs end, are too few.
Benchmarks past the guard come first in the queue, in the same order in each cycle, so that of two
gangs the first gets all its boards before the second holds one of these.

A gang uses boards that are free. A policy that leaves the queues of busy boards to the cluster
(``native``) does so for other benchmarks only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import NO_ROW, Batch, Pairs
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import WaitReason
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.prediction.timeline import (
    Occupancy,
    bounds_left,
    conflict_group,
    hold_times,
    leases_of,
)

_gang_id = attrgetter("gang_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The benchmarks of one gang that are in the queue.

    Attributes:
        jobs: Their rows, first to last in the queue.
        size: How many benchmarks the gang has.
        waiting: Why none of them may start, whichever boards are free; None: they may.
    """

    jobs: tuple[int, ...]
    size: int
    waiting: WaitReason | None = None


def together(pending: Sequence[PendingBenchmark], order: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the order with all benchmarks of a gang behind its first one; otherwise the same.

    Args:
        pending: The benchmarks.
        order: Rows of benchmarks, first to last.
    """
    if not any(map(_gang_id, pending)):
        return order
    first: dict[str, int] = {}
    places = []
    for place, job in enumerate(order.tolist()):
        gang_id = pending[job].gang_id
        places.append(place if gang_id is None else first.setdefault(gang_id, place))
    return order[np.argsort(places, kind="stable")]


def find_gangs(
    pending: Sequence[PendingBenchmark], order: NDArray[np.intp], ready: NDArray[np.bool_]
) -> Mapping[int, Gang]:
    """Return the gang of each benchmark that has one, by row.

    Args:
        pending: The benchmarks.
        order: Rows of benchmarks, first to last.
        ready: Shape (jobs,): may be placed at all.
    """
    if not any(map(_gang_id, pending)):
        return {}
    jobs_of: dict[str, list[int]] = {}
    for job in order.tolist():
        gang_id = pending[job].gang_id
        if gang_id is not None:
            jobs_of.setdefault(gang_id, []).append(job)
    found: dict[int, Gang] = {}
    for jobs in jobs_of.values():
        size = pending[jobs[0]].gang_size
        waiting = None
        if len(jobs) != size:
            waiting = waiting_reasons.gang_incomplete(size, len(jobs))
        elif not ready[jobs].all():
            first = pending[jobs[int(np.argmin(ready[jobs]))]]
            waiting = waiting_reasons.gang_not_ready(size, first.benchmark_id, first.not_ready)
        gang = Gang(jobs=tuple(jobs), size=size, waiting=waiting)
        found |= dict.fromkeys(jobs, gang)
    return found


class GangPlacer:
    """Finds boards for gangs, and states for which of them boards may be held."""

    def __init__(
        self,
        batch: Batch,
        holders: Sequence[BoardHolder],
        policy: Policy,
        fits: Callable[[Batch], NDArray[np.bool_]],
    ) -> None:
        """Find nothing yet.

        Args:
            holders: Live attempts that have a board.
            policy: States how long boards cool down.
            fits: Returns what the filters let pass, shape (classes, boards); called with a batch
                whose boards are free of the holders.
        """
        self._batch, self._holders, self._policy, self._fits = batch, holders, policy, fits
        self._may_hold: dict[Gang, bool] = {}

    def boards(
        self,
        gang: Gang,
        pairs: Pairs,
        open_pairs: Pairs,
        open_scores: NDArray[np.float32],
        due_boards: Mapping[int, int],
        free: NDArray[np.bool_],
    ) -> list[int]:
        """Return free boards, one for each of the first benchmarks of a gang that get one.

        Args:
            pairs: Which class may use which board.
            open_pairs: Those of them that are not late.
            open_scores: Shape (open pairs,).
            due_boards: By row of the benchmark, the board that is reserved for it now.
            free: Shape (boards,): not given out in this cycle.
        """
        own = [due_boards[job] for job in gang.jobs if job in due_boards]
        free = free & ~self._batch.snapshot.busy
        own = [board for board in own if free[board]]
        place = np.empty(self._batch.shape[1], dtype=np.intp)
        place[self._batch.board_order] = np.arange(self._batch.shape[1])
        ranked: dict[int, list[int]] = {}
        for job in gang.jobs:
            row = int(self._batch.class_of_job[job])
            if row not in ranked:
                its = open_pairs.of(row)
                boards, scores = open_pairs.boards[its], open_scores[its]
                kept = free[boards]
                boards, scores = boards[kept], scores[kept]
                best = boards[np.lexsort((place[boards], -scores))].tolist()
                mine = [board for board in own if pairs.at(row, board) is not None]
                ranked[row] = [*mine, *(board for board in best if board not in mine)]
        options = [ranked[int(self._batch.class_of_job[job])] for job in gang.jobs]
        found = self._apart(options)
        if len(found) == gang.size or self._batch.snapshot.conflicts is None:
            return found
        # Boards that share cores with few others leave more of the others free.
        return max(found, self._apart([self._by_conflicts(each) for each in options]), key=len)

    def may_hold(self, gang: Gang) -> bool:
        """Return whether enough boards come free for a gang as the runs on them end.

        Boards that are leased to others, or will be before its runs count as over, do not
        count: nobody knows whether such a lease is ended early.
        """
        if gang not in self._may_hold:
            rows = [int(self._batch.class_of_job[job]) for job in gang.jobs]
            options = {row: self._by_conflicts(self._usable_boards(row)) for row in set(rows)}
            self._may_hold[gang] = len(self._apart([options[row] for row in rows])) == gang.size
        return self._may_hold[gang]

    def _usable_boards(self, row: int) -> list[int]:
        batch = self._batch
        usable = self._usable[row].copy()
        grace_s = self._policy.booking_grace_s
        for board, lease in leases_of(batch):
            if lease.user_id is None or lease.user_id != batch.lease_users[row]:
                pair = np.array([row]), np.array([board])
                hold_s = float(hold_times(batch, *pair, self._policy)[0])
                usable[board] &= lease.since >= batch.now + timedelta(seconds=hold_s - grace_s)
        return [int(board) for board in np.flatnonzero(usable)]

    @cached_property
    def _usable(self) -> NDArray[np.bool_]:
        """Return which boards each class could use when what runs there has ended."""
        occupancy = Occupancy(self._batch, self._holders, self._policy.cool_down_s)
        certain = np.isfinite(occupancy.free_s(bounds_left(self._batch, self._holders)))
        return self._fits(occupancy.when_idle()) & certain

    def _apart(self, options: Sequence[Sequence[int]]) -> list[int]:
        """Return different boards that share no cores, from each list its first that is left."""
        left = np.ones(self._batch.shape[1], dtype=np.bool_)
        found = []
        for boards in options:
            board = next((each for each in boards if left[each]), NO_ROW)
            if board == NO_ROW:
                break
            found.append(board)
            left[conflict_group(self._batch, board)] = False
        return found

    def _by_conflicts(self, boards: Sequence[int]) -> list[int]:
        """Return boards with those first that share cores with the fewest of the others."""
        among = set(boards)
        return sorted(boards, key=lambda each: len(among & set(conflict_group(self._batch, each))))
