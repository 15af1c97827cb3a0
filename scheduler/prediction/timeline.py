"""When boards come free, and for whom they are reserved: one timeline for cycles and forecasts.

A board is *taken* while a run holds it or a board that shares its cores, and while it cools down.
It comes free when those runs have ended and the cool-down is over (`Occupancy`). How long a run
lasts is the caller's choice: reservations use `hold_times`, forecasts draw run times.

Reservations and leases cut a board's future into *time slots* (`TimeSlots`). The slots of a board
follow one another from now on; the last one never ends. A run that starts in a slot must count as
over (`hold_times`), and the board must have cooled down, when the next reservation begins or the
next lease to somebody else, or the policy's ``booking_grace_s`` later for a lease or a stated start
that has not come yet; a leased slot is open to its lessee alone. A reservation that is due has an
empty slot before its own, so that no other benchmark starts there now. The cycle applies this rule
to the first slot of each board (`Timeline.late`), and leaves leases that have begun to the filters;
a forecast applies it to all slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, without_runs
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model.decision import BoardHolder
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.prediction.cool_down import cool_down_left_s
from edgeyard.scheduler.prediction.estimates import PastPairs, of_boards
from edgeyard.scheduler.prediction.quick_runs import find_quick_runs

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reservation:
    """A board that is reserved for one benchmark.

    Attributes:
        board: Row of the board.
        start: When the reservation begins. For a stated start this is that start, even if it has
            passed.
        stated: Whether the benchmark states the start; otherwise it is the earliest certain one.
    """

    board: int
    start: datetime
    stated: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class TimeSlots:
    """The time slots of all boards, one board after the other.

    Attributes:
        first: Shape (boards + 1,): the slots of board b are ``first[b]:first[b + 1]``.
        boards: Shape (slots,): row of each slot's board.
        begins: Shape (slots,), seconds from now; the first slot of a board begins at 0.
        ends: Shape (slots,): when the next slot of the board begins; inf for the last one.
        reserved: Shape (slots,): whether a reservation begins with the slot.
        closes: Shape (slots,): when earlier runs must be over so that what begins with the slot is
            not too late, seconds from now: its begin, or later by a grace time.
        lessees: By slot, the users to whom it is leased; None stands for a lease without a user.
            Slots that are not leased are missing.
    """

    first: NDArray[np.intp]
    boards: NDArray[np.intp]
    begins: Floats
    ends: Floats
    reserved: NDArray[np.bool_]
    closes: Floats
    lessees: Mapping[int, frozenset[str | None]]

    @cached_property
    def cut(self) -> NDArray[np.bool_]:
        """Shape (boards,): whether a reservation or a lease restricts who may start there."""
        cut: NDArray[np.bool_] = np.diff(self.first) > 1
        cut[self.boards[list(self.lessees)]] = True
        return cut

    def of(self, board: int) -> slice:
        """Return the slots of a board."""
        return slice(int(self.first[board]), int(self.first[board + 1]))

    def at(self, board: int, start_s: float) -> int:
        """Return the last slot of a board that begins at a time or before."""
        its = self.of(board)
        return int(its.start + np.searchsorted(self.begins[its], start_s, side="right") - 1)

    def leased_to_others(self, user: str | None) -> NDArray[np.bool_]:
        """Return which slots are leased to others than this user, shape (slots,)."""
        leased = np.zeros(len(self.boards), dtype=np.bool_)
        for slot, users in self.lessees.items():
            leased[slot] = None in users or users != {user}
        return leased

    def closing_times(
        self, user: str | None, cool_down_s: float, *, reservations: bool = True
    ) -> Floats:
        """Return when a run that starts in each slot must be over.

        Args:
            user: Whose run it is; None: a user without leases.
            cool_down_s: For how long the board then cools down.
            reservations: Whether reservations count; for their owners they don't.

        Returns:
            Shape (slots,), seconds from now; inf where nothing follows.
        """
        leased = self.leased_to_others(user)
        closing = leased | self.reserved if reservations else leased
        closes = np.where(closing, self.closes, np.inf)
        times = np.full(len(self.boards), np.inf)
        for board in np.unique(self.boards[closing]).tolist():
            its = self.of(board)
            earliest = np.minimum.accumulate(closes[its][::-1])[::-1]
            times[its] = np.append(earliest[1:], np.inf)
        return times - cool_down_s


class Timeline:
    """The boards' reservations and leases in one cycle.

    Attributes:
        batch: Of the cycle.
        policy: States how certainly a run must be over, and how long boards cool down.
        reservations: By row of the benchmark.
    """

    def __init__(
        self, batch: Batch, policy: Policy, reservations: Mapping[int, Reservation]
    ) -> None:
        """Take the cycle's reservations; its leases are part of the batch."""
        self.batch, self.policy, self.reservations = batch, policy, reservations
        self._closing_times: dict[str | None, Floats] = {}
        self._late: dict[int, NDArray[np.bool_]] = {}

    def without(self, job: int) -> Timeline:
        """Return the timeline without a benchmark's own reservation, which keeps it off no board.

        Args:
            job: Row of the benchmark.
        """
        if job not in self.reservations:
            return self
        others = {other: each for other, each in self.reservations.items() if other != job}
        return Timeline(self.batch, self.policy, others)

    @cached_property
    def stated_boards(self) -> Mapping[int, int]:
        """The board that is reserved for the start it states, by row of the benchmark."""
        return {job: each.board for job, each in self.reservations.items() if each.stated}

    @cached_property
    def due_boards(self) -> Mapping[int, int]:
        """The board that is reserved for it now, by row of the benchmark."""
        return {
            job: each.board
            for job, each in self.reservations.items()
            if each.start <= self.batch.now
        }

    @cached_property
    def reserved_from(self) -> Mapping[int, datetime]:
        """Return when the next reservation of a board, or of one next to it, begins, by its row.

        A benchmark that states no start and whose reservation is due is the first to choose in this
        cycle, and may choose another board: its reservation does not close the board.
        """
        found: dict[int, datetime] = {}
        for own in self.reservations.values():
            if not own.stated and own.start <= self.batch.now:
                continue
            for board in conflict_group(self.batch, own.board):
                found[board] = min(own.start, found.get(board, own.start))
        return found

    @cached_property
    def next_starts(self) -> Mapping[int, datetime]:
        """Return when the next reservation or lease of a board begins, by its row."""
        starts = dict(self.reserved_from)
        for board, lease in leases_of(self.batch):
            if lease.since > self.batch.now:
                starts[board] = min(lease.since, starts.get(board, lease.since))
        return starts

    @cached_property
    def slots(self) -> TimeSlots:
        """The boards' time slots."""
        return _time_slots(self)

    @cached_property
    def reserved_slots(self) -> Mapping[int, int]:
        """The slot that begins with the start it states, by row of the benchmark."""
        return {
            job: self.slots.at(board, _from_now_s(self.batch, self.reservations[job].start))
            for job, board in self.stated_boards.items()
        }

    def closing_times(self, user: str | None) -> Floats:
        """Return `TimeSlots.closing_times` with the policy's cool-down, computed once."""
        if all(lease.user_id != user for _, lease in leases_of(self.batch)):
            user = None
        if user not in self._closing_times:
            self._closing_times[user] = self.slots.closing_times(user, self.policy.cool_down_s)
        return self._closing_times[user]

    def late(self, rows: NDArray[np.intp], boards: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which runs may overlap the board's next reservation or a lease of others.

        The owner of a reservation counts like all others of its class.

        Args:
            rows: Classes, shape (pairs,).
            boards: Shape (pairs,).
        """
        late = np.zeros(len(boards), dtype=np.bool_)
        if not self.next_starts:
            return late
        near = np.flatnonzero(self.slots.cut[boards])
        rows, boards = rows[near], boards[near]
        slots = self.slots.first[boards]
        closes = self.closing_times(None)[slots]
        for user in {user for user in self.batch.lease_users if user is not None}:
            of_user = np.array([each == user for each in self.batch.lease_users], dtype=np.bool_)
            own = of_user[rows]
            closes[own] = self.closing_times(user)[slots[own]]
        late[near] = hold_times(self.batch, rows, boards, self.policy) > closes
        return late

    def late_of(self, row: int) -> NDArray[np.bool_]:
        """Return `late` of one class, shape (boards,), computed once."""
        if row not in self._late:
            boards = np.arange(self.batch.shape[1])
            self._late[row] = self.late(np.full(len(boards), row), boards)
        return self._late[row]

    def in_time(
        self, pairs: Pairs, scores: NDArray[np.float32]
    ) -> tuple[Pairs, NDArray[np.float32]]:
        """Return the pairs that are not late, with their scores."""
        if not self.next_starts:
            return pairs, scores
        kept = ~self.late(pairs.rows, pairs.boards)
        if kept.all():
            return pairs, scores
        before = np.zeros(len(kept) + 1, dtype=np.intp)
        np.cumsum(kept, out=before[1:])
        left = replace(
            pairs, rows=pairs.rows[kept], boards=pairs.boards[kept], starts=before[pairs.starts]
        )
        return left, scores[kept]


def _time_slots(timeline: Timeline) -> TimeSlots:
    """Cut the boards' futures at the begin of reservations, and at both ends of leases."""
    batch, grace_s = timeline.batch, timeline.policy.booking_grace_s
    count = batch.shape[1]
    leases = leases_of(batch)
    starts = _reserved_starts(timeline)
    reserved = np.array([_from_now_s(batch, start) for _, start, _ in starts])
    spans = [(_from_now_s(batch, each.since), _from_now_s(batch, each.until)) for _, each in leases]
    of_lease = [board for board, _ in leases]
    boards = np.array(
        [*range(count), *(board for board, _, _ in starts), *of_lease, *of_lease], dtype=np.intp
    )
    begins = np.concatenate(
        (
            np.zeros(count),
            reserved,
            [since_s for since_s, _ in spans],
            [until_s for _, until_s in spans],
        )
    )
    late_s = np.concatenate(
        (
            np.full(count, np.inf),
            [grace_s if stated else 0.0 for _, _, stated in starts],
            np.full(len(spans), grace_s),
            np.full(len(spans), np.inf),
        )
    )
    late_s[(begins <= 0.0) & np.isfinite(late_s)] = 0.0  # what has begun waits for nobody
    closes = begins + late_s
    is_reserved = np.zeros(len(boards), dtype=np.bool_)
    is_reserved[count : count + len(starts)] = True
    due = is_reserved & (begins <= 0.0)
    order = np.lexsort((due, begins, boards))
    boards, begins, due, closes = boards[order], begins[order], due[order], closes[order]
    new = np.ones(len(boards), dtype=np.bool_)
    new[1:] = (np.diff(boards) > 0) | (np.diff(begins) > 0) | (due[1:] & ~due[:-1])
    places = np.flatnonzero(new)
    boards, begins = boards[places], begins[places]
    first = np.searchsorted(boards, np.arange(count + 1))
    ends = np.append(begins[1:], np.inf)
    ends[first[1:] - 1] = np.inf
    lessees: dict[int, frozenset[str | None]] = {}
    for (board, lease), (since_s, until_s) in zip(leases, spans, strict=True):
        for slot in range(int(first[board]), int(first[board + 1])):
            if since_s <= begins[slot] < until_s:
                lessees[slot] = lessees.get(slot, frozenset()) | {lease.user_id}
    return TimeSlots(
        first=first,
        boards=boards,
        begins=begins,
        ends=ends,
        reserved=np.logical_or.reduceat(is_reserved[order], places)
        if len(places)
        else np.zeros(0, dtype=np.bool_),
        closes=np.minimum.reduceat(closes, places) if len(places) else np.zeros(0),
        lessees=lessees,
    )


def _reserved_starts(timeline: Timeline) -> list[tuple[int, datetime, bool]]:
    """Return each begin of a reservation with the row of its board, and whether it is stated.

    On boards that must not measure next to a reserved one, the first begin counts.
    """
    found = [
        (each.board, each.start, True) for each in timeline.reservations.values() if each.stated
    ]
    first: dict[tuple[int, bool], datetime] = {}
    for own in timeline.reservations.values():
        if own.stated or own.start > timeline.batch.now:
            for board in conflict_group(timeline.batch, own.board):
                key = board, own.stated
                first[key] = min(own.start, first.get(key, own.start))
    return found + [(board, start, stated) for (board, stated), start in first.items()]


class Occupancy:
    """Boards that are taken now, their holders, and when they become free.

    Attributes:
        taken: Shape (boards,): held by a run that is known, next to such a board, or cooling down.
    """

    def __init__(self, batch: Batch, holders: Sequence[BoardHolder], cool_down_s: float) -> None:
        """Find the boards that each holder keeps from others.

        Args:
            holders: Live attempts; those on boards that are not known are left out.
            cool_down_s: How long a board rests after a run.
        """
        self._batch, self._cool_down_s = batch, cool_down_s
        self._cool_down_left_s = cool_down_left_s(
            batch.snapshot, batch.knowledge.runs, batch.now, cool_down_s
        )
        row_of_uid = batch.row_of_uid
        self._groups = [
            conflict_group(batch, row_of_uid[each.target_uid])
            if each.target_uid in row_of_uid
            else []
            for each in holders
        ]
        self.taken: NDArray[np.bool_] = self._cool_down_left_s > 0.0
        for group in self._groups:
            self.taken[group] = True

    def free_s(self, left_s: Floats) -> Floats:
        """Return when each board comes free.

        Args:
            left_s: Shape (holders, ...): how much longer each run lasts, seconds.

        Returns:
            Shape (boards, ...), seconds from now; 0 for boards that are free now, inf for boards
            that are busy with something unknown.
        """
        unknown = self._batch.snapshot.busy & ~self.taken
        since_s = np.where(unknown, np.inf, self._cool_down_left_s)
        sizes = left_s.shape[1:]
        free_s = np.tile(since_s.reshape(-1, *(1 for _ in sizes)), (1, *sizes))
        for group, end_s in zip(self._groups, left_s + self._cool_down_s, strict=True):
            free_s[group] = np.maximum(free_s[group], end_s)
        return free_s

    def when_idle(self) -> Batch:
        """Return the batch without runs and leases."""
        batch = without_runs(self._batch, np.flatnonzero(self.taken).tolist())
        batch = replace(batch, knowledge=replace(batch.knowledge, leases=()))
        of_boards(self._batch, batch)
        self._batch.pass_on(batch, find_quick_runs)
        return batch


def run_bounds(batch: Batch, holders: Sequence[BoardHolder]) -> Floats:
    """Return the bound on each holder's run in seconds, shape (holders,)."""
    default_s = batch.knowledge.max_run_s
    return np.array([each.time_limit_s or default_s for each in holders], dtype=np.float64)


def elapsed_times(batch: Batch, holders: Sequence[BoardHolder]) -> Floats:
    """Return how long each holder's task has run in seconds, shape (holders,); 0 before it runs."""
    return np.array(
        [
            0.0
            if each.started_at is None
            else max((batch.now - each.started_at).total_seconds(), 0.0)
            for each in holders
        ],
        dtype=np.float64,
    )


def bounds_left(batch: Batch, holders: Sequence[BoardHolder]) -> Floats:
    """Return how much longer each run may last in seconds, shape (holders,); never quite 0.

    A run without time left, or one that ends already, is nearly over, but not gone.
    """
    left_s = run_bounds(batch, holders) - elapsed_times(batch, holders)
    left_s[np.array([each.ending for each in holders], dtype=np.bool_)] = 0.0
    return np.maximum(left_s, np.finfo(np.float64).tiny)


def hold_times(
    batch: Batch, rows: NDArray[np.intp], boards: NDArray[np.intp], policy: Policy
) -> Floats:
    """Return within which time a run counts as over, shape (pairs,), seconds.

    With a ``hold_quantile`` of 1 that is its bound. Otherwise it is that quantile of its predicted
    times of loading and running (the error of the prediction is part of it), but no longer run than
    its bound. Where the family has no result of the model, the bound that its user states counts;
    without one, what past runs say of the type.

    Args:
        rows: Classes, shape (pairs,).
        boards: Shape (pairs,).
        policy: Its ``hold_quantile`` counts.
    """
    bound_s: Floats = batch.time_limits_s[rows]
    if policy.hold_quantile >= 1.0 or not len(batch.knowledge.runs):
        return bound_s
    past = PastPairs(batch, rows, boards)
    run_s = np.fmin(past.run_times(policy.hold_quantile), bound_s)
    is_stated = ~np.isnan(np.fmin(batch.user_times_s, batch.budget_times_s))[rows]
    run_s = np.where(is_stated & (past.run_counts() < 1), bound_s, run_s)
    return np.asarray(run_s + np.nan_to_num(past.loading_times(policy.hold_quantile)))


def leases_of(batch: Batch) -> list[tuple[int, Lease]]:
    """Return the leases of known boards that have not ended, each with the row of its board."""
    return batch.derived(_leases_of)


def _leases_of(batch: Batch) -> list[tuple[int, Lease]]:
    row_of_uid = batch.row_of_uid
    return [
        (row_of_uid[lease.target_uid], lease)
        for lease in batch.knowledge.leases
        if lease.target_uid in row_of_uid and lease.until > batch.now
    ]


def conflict_group(batch: Batch, board: int) -> list[int]:
    """Return the rows of a board and of those that must not measure while it does."""
    conflicts = batch.snapshot.conflicts
    if conflicts is None:
        return [board]
    found = conflicts[board] | conflicts[:, board]
    found[board] = True
    return np.flatnonzero(found).tolist()


def _from_now_s(batch: Batch, moment: datetime) -> float:
    return max((moment - batch.now).total_seconds(), 0.0)
