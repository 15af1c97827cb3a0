"""Boards that are kept: for leases that begin later, and for starts that benchmarks ask for.

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

Nothing of this is stored: each cycle finds it again. A run that was let on a board is over before
the next start there, so that whoever was kept a board is kept one again, until its start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.preempt import cleared
from edgeyard.scheduler.decide.resting import rests_s
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.estimates import run_times
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model.benchmark import Waiting, WaitingReason
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.knowledge import Lease

_MOST_LOOKS = 10_000
"""Looks at boards in a cycle to exchange them; after that only boards without a promise are kept.

A look takes about ten microseconds.
"""

_LOOKS_EACH = 2_000
"""For one benchmark."""

_MOST_MOVED = 100
"""Others that change their boards for one benchmark, at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Commitments:
    """What is kept, and who would come too late.

    Attributes:
        batch: Of the cycle.
        policy: How surely a run must be over, and how long boards rest between two.
        kept: By row of the benchmark, the row of the board that is kept for its start.
        promised: By row of the board, the next start there.
    """

    batch: Batch
    policy: Policy
    kept: Mapping[int, int]
    promised: Mapping[int, datetime]

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

    def waiting(self, board: int) -> Waiting:
        """Why who would come too late waits although the board is free."""
        uid = self.batch.snapshot.uids[board]
        start = self.starts[board].astimezone(UTC)
        return Waiting(
            reason=WaitingReason.RESERVED,
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
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    policy: Policy,
    kept: Mapping[int, int],
) -> Commitments:
    """Of this cycle.

    Args:
        batch: The batch.
        pending: The benchmarks, in the batch's order.
        policy: See `Commitments`.
        kept: From `keep`.
    """
    promised: dict[int, datetime] = {}
    for job, board in kept.items():
        start = pending[job].start_time
        if start is not None:
            for each in _beside(batch, board):
                promised[each] = min(start, promised.get(each, start))
    return Commitments(batch=batch, policy=policy, kept=kept, promised=promised)


def keep(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    policy: Policy,
    holders: Sequence[BoardHolder],
    fits: Callable[[Batch], NDArray[np.bool_]],
) -> dict[int, int]:
    """Boards for the benchmarks that are promised a start.

    Args:
        batch: The batch.
        pending: The benchmarks, in the batch's order.
        policy: For how long a start counts that has come, and how long boards rest.
        holders: Who runs where, for how long at most.
        fits: Shape (classes, boards), from the filters; asked with the holders' boards cleared.

    Returns:
        Row of the board by row of the benchmark. Those that no board can be kept for are missing.
    """
    asking = [
        job
        for job, each in enumerate(pending)
        if each.start_time is not None and _until_s(batch, each.start_time) > -policy.twin_max_age_s
    ]
    if not asking:
        return {}
    asking.sort(key=lambda job: (pending[job].submit_time, pending[job].benchmark_id))
    keeper = _Keeper(batch, pending, policy, holders, fits)
    for job in asking:
        keeper.add(job)
    return keeper.kept


class _Keeper:
    """Gives one after the other a board for the time of its run.

    Attributes:
        kept: As `keep` returns it.
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
        self._options: dict[tuple[int, float], NDArray[np.intp]] = {}
        self._in_vain: set[tuple[int, float]] = set()
        self._looks = _MOST_LOOKS

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
        if len(moved) > _MOST_MOVED:
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
            could = self._fits[row] & (self._free_s <= start_s)
            for board, lease, foreign in self._batch.derived(_leases):
                since_s = _until_s(self._batch, lease.since)
                until_s = _until_s(self._batch, lease.until)
                if foreign[row] and since_s < end_s and until_s > start_s:
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
            hold_s = self._limits_s[self._rows[job]] + self._policy.cool_down_s
            self._spans[job] = start_s, start_s + hold_s
        return self._spans[job]

    def _in_the_way(self, job: int, board: int) -> list[int]:
        start_s, end_s = self._span(job)
        found = []
        for other in (
            each for near in _beside(self._batch, board) for each in self._on.get(near, ())
        ):
            its_start_s, its_end_s = self._span(other)
            if start_s < its_end_s and its_start_s < end_s:
                found.append(other)
        return found

    def _put(self, job: int, board: int) -> None:
        self.kept[job] = board
        self._on.setdefault(board, []).append(job)
        self._used[_beside(self._batch, board)] = True

    def _remove(self, job: int) -> int:
        board = self.kept.pop(job)
        self._on[board].remove(job)
        return board


def _free_s(batch: Batch, holders: Sequence[BoardHolder], policy: Policy) -> NDArray[np.float64]:
    """Shape (boards,): seconds until each is surely free: 0: now; inf: nobody knows."""
    row_of_uid = batch.row_of_uid
    rests = rests_s(batch.snapshot, batch.knowledge.runs, batch.now, policy.cool_down_s)
    free_s = np.where(batch.snapshot.busy & (rests <= 0.0), np.inf, rests)
    for each in holders:
        board = row_of_uid.get(each.target_uid)
        if board is None:
            continue
        limit_s = each.time_limit_s or batch.knowledge.most_run_s
        if each.ending:
            limit_s = 0.0
        elif each.started_at is not None:
            limit_s -= (batch.now - each.started_at).total_seconds()
        left_s = max(limit_s, 0.0) + policy.cool_down_s
        # What has no time left is nearly over, not gone.
        free_s[board] = max(left_s, np.finfo(np.float64).tiny)
    return free_s


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


def _beside(batch: Batch, board: int) -> list[int]:
    """The board, and those that must not measure while it does."""
    conflicts = batch.snapshot.conflicts
    if conflicts is None:
        return [board]
    found = conflicts[board] | conflicts[:, board]
    found[board] = True
    return np.flatnonzero(found).tolist()


def _until_s(batch: Batch, moment: datetime) -> float:
    return (moment - batch.now).total_seconds()
