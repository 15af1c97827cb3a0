"""Boards that are kept: for leases that begin later, for stated starts, and for who waits too long.

A benchmark that states a ``start_time`` is *promised* a board from then on, where one can be kept
for it: the one that it names, or one that it could use. Who was submitted first is served first;
boards of those that came before are exchanged where that makes room, so that a promise never costs
an earlier one its board. A board is kept for several benchmarks if each is surely through before
the next one's start.

Nobody else gets a kept board, or one that shares its cores, unless surely through before: by the
bound that is held on its run, or, where the policy says so, by a quantile of its predicted time. A
start farther away than any run can last keeps nobody off. When the start has come its benchmark
goes first; one that is not placed within the policy's ``twin_max_age_s`` waits like all others. The
same rule holds for a board that is leased to somebody else from some time on.

A benchmark that has waited for the policy's ``guard_s`` gets a *reservation* of its own: the
earliest time at which a board that it could use is surely free for as long as its run may take. So
starts that are promised one after the other, each too soon after the last, can't push it back for
ever, and neither can runs that take turns on boards that share its cores. Keeping and promises
are given in the order in which they are claimed: a benchmark claims when its guard time is over, a
stated start when it is submitted, but no sooner than the policy's ``promise_ahead_s`` before it.
Hence a benchmark starts at the latest ``guard_s`` and ``promise_ahead_s`` after it could have
started, plus the bound of one run that is promised or under way then, plus those of the benchmarks
that have waited longer and want the same boards (each with the board's cool-down). Leases are not
bounded by this: operators decide about them.

Nothing of this is stored: each cycle finds it again. A run that was let on a board is over before
the next start there, so that whoever was kept a board is kept one again, until its start.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.preempt import cleared
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model.benchmark import WaitingReason, WaitReason
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.prediction.cool_down import rests_s
from edgeyard.scheduler.prediction.estimates import run_times

_MAX_STEPS = 10_000
"""Looks at boards in a cycle to exchange them; after that only boards without a promise are kept.

A look takes about ten microseconds.
"""

_LOOKS_EACH = 2_000
"""For one benchmark."""

_MAX_REORDERED = 100
"""Others that change their boards for one benchmark, at most."""

_MAX_RESERVATIONS = 10
"""Keeping of a family's benchmarks that have waited for ``guard_s``.

