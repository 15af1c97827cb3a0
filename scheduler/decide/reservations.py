"""Reservations: for stated starts, and for benchmarks that have waited too long.

(And of a board that was cleared by a preemption: it is reserved at once for the benchmark for which
that was done.)

A benchmark that states a ``start_time`` gets a *reservation* of a board from then on, where one can
be had: of the board that it names, or of one that it could use. Benchmarks are served in the order
of their submission; earlier reservations are moved to other boards where that makes room, but are
never given up. A board is reserved for several benchmarks if each counts as over before the start
of the next one.

Another benchmark gets a reserved board, or one that shares its cores, only if its run counts as
over before: by the ``hold_quantile`` of its predicted time, or by its bound where that is 1
(`edgeyard.scheduler.prediction.timeline`). A stated start bears the policy's ``booking_grace_s`` of
delay. A run that takes longer than predicted keeps its board; the reservation stays on it unless
another board can be had. A start farther away than any run can last has no effect. When the start
has come its benchmark goes first; one that is not placed within the policy's ``twin_max_age_s``
waits like all others. So does one that is held then, or that its user's account lets not start. The
same rule holds for a board that is leased to another user from some time on.

A benchmark that has waited for the policy's ``guard_s`` gets a reservation too: from the earliest
time at which a board that it could use counts as free for as long as its own run counts. So
neither stated starts that follow one another too closely nor runs that take turns on boards that
share its cores can delay it for ever. Reservations are given in the order in which they are
claimed: a benchmark claims one when its guard time is over, a stated start when it is submitted,
but no sooner than the policy's ``reservation_lead_s`` before it. So a benchmark starts at the
latest ``guard_s`` and ``reservation_lead_s`` after it could have started, plus the bound of one
run that has a reservation or is under way then, plus those of the benchmarks that have waited
longer and want the same boards (each with the board's cool-down). Leases are not bounded by this:
operators decide about them.

Reservations are not stored: each cycle computes them again. A run that was admitted to a board
counts as over before the next start there, so that a benchmark with a reservation gets one in each
cycle until its start.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import WaitReason
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.prediction.simulated_lab import hold_times_left
from edgeyard.scheduler.prediction.timeline import (
    Occupancy,
    Reservation,
    Timeline,
    bounds_left,
    conflict_group,
    hold_times,
    leases_of,
)

MAX_STEPS = 10_000
"""Boards that a cycle tries in order to exchange reservations; a try takes about ten microseconds.

After that only boards without any reservation are reserved.
"""

MAX_STEPS_EACH = 2_000
"""Boards that are tried for one benchmark."""

MAX_EXCHANGES = 100
"""Other benchmarks whose boards are exchanged for one benchmark."""

MAX_GUARD_RESERVATIONS = 10
"""Reservations of a family's benchmarks that have waited for ``guard_s``.