While more of them wait, whoever claims later is promised none of the boards that they could use.
"""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A board for one benchmark.

    Attributes:
        board: Row of the board.
        start: From when on. That of a stated start is this start, also if it has come.
        stated: The benchmark states it; otherwise it is the earliest that is certain.
    """

    board: int
    start: datetime
    stated: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Commitments:
    """What is kept, and who would come too late.

    Attributes:
        batch: Of the cycle.
        policy: How surely a run must be over, and how long boards rest between two.
        reservations: By row of the benchmark.
        promised: By row of the board, the next start there.
    """

    batch: Batch
    policy: Policy
    reservations: Mapping[int, Reservation]
    promised: Mapping[int, datetime]

    @cached_property
    def kept(self) -> Mapping[int, int]:
        """By row of the benchmark, the row of the board that is kept for the start it states."""
        return {job: each.board for job, each in self.reservations.items() if each.stated}

    @cached_property
    def due(self) -> Mapping[int, int]:
        """By row of the benchmark, the row of the board that is kept for it now."""
        return {
            job: each.board
            for job, each in self.reservations.items()
            if each.start <= self.batch.now
        }

    @cached_property
    def starts(self) -> Mapping[int, datetime]:
        """By row of the board, when its next promise or lease is."""
        starts = dict(self.promised)
        for board, lease, _ in self._leases:
            starts[board] = min(lease.since, starts.get(board, lease.since))
        return starts

    def late(self, rows: NDArray[np.intp], boards: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Who might still run at the board's next commitment, were it placed there now.

        A promise's own benchmark counts like all others of its class.

        Args:
            rows: Classes, shape (pairs,).
            boards: Shape (pairs,).
        """
        late = np.zeros(len(boards), dtype=np.bool_)
        if not self.starts:
            return late
        near = np.flatnonzero(self._near[boards])
        rows, boards = rows[near], boards[near]
        hold_s = holds_s(self.batch, rows, boards, self.policy)
        too_long = hold_s > self._left_s[boards]
        for board, lease, foreign in self._leases:
            left_s = _until_s(self.batch, lease.since) - self.policy.cool_down_s
            too_long |= (boards == board) & foreign[rows] & (hold_s > left_s)
        late[near] = too_long
        return late

    def late_of(self, row: int) -> NDArray[np.bool_]:
        """Shape (boards,): `late` of one class."""
        boards = np.arange(self.batch.shape[1])
        return self.late(np.full(len(boards), row), boards)

    def in_time(
        self, pairs: Pairs, scores: NDArray[np.float32]
    ) -> tuple[Pairs, NDArray[np.float32]]:
        """The pairs that are not late, with their scores."""
        kept = ~self.late(pairs.rows, pairs.boards)
        if kept.all():
            return pairs, scores
        before = np.zeros(len(kept) + 1, dtype=np.intp)
        np.cumsum(kept, out=before[1:])
        left = replace(
            pairs, rows=pairs.rows[kept], boards=pairs.boards[kept], starts=before[pairs.starts]
        )
        return left, scores[kept]

    def waiting_for_own(self, job: int) -> WaitReason | None:
        """Return why a benchmark waits for a reservation that comes later; None if it has none."""
        own = self.reservations.get(job)
        if own is None or own.stated or own.start <= self.batch.now:
            return None
        uid = self.batch.snapshot.uids[own.board]
        minute = own.start.astimezone(UTC) + timedelta(seconds=59)
        return WaitReason(
            reason=WaitingReason.RESERVED,
            promised=True,
            sentence=f"it has waited long enough to have a reservation: {uid} from "
            f"{minute:%Y-%m-%dT%H:%MZ} on at the latest, after what runs or is promised there",
        )

    def waiting(self, board: int) -> WaitReason:
        """Why who would come too late waits although the board is free."""
        uid = self.batch.snapshot.uids[board]
        start = self.starts[board].astimezone(UTC)
        return WaitReason(
            reason=WaitingReason.RESERVED,
            promised=True,
            sentence=f"{uid} is promised from {start:%Y-%m-%dT%H:%M:%SZ} on, "
            "before this would surely be through",
        )

    @cached_property
    def _leases(self) -> list[tuple[int, Lease, NDArray[np.bool_]]]:
        """Board, coming lease, and of each class whether it is somebody else's."""
        return [each for each in self.batch.derived(_leases) if each[1].since > self.batch.now]

    @cached_property
    def _left_s(self) -> NDArray[np.float64]:
        """Shape (boards,): until the next promised start, less set-up time; inf without one."""
        left_s = np.full(self.batch.shape[1], np.inf)
        for board, start in self.promised.items():
            left_s[board] = _until_s(self.batch, start) - self.policy.cool_down_s
        return left_s

    @cached_property
    def _near(self) -> NDArray[np.bool_]:
        near = np.zeros(self.batch.shape[1], dtype=np.bool_)
        near[list(self.starts)] = True
        return near


def holds_s(
    batch: Batch, rows: NDArray[np.intp], boards: NDArray[np.intp], policy: Policy
) -> NDArray[np.float64]:
    """Shape (pairs,): within which a run of the class counts as over on the board, seconds."""
    bound_s: NDArray[np.float64] = batch.time_limits_s[rows]
    if policy.hold_quantile < 1.0:
        return np.fmin(run_times(batch, rows, boards, policy.hold_quantile), bound_s)
    return bound_s


def commitments(
    batch: Batch, policy: Policy, reservations: Mapping[int, Reservation]
) -> Commitments:
    """Of this cycle.

    Args:
        batch: The batch.
        policy: See `Commitments`.
        reservations: From `reserve`.
    """
    promised: dict[int, datetime] = {}
    for own in reservations.values():
        if not own.stated and own.start <= batch.now:
            continue  # it is the first to choose in this cycle, and may choose another board
        for each in _conflict_group(batch, own.board):
            promised[each] = min(own.start, promised.get(each, own.start))
    return Commitments(batch=batch, policy=policy, reservations=reservations, promised=promised)


def reserve(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    policy: Policy,
    holders: Sequence[BoardHolder],
    guarded: Callable[[], Sequence[int]],
    fits: Callable[[Batch], NDArray[np.bool_]],
) -> dict[int, Reservation]:
    """Boards for the benchmarks that are promised a start, or have waited for ``guard_s``.

    Args:
        batch: The batch.
        pending: The benchmarks, in the batch's order.
        policy: For how long a start counts that has come, how far ahead one counts, and how long
            boards rest.
        holders: Who runs where, for how long at most.
        guarded: Gives the rows of benchmarks that could start now and have waited for ``guard_s``.
        fits: Shape (classes, boards), from the filters; asked with the holders' boards cleared.

    Returns:
        By row of the benchmark. Those that no board can be kept for are missing.
    """
    claims: list[tuple[datetime, datetime, str, int]] = []
    ahead = timedelta(seconds=policy.promise_ahead_s)
    for job, each in enumerate(pending):
        if (
            each.start_time is not None
            and _until_s(batch, each.start_time) > -policy.twin_max_age_s
        ):
            claimed = max(each.submit_time, each.start_time - ahead)
            claims.append((claimed, each.submit_time, each.benchmark_id, job))
    if not claims and batch.snapshot.conflicts is None and not batch.derived(_leases):
        return {}  # boards go down the queue: whoever has waited longest gets the next one
    stated = {job for *_, job in claims}
    guard = timedelta(seconds=policy.guard_s)
    for job in guarded():
        each = pending[job]
        if job not in stated:
            since = max(each.submit_time, each.start_time or each.submit_time)
            claims.append((since + guard, each.submit_time, each.benchmark_id, job))
    if not claims:
        return {}
    keeper = _Keeper(batch, pending, policy, holders, fits)
    for *_, job in sorted(claims):
        if job in stated:
            keeper.add(job)
        else:
            keeper.reserve(job)
    return {
        job: Reservation(board=board, start=keeper.start_of(job), stated=job in stated)
        for job, board in keeper.kept.items()
    }


class _Keeper:
    """Gives one after the other a board for the time of its run.

    Attributes:
        kept: By row of the benchmark, the row of its board.
    """

    def __init__(
        self,
        batch: Batch,
        pending: Sequence[PendingBenchmark],
        policy: Policy,
        holders: Sequence[BoardHolder],
        fits: Callable[[Batch], NDArray[np.bool_]],
    ) -> None:
        self.kept: dict[int, int] = {}
        self._batch, self._pending, self._policy = batch, pending, policy
        self._free_s = _free_s(batch, holders, policy)
        taken = np.flatnonzero(self._free_s > 0.0)
        later = cleared(batch, taken[np.isfinite(self._free_s[taken])].tolist())
        later = replace(later, knowledge=replace(batch.knowledge, leases=()))  # looked at here
        self._fits = fits(later)
        self._place = np.empty(batch.shape[1], dtype=np.intp)
        self._place[batch.board_order] = np.arange(batch.shape[1])
        self._on: dict[int, list[int]] = {}
        self._used = np.zeros(batch.shape[1], dtype=np.bool_)
        self._limits_s = batch.time_limits_s.tolist()
        self._rows = batch.class_of_job.tolist()
        self._spans: dict[int, tuple[float, float]] = {}
        self._earliest_s: dict[int, float] = {}
        self._options: dict[tuple[int, float], NDArray[np.intp]] = {}
        self._in_vain: set[tuple[int, float]] = set()
        self._looks = _MAX_STEPS
        self._reserved: Counter[str] = Counter()
        self._closed = np.zeros(batch.shape[1], dtype=np.bool_)
        self._closed_for: set[int] = set()

    def start_of(self, job: int) -> datetime:
        """From when on a board is kept for it."""
        stated = self._pending[job].start_time
        if job not in self._earliest_s and stated is not None:
            return stated
        return self._batch.now + timedelta(seconds=self._span(job)[0])

    def reserve(self, job: int) -> None:
        """Keep it a board from the earliest time on at which one is surely free for it."""
        row, family = self._rows[job], self._pending[job].family
        if row in self._closed_for:
            return
        could = self._fits[row] & np.isfinite(self._free_s) & ~self._closed
        if not could.any():
            return
        if self._reserved[family] >= _MAX_RESERVATIONS:
            self._closed |= could
            self._closed_for.add(row)
            return
        hold_s = self._limits_s[row] + self._policy.cool_down_s
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
        self._reserved[family] += 1
        self._earliest_s[job] = at_s
        self._put(job, board)

    def _first_gap_s(
        self, board: int, hold_s: float, leases: Sequence[tuple[float, float]]
    ) -> float:
        """Seconds from now until the board is kept for nobody for so long."""
        spans = [
            self._span(other)
            for near in _conflict_group(self._batch, board)
            for other in self._on.get(near, ())
        ]
        at_s = float(self._free_s[board])
        for start_s, end_s in sorted([*spans, *leases]):
            if at_s + hold_s <= start_s:
                break
            at_s = max(at_s, end_s)
        return at_s

    def _foreign_leases(self, row: int) -> dict[int, list[tuple[float, float]]]:
        """By row of the board, when it is leased to others, seconds from now."""
        found: dict[int, list[tuple[float, float]]] = {}
        for board, lease, foreign in self._batch.derived(_leases):
            if foreign[row]:
                span = _until_s(self._batch, lease.since), _until_s(self._batch, lease.until)
                found.setdefault(board, []).append(span)
        return found

    def add(self, job: int) -> None:
        """Keep it a board, if all that have one can go on having one."""
        alike = self._rows[job], self._span(job)[0]
        if alike in self._in_vain or (self._looks <= 0 and self._used.all()):
            return  # boards only fill up
        options = self._options_of(job)
        untouched = options[~self._used[options]]
        if len(untouched):
            self._put(job, int(untouched[0]))
            return
        rest = max(self._looks - _LOOKS_EACH, 0)
        self._looks -= rest
        if not self._settle((job,), frozenset()):
            self._in_vain.add(alike)
        self._looks += rest

    def _settle(self, homeless: tuple[int, ...], moved: frozenset[int]) -> bool:
        """Find them all boards; who sits there is moved, but none of those that were already."""
        if not homeless:
            return True
        if len(moved) > _MAX_REORDERED:
            return False
        job, others = homeless[0], homeless[1:]
        found: list[tuple[int, int, int, list[int]]] = []
        for board in self._options_of(job).tolist():
            if self._looks <= 0:
                return False
            self._looks -= 1
            out = self._in_the_way(job, board)
            if moved.isdisjoint(out):
                found.append((len(out), len(found), board, out))
        for _, _, board, out in sorted(found):
            homes = [self._remove(each) for each in out]
            self._put(job, board)
            if self._settle((*others, *out), moved | {job}):
                return True
            self._remove(job)
            for each, home in zip(out, homes, strict=True):
                self._put(each, home)
            if self._looks <= 0:
                break
        return False

    def _options_of(self, job: int) -> NDArray[np.intp]:
        """Boards that it could run on from its start on: free ones first, then as the seed says."""
        row, (start_s, end_s) = self._rows[job], self._span(job)
        if (row, start_s) not in self._options:
            could = self._fits[row] & (self._free_s <= start_s) & ~self._closed
            for board, spans in self._foreign_leases(row).items():
                if any(since_s < end_s and until_s > start_s for since_s, until_s in spans):
                    could[board] = False
            boards = np.flatnonzero(could)
            busy = self._free_s[boards] > 0.0
            self._options[row, start_s] = boards[np.lexsort((self._place[boards], busy))]
        return self._options[row, start_s]

    def _span(self, job: int) -> tuple[float, float]:
        """Seconds from now: its start, and when its board may be needed no longer."""
        if job not in self._spans:
            start = self._pending[job].start_time
            start_s = 0.0 if start is None else max(_until_s(self._batch, start), 0.0)
            start_s = self._earliest_s.get(job, start_s)
            hold_s = self._limits_s[self._rows[job]] + self._policy.cool_down_s
            self._spans[job] = start_s, start_s + hold_s
        return self._spans[job]

    def _in_the_way(self, job: int, board: int) -> list[int]:
        start_s, end_s = self._span(job)
        found = []
        for other in (
            each for near in _conflict_group(self._batch, board) for each in self._on.get(near, ())
        ):
            its_start_s, its_end_s = self._span(other)
            if start_s < its_end_s and its_start_s < end_s:
                found.append(other)
        return found

    def _put(self, job: int, board: int) -> None:
        self.kept[job] = board
        self._on.setdefault(board, []).append(job)
        self._used[_conflict_group(self._batch, board)] = True

    def _remove(self, job: int) -> int:
        board = self.kept.pop(job)
        self._on[board].remove(job)
        return board


def _free_s(batch: Batch, holders: Sequence[BoardHolder], policy: Policy) -> NDArray[np.float64]:
    """Shape (boards,): seconds until each is surely free: 0: now; inf: nobody knows.

    A board is not free while one that shares its cores is held.
    """
    row_of_uid = batch.row_of_uid
    rests = rests_s(batch.snapshot, batch.knowledge.runs, batch.now, policy.cool_down_s)
    held_s = np.zeros(batch.shape[1])
    for each in holders:
        board = row_of_uid.get(each.target_uid)
        if board is None:
            continue
        limit_s = each.time_limit_s or batch.knowledge.max_run_s
        if each.ending:
            limit_s = 0.0
        elif each.started_at is not None:
            limit_s -= (batch.now - each.started_at).total_seconds()
        left_s = max(limit_s, 0.0) + policy.cool_down_s
        # What has no time left is nearly over, not gone.
        left_s = max(left_s, np.finfo(np.float64).tiny)
        near = _conflict_group(batch, board)
        held_s[near] = np.maximum(held_s[near], left_s)
    free_s = np.where(batch.snapshot.busy & (rests <= 0.0), np.inf, rests)
    return np.where(held_s > 0.0, held_s, free_s)


def _leases(batch: Batch) -> list[tuple[int, Lease, NDArray[np.bool_]]]:
    """Row of the board, lease, and of each class whether it is somebody else's."""
    row_of_uid = batch.row_of_uid
    return [
        (
            row_of_uid[lease.target_uid],
            lease,
            np.array(
                [lease.user_id is None or user != lease.user_id for user in batch.lease_users],
                dtype=np.bool_,
            ),
        )
        for lease in batch.knowledge.leases
        if lease.target_uid in row_of_uid
    ]


def _conflict_group(batch: Batch, board: int) -> list[int]:
    """The board, and those that must not measure while it does."""
    conflicts = batch.snapshot.conflicts
    if conflicts is None:
        return [board]
    found = conflicts[board] | conflicts[:, board]
    found[board] = True
    return np.flatnonzero(found).tolist()


def _until_s(batch: Batch, moment: datetime) -> float:
    return (moment - batch.now).total_seconds()