While more of them wait, benchmarks that claim one later get none of a board that these could use.
"""


def own_reservation_reason(timeline: Timeline, job: int) -> WaitReason | None:
    """Return why a benchmark waits for its own reservation, which comes later; None: it has none.

    Only reservations of benchmarks that have waited for ``guard_s`` count.
    """
    own = timeline.reservations.get(job)
    if own is None or own.stated or own.start <= timeline.batch.now:
        return None
    uid = timeline.batch.snapshot.uids[own.board]
    return waiting_reasons.own_reservation(uid, own.start)


def reserved_board_reason(timeline: Timeline, board: int) -> WaitReason:
    """Return why a benchmark that might not be over in time waits although the board is free."""
    uid, start = timeline.batch.snapshot.uids[board], timeline.next_starts[board]
    its = (lease for leased, lease in leases_of(timeline.batch) if leased == board)
    lease = next((each for each in its if each.since == start), None)
    return waiting_reasons.reserved_board(uid, start, lease)


def reserve(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    policy: Policy,
    holders: Sequence[BoardHolder],
    guarded: Callable[[], Sequence[int]],
    fits: Callable[[Batch], NDArray[np.bool_]],
    stopped: Callable[[int], bool],
) -> dict[int, Reservation]:
    """Reserve boards for the benchmarks that state a start or have waited for ``guard_s``.

    Args:
        pending: The benchmarks, in the batch's order.
        policy: States for how long a start counts that has come, how far ahead one counts, and how
            long boards cool down.
        holders: Live attempts that have a board.
        guarded: Returns the rows of benchmarks that could start now and have waited for
            ``guard_s``.
        fits: Returns what the filters let pass, shape (classes, boards); called with a batch whose
            boards are free of the holders.
        stopped: Whether a benchmark, by its row, is held or stopped by its user's account now: such
            a one is reserved no board from now on.

    Returns:
        By row of the benchmark; those for which no board can be reserved are missing.
    """
    claims: list[tuple[datetime, datetime, str, str, int]] = []
    first_ids = _first_ids(pending)
    ahead = timedelta(seconds=policy.reservation_lead_s)
    for job, each in enumerate(pending):
        if (
            each.start_time is not None
            and _until_s(batch, each.start_time) > -policy.twin_max_age_s
            and not (each.start_time <= batch.now and stopped(job))
        ):
            claimed = max(each.submit_time, each.start_time - ahead)
            claims.append((claimed, each.submit_time, first_ids[job], each.benchmark_id, job))
    cleared = [
        job
        for job, each in enumerate(pending)
        if each.cleared_uid and not each.not_ready and not stopped(job)
    ]
    if not (claims or cleared) and batch.snapshot.conflicts is None and not leases_of(batch):
        return {}  # the benchmark that has waited longest gets the next board
    stated = {job for *_, job in claims}.union(cleared)
    guard = timedelta(seconds=policy.guard_s)
    for job in guarded():
        each = pending[job]
        if job not in stated:
            since = max(each.submit_time, each.start_time or each.submit_time)
            claims.append((since + guard, each.submit_time, first_ids[job], each.benchmark_id, job))
    if not (claims or cleared):
        return {}
    planner = _ReservationPlanner(batch, pending, policy, holders, fits)
    for job in cleared:
        planner.reserve_cleared(job)
    for *_, job in sorted(claims):
        if job in planner.boards:
            continue
        if job in stated:
            planner.reserve_start(job)
        else:
            planner.reserve_earliest(job)
    return {
        job: Reservation(board=board, start=planner.start_of(job), stated=job in stated)
        for job, board in planner.boards.items()
    }


def _first_ids(pending: Sequence[PendingBenchmark]) -> list[str]:
    """Return each benchmark's id, or the first one of its gang.

    So of two gangs that claim at the same time one has all its reservations before the other.
    """
    of_gang: dict[str, str] = {}
    for each in pending:
        if each.gang_id is not None:
            first = of_gang.get(each.gang_id, each.benchmark_id)
            of_gang[each.gang_id] = min(first, each.benchmark_id)
    return [
        each.benchmark_id if each.gang_id is None else of_gang[each.gang_id] for each in pending
    ]


class _ReservationPlanner:
    """Reserves boards for one benchmark after the other, for the time of its run.

    Attributes:
        boards: By row of the benchmark, the row of the board that is reserved for it.
    """

    def __init__(
        self,
        batch: Batch,
        pending: Sequence[PendingBenchmark],
        policy: Policy,
        holders: Sequence[BoardHolder],
        fits: Callable[[Batch], NDArray[np.bool_]],
    ) -> None:
        self.boards: dict[int, int] = {}
        self._batch, self._pending, self._policy = batch, pending, policy
        occupancy = Occupancy(batch, holders, policy.cool_down_s)
        self._free_s = occupancy.free_s(hold_times_left(batch, holders, policy))
        self._certain_s = occupancy.free_s(bounds_left(batch, holders))
        self._fits = fits(occupancy.when_idle())
        self._place = np.empty(batch.shape[1], dtype=np.intp)
        self._place[batch.board_order] = np.arange(batch.shape[1])
        self._on: dict[int, list[int]] = {}
        self._used = np.zeros(batch.shape[1], dtype=np.bool_)
        self._holds_s: dict[int, float] = {}
        self._rows = batch.class_of_job.tolist()
        self._spans: dict[int, tuple[float, float]] = {}
        self._earliest_s: dict[int, float] = {}
        self._options: dict[tuple[int, float], NDArray[np.intp]] = {}
        self._hopeless: set[tuple[int, float]] = set()
        self._steps = MAX_STEPS
        self._guard_counts: Counter[str] = Counter()
        self._closed = np.zeros(batch.shape[1], dtype=np.bool_)
        self._closed_for: set[int] = set()

    def start_of(self, job: int) -> datetime:
        """Return when the reservation of a benchmark begins."""
        stated = self._pending[job].start_time
        if job not in self._earliest_s and stated is not None:
            return stated
        return self._batch.now + timedelta(seconds=self._span(job)[0])

    def reserve_cleared(self, job: int) -> None:
        """Reserve the board that was cleared for a benchmark by a preemption, from now on."""
        board = self._batch.row_of_uid.get(self._pending[job].cleared_uid or "")
        if board is not None and self._fits[self._rows[job], board]:
            self._earliest_s[job] = 0.0
            self._put(job, board)

    def reserve_earliest(self, job: int) -> None:
        """Reserve a board from the earliest time at which one counts as free for the run."""
        row, family = self._rows[job], self._pending[job].family
        if row in self._closed_for:
            return
        could = self._fits[row] & np.isfinite(self._free_s) & ~self._closed
        if not could.any():
            return
        if self._guard_counts[family] >= MAX_GUARD_RESERVATIONS:
            self._closed |= could
            self._closed_for.add(row)
            return
        hold_s = self._hold_s(row)
        leased = self._foreign_leases(row)
        taken = self._used.copy()
        taken[list(leased)] = True
        free = np.flatnonzero(could & ~taken)
        options = []
        if len(free):
            best = free[np.lexsort((self._place[free], self._free_s[free]))[0]]
            options.append((float(self._free_s[best]), int(self._place[best]), int(best)))
        soonest_s = options[0][0] if options else math.inf
        for board in np.flatnonzero(could & taken & (self._free_s < soonest_s)).tolist():
            at_s = self._first_gap_s(board, hold_s, leased.get(board, ()))
            options.append((at_s, int(self._place[board]), board))
        at_s, _, board = min(options)
        self._guard_counts[family] += 1
        self._earliest_s[job] = at_s
        self._put(job, board)

    def _first_gap_s(
        self, board: int, hold_s: float, leases: Sequence[tuple[float, float]]
    ) -> float:
        """Return the begin of the first gap of this length between reservations, s from now."""
        spans = [
            self._span(other)
            for near in conflict_group(self._batch, board)
            for other in self._on.get(near, ())
        ]
        at_s = float(self._free_s[board])
        for start_s, end_s in sorted([*spans, *leases]):
            if at_s + hold_s <= start_s:
                break
            at_s = max(at_s, end_s)
        return at_s

    def _foreign_leases(self, row: int) -> dict[int, list[tuple[float, float]]]:
        """Return by row of the board when it is leased to others, seconds from now."""
        found: dict[int, list[tuple[float, float]]] = {}
        user = self._batch.lease_users[row]
        for board, lease in leases_of(self._batch):
            if lease.user_id is None or lease.user_id != user:
                span = _until_s(self._batch, lease.since), _until_s(self._batch, lease.until)
                found.setdefault(board, []).append(span)
        return found

    def reserve_start(self, job: int) -> None:
        """Reserve a board for a stated start, if all that have a reservation can keep one."""
        alike = self._rows[job], self._span(job)[0]
        if alike in self._hopeless or (self._steps <= 0 and self._used.all()):
            return  # reservations are only ever added
        options = self._options_of(job)
        untouched = options[~self._used[options]]
        if len(untouched):
            self._put(job, int(untouched[0]))
            return
        rest = max(self._steps - MAX_STEPS_EACH, 0)
        self._steps -= rest
        if not self._exchange((job,), frozenset()):
            self._hopeless.add(alike)
        self._steps += rest

    def _exchange(self, jobs: tuple[int, ...], moved: frozenset[int]) -> bool:
        """Find boards for all of these; move the present holders, each at most once."""
        if not jobs:
            return True
        if len(moved) > MAX_EXCHANGES:
            return False
        job, others = jobs[0], jobs[1:]
        found: list[tuple[int, int, int, list[int]]] = []
        for board in self._options_of(job).tolist():
            if self._steps <= 0:
                return False
            self._steps -= 1
            displaced = self._overlapping(job, board)
            if moved.isdisjoint(displaced):
                found.append((len(displaced), len(found), board, displaced))
        for _, _, board, displaced in sorted(found):
            earlier = [self._remove(each) for each in displaced]
            self._put(job, board)
            if self._exchange((*others, *displaced), moved | {job}):
                return True
            self._remove(job)
            for each, home in zip(displaced, earlier, strict=True):
                self._put(each, home)
            if self._steps <= 0:
                break
        return False

    def _options_of(self, job: int) -> NDArray[np.intp]:
        """Return the boards that it could use from its start on: free, certain, then by seed."""
        row, (start_s, end_s) = self._rows[job], self._span(job)
        if (row, start_s) not in self._options:
            could = self._fits[row] & (self._free_s <= start_s) & ~self._closed
            for board, spans in self._foreign_leases(row).items():
                if any(since_s < end_s and until_s > start_s for since_s, until_s in spans):
                    could[board] = False
            boards = np.flatnonzero(could)
            busy = self._free_s[boards] > 0.0
            uncertain = self._certain_s[boards] > start_s
            order = np.lexsort((self._place[boards], uncertain, busy))
            self._options[row, start_s] = boards[order]
        return self._options[row, start_s]

    def _span(self, job: int) -> tuple[float, float]:
        """Return its start, and from when it counts as over, seconds from now."""
        if job not in self._spans:
            start = self._pending[job].start_time
            start_s = 0.0 if start is None else max(_until_s(self._batch, start), 0.0)
            start_s = self._earliest_s.get(job, start_s)
            self._spans[job] = start_s, start_s + self._hold_s(self._rows[job])
        return self._spans[job]

    def _hold_s(self, row: int) -> float:
        """Return for how long its board is reserved, with its cool-down: on the slowest one."""
        if row not in self._holds_s:
            boards = np.flatnonzero(self._fits[row])
            rows = np.full(len(boards), row, dtype=np.intp)
            hold_s = hold_times(self._batch, rows, boards, self._policy).max(initial=0.0)
            self._holds_s[row] = float(hold_s) + self._policy.cool_down_s
        return self._holds_s[row]

    def _overlapping(self, job: int, board: int) -> list[int]:
        """Return the benchmarks whose reservations there overlap its own."""
        start_s, end_s = self._span(job)
        found = []
        for other in (
            each for near in conflict_group(self._batch, board) for each in self._on.get(near, ())
        ):
            its_start_s, its_end_s = self._span(other)
            if start_s < its_end_s and its_start_s < end_s:
                found.append(other)
        return found

    def _put(self, job: int, board: int) -> None:
        self.boards[job] = board
        self._on.setdefault(board, []).append(job)
        self._used[conflict_group(self._batch, board)] = True

    def _remove(self, job: int) -> int:
        board = self.boards.pop(job)
        self._on[board].remove(job)
        return board


def _until_s(batch: Batch, moment: datetime) -> float:
    return (moment - batch.now).total_seconds()
