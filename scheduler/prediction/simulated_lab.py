"""A lab in virtual time, in many samples at once: its boards, its users and the runs it draws.

Run times are drawn from their predictive distribution (`edgeyard.scheduler.prediction.estimates`):
what is not known of a kind on a board is drawn once a sample, the same for all its runs; what
differs from run to run, anew for each (stratified: Latin hypercube, McKay, Beckman & Conover 1979).
The time of a run that is under way is drawn given that it has not ended yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import NO_ROW, Batch, Pairs, pairs_of
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.history import RunKind
from edgeyard.scheduler.model.knowledge import Entitlement
from edgeyard.scheduler.prediction.distributions import (
    PastRunDraws,
    TimeDistributions,
    WeightedRuns,
    history_distributions,
)
from edgeyard.scheduler.prediction.estimates import (
    PastPairs,
    RunTimeParts,
    of_boards,
    student_quantiles,
)
from edgeyard.scheduler.prediction.timeline import (
    Occupancy,
    Timeline,
    bounds_left,
    elapsed_times,
    hold_times,
    run_bounds,
)

MAX_PAIRS = 1_000_000
"""Maximum simulated pairs of class and board; later benchmarks of the queue are left out."""

_UNKNOWN_SHARE = 0.25
"""Median run time without any past runs, as a share of its bound, as bounds are generous."""

_UNKNOWN_SCALE = 1.0
"""Scale of its logarithm, with which 80 % are between a fourteenth of the bound and the bound."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BoardHold:
    """The board that a benchmark waits for although another one is free.

    Attributes:
        board: Row of the board on which it is to start.
        start_s: Earliest start, seconds from now; 0: it starts as soon as the board is free.
    """

    board: int
    start_s: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class ForecastInput:
    """What a cycle found out, as far as forecasts depend on it.

    Attributes:
        batch: Of the cycle.
        pending: The benchmarks, in the batch's order.
        holders: Live attempts that have a board.
        timeline: The boards' reservations and leases.
        order: Rows of benchmarks, first in the queue to last.
        places: Shape (jobs,): place in the queue from 1, not counting benchmarks that no known
            board could ever run.
        board_of_job: Shape (jobs,): row of the board that each got now, `NO_ROW` for none.
        pairs: The pairs of class and board that are scored.
        scores: Shape (pairs,).
        fits: Returns what the filters let pass of a batch, shape (classes, boards).
        held: By row of the benchmark, what it is held back for.
        distributions: Returns for how long runs of pairs that wait hold their boards.
    """

    batch: Batch
    pending: Sequence[PendingBenchmark]
    holders: Sequence[BoardHolder]
    timeline: Timeline
    order: NDArray[np.intp]
    places: NDArray[np.intp]
    board_of_job: NDArray[np.intp]
    pairs: Pairs
    scores: NDArray[np.float32]
    fits: Callable[[Batch], NDArray[np.bool_]]
    held: Mapping[int, BoardHold] = field(default_factory=dict)
    distributions: Callable[[Batch, Pairs], TimeDistributions] = history_distributions

    @cached_property
    def row_of_id(self) -> dict[str, int]:
        """Row of each benchmark."""
        return {each.benchmark_id: row for row, each in enumerate(self.pending)}


class SimulatedLab:
    """Boards and users in virtual time, seconds from now, in each sample.

    Attributes:
        samples: Numbers of the samples, shape (samples,).
        batch: Of the cycle.
        pairs: Pairs of class and board that the filters let pass once the boards are free.
        free: Shape (samples, slots): when each time slot of a board comes free.
        ends: Shape (holders, samples): when the runs that are under way end.
    """

    def __init__(self, given: ForecastInput, samples: int, rng: np.random.Generator) -> None:
        """Draw when the boards that are taken come free."""
        self._given, self._timeline = given, given.timeline
        self.samples = np.arange(samples)
        self.batch = given.batch
        policy = given.timeline.policy
        self._cool_down_s = policy.cool_down_s
        occupancy = Occupancy(self.batch, given.holders, self._cool_down_s)
        self.pairs = pairs_of(given.fits(_with_current_reports(occupancy.when_idle())))
        self._slots = self._timeline.slots
        self._cut = bool(self._slots.cut.any())
        self.ends = _ends(self.batch, given.holders, samples, rng)
        self.free: Floats = np.maximum(
            occupancy.free_s(self.ends).T[:, self._slots.boards], self._slots.begins
        )
        self._places_of_user = _free_times_of_users(self.batch, given.holders, self.ends, samples)
        self._reserved = self._reserved_pairs()
        self._holds_s = np.zeros(0)
        if self._cut:
            self._holds_s = hold_times(self.batch, self.pairs.rows, self.pairs.boards, policy)
        self._closes_of_user: dict[str, Floats] = {}
        self._preferred: dict[int, tuple[NDArray[np.intp], NDArray[np.intp]]] = {}

    def queue(self, last: str | None) -> NDArray[np.intp]:
        """Return the rows of the benchmarks that are simulated, up to `MAX_PAIRS`.

        First those placed now, then those whose stated start is reserved, then all others that
        wait.

        Args:
            last: Stop after this benchmark, unless a gang waits up to there, which those behind it
                may delay; None: go on to the end.
        """
        given = self._given
        placed = given.board_of_job != NO_ROW
        reserved = np.isin(np.arange(len(placed)), list(self._reserved))
        order = given.order
        order = order[np.lexsort((~reserved[order], ~placed[order]))]
        held = [
            (waiting := given.pending[job].not_ready) is not None
            and waiting.reason in (WaitingReason.HELD, WaitingReason.OWN_POLICY)
            for job in order.tolist()
        ]
        order = order[~np.array(held, dtype=np.bool_)]
        if last is not None:
            found = np.flatnonzero(order == given.row_of_id[last])
            ahead = order[: int(found[0]) + 1] if len(found) else order[:0]
            if all(given.pending[job].gang_id is None or placed[job] for job in ahead.tolist()):
                order = ahead
        rows = self.batch.class_of_job[order]
        _, first = np.unique(rows, return_index=True)
        sizes = np.zeros(len(order), dtype=np.int64)
        sizes[first] = np.diff(self.pairs.starts)[rows[first]]
        return order[np.cumsum(sizes) <= MAX_PAIRS]

    def close_reserved_slots_of_others(self, jobs: NDArray[np.intp]) -> None:
        """Close to all what is reserved for a benchmark that is not simulated (it is held)."""
        simulated = set(jobs.tolist())
        for job, slot in self._timeline.reserved_slots.items():
            if job not in simulated:
                its = self._slots.of(int(self._slots.boards[slot]))
                self.free[:, slot : its.stop] = np.inf

    def choices(self, job: int, row: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return pairs of the benchmark, best first, and a time slot of the pair's board for each.

        A benchmark that was given a board now has that one alone; one whose stated start is
        reserved has the board where it is, and one that is held back the board that it waits for.
        """
        given = int(self._given.board_of_job[job])
        if given != NO_ROW:
            at = self.pairs.at(row, given)
            pairs = np.array([] if at is None else [at], dtype=np.intp)
            return pairs, self._slots.first[self.pairs.boards[pairs]]
        if job in self._reserved:
            return self._with_slots(np.array([self._reserved[job]]))
        if job in self._given.held:
            at = self.pairs.at(row, self._given.held[job].board)
            if at is not None:
                return self._with_slots(np.array([at]))
        if row not in self._preferred:
            its = self.pairs.of(row)
            pairs = np.arange(its.start, its.stop)
            place = np.argsort(self.batch.board_order, kind="stable")[self.pairs.boards[its]]
            self._preferred[row] = self._with_slots(
                pairs[np.lexsort((place, -self._scores_of(row)))]
            )
        return self._preferred[row]

    def _reserved_pairs(self) -> dict[int, int]:
        """Return by row of the benchmark the pair with the board of its stated start, if it fits.

        The cycle gives such a board to its owner whatever else is reserved there.
        """
        found = {}
        for job, board in self._timeline.stated_boards.items():
            at = self.pairs.at(int(self.batch.class_of_job[job]), board)
            if at is not None:
                found[job] = at
        return found

    def _with_slots(self, pairs: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return each pair once for each time slot of its board, and the slots."""
        boards = self.pairs.boards[pairs]
        if not self._cut:
            return pairs, boards
        first = self._slots.first
        counts = first[boards + 1] - first[boards]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(pairs, counts), np.repeat(first[boards], counts) + within

    def _scores_of(self, row: int) -> Floats:
        """Return scores of the class's pairs; 0 for boards that are not free now."""
        scores: Floats = np.zeros(self.batch.shape[1])
        scored = self._given.pairs.of(row)
        scores[self._given.pairs.boards[scored]] = self._given.scores[scored]
        its: Floats = scores[self.pairs.boards[self.pairs.of(row)]]
        return its

    def earliest_start(self, job: int, pairs: NDArray[np.intp], slots: NDArray[np.intp]) -> float:
        """Return its earliest start without any other benchmark; inf: never."""
        return float(self.starts_if_empty(job, pairs, slots).min())

    def starts_if_empty(self, job: int, pairs: NDArray[np.intp], slots: NDArray[np.intp]) -> Floats:
        """Return its start in each slot without any other benchmark.

        Shape (pairs,); inf where it may not.
        """
        begins: Floats = np.maximum(self._slots.begins[slots], self._due_s(job))
        return self.open_starts(job, pairs, slots, begins)

    def _due_s(self, job: int) -> float:
        start = self._given.pending[job].start_time
        due_s = 0.0 if start is None else max((start - self.batch.now).total_seconds(), 0.0)
        held = self._given.held.get(job)
        return due_s if held is None else max(due_s, held.start_s)

    def share_run_limit(self, job: int, other: int) -> bool:
        """Return whether two benchmarks share a limit of running benchmarks, of user or group."""
        others = self._places(other)
        return any(own is places for own in self._places(job) for places in others)

    def _places(self, job: int) -> Sequence[Floats]:
        return self._places_of_user.get(self._given.pending[job].user_id, ())

    def _ready_s(self, job: int, count: int) -> Floats:
        """Return from when on its user may start ``count`` benchmarks, shape (samples,)."""
        ready_s: Floats = np.full(len(self.samples), self._due_s(job))
        for places in self._places(job):
            if count > places.shape[1]:
                return np.full(len(self.samples), np.inf)
            ready_s = np.maximum(ready_s, np.partition(places, count - 1)[:, count - 1])
        return ready_s

    def starts(
        self, job: int, pairs: NDArray[np.intp], slots: NDArray[np.intp], count: int = 1
    ) -> Floats:
        """Return its possible start in each slot.

        Args:
            job: Row of the benchmark.
            pairs: Shape (pairs,): its pairs of class and board.
            slots: Shape (pairs,): a slot of each pair's board.
            count: How many benchmarks of its user start at that time.

        Returns:
            Shape (samples, pairs), seconds from now; inf where it may not.
        """
        start: Floats = np.maximum(self.free[:, slots], self._ready_s(job, count)[:, None])
        return self.open_starts(job, pairs, slots, start)

    def open_starts(
        self, job: int, pairs: NDArray[np.intp], slots: NDArray[np.intp], start: Floats
    ) -> Floats:
        """Return ``start``, shape (..., pairs), with inf where it may not start then."""
        if not self._cut or self._given.board_of_job[job] != NO_ROW:
            return start
        closes = self._closing_times(job)[slots]
        fits = (start + self._holds_s[pairs] <= closes) & (start < self._slots.ends[slots])
        return np.where(fits, start, np.inf)

    def _closing_times(self, job: int) -> Floats:
        """Return when its run must be over, by the slot in which it starts, shape (slots,)."""
        user = self._given.pending[job].user_id
        leased = self._slots.leased_to_others
        if user not in self._closes_of_user:
            closes = self._timeline.closing_times(user)
            self._closes_of_user[user] = np.where(leased(user), -np.inf, closes)
        closes = self._closes_of_user[user]
        if job not in self._reserved:
            return closes
        # the cycle applies leases alone to the owner of a reservation there
        its = self._slots.of(int(self.pairs.boards[self._reserved[job]]))
        of_leases = self._slots.closing_times(user, 0.0, reservations=False)
        own = closes.copy()
        own[its] = np.where(leased(user), -np.inf, of_leases)[its]
        return own

    def hold(self, job: int, slots: NDArray[np.intp], ends: Floats) -> None:
        """Occupy one slot per sample until ``ends``; later slots are not free before.

        Args:
            job: Row of the benchmark.
            slots: Shape (samples,).
            ends: Shape (samples,), seconds from now; inf where it never starts.
        """
        known = np.flatnonzero(np.isfinite(ends))
        slots, until = slots[known], ends[known] + self._cool_down_s
        begun, begun_until, boards = known, until, self._slots.boards[slots]
        self.free[known, slots] = until
        last = self._slots.first[boards + 1] - 1
        while self._cut and len(known := known[later := slots < last]):
            slots, last, until = slots[later] + 1, last[later], until[later]
            self.free[known, slots] = np.maximum(self.free[known, slots], until)
        if self.batch.snapshot.conflicts is not None:
            self._hold_conflicting(begun, begun_until, boards)
        started = np.isfinite(ends)
        for places in self._places(job):
            places[self.samples[started], places.argmin(axis=1)[started]] = ends[started]

    def block_until(
        self, slots: NDArray[np.intp], until: Floats, samples: NDArray[np.bool_]
    ) -> None:
        """Block slots until a time.

        Args:
            slots: Those that may come free sooner.
            until: Shape (samples,), seconds from now.
            samples: Shape (samples,): where this applies.
        """
        cells = np.ix_(samples, slots)
        self.free[cells] = np.maximum(self.free[cells], until[samples, None])

    def _hold_conflicting(
        self, known: NDArray[np.intp], until: Floats, boards: NDArray[np.intp]
    ) -> None:
        """Keep boards that share cores with the one that is held from being free sooner.

        Args:
            known: Samples in which it runs.
            until: Shape (known,): when it ends there.
            boards: Shape (known,): the board that it runs on there.
        """
        for board in np.unique(boards).tolist():
            conflicting = self._conflicting_slots(board)
            if len(conflicting):
                here = boards == board
                cells = np.ix_(known[here], conflicting)
                self.free[cells] = np.maximum(self.free[cells], until[here, None])

    def _conflicting_slots(self, board: int) -> NDArray[np.intp]:
        """Return the slots of the boards that must not run next to this one."""
        conflicts = self.batch.snapshot.conflicts
        if conflicts is None:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(conflicts[board][self._slots.boards])


class RunSampler:
    """Draws for how long runs of pairs of class and board hold their boards.

    Attributes:
        known: Shape (pairs,): whether past runs say something of the pair.
    """

    def __init__(
        self,
        batch: Batch,
        pairs: Pairs,
        distributions: TimeDistributions,
        samples: int,
        rng: np.random.Generator,
    ) -> None:
        self._batch = batch
        self._bounds = batch.time_limits_s[pairs.rows]
        self.known = ~np.isnan(distributions.run.location)
        self._distribution = _with_default(distributions.run, self._bounds)
        self._loading = distributions.loading
        self._past = distributions.past
        self._loads = bool(np.isfinite(distributions.loading.location).any())
        self._rng = rng
        self._samples = samples
        self._shared: dict[str, Floats] = {}
        self._errors: dict[tuple[int, bool], Floats] = {}

    def draw(self, job: int, taken: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Draw seconds of loading and of the run on pair ``taken[s]`` in sample s.

        Shape (samples,) each. Where past runs state no times of loading, none are expected.
        """
        row = int(self._batch.class_of_job[job])
        drawn = self._draw(self._distribution, row, taken)
        if self._past is not None:
            user = self._batch.job_users[job]
            if user not in self._shared:
                self._shared[user] = self._rng.permutation(_student_table(200, self._samples))
            alone = self._rng.permutation(_student_table(200, self._samples))
            past = self._past.draw(taken, user, alone, self._shared[user])
            drawn = np.where(np.isnan(past), drawn, np.exp(past))
        drawn = np.minimum(drawn, self._bounds[taken])
        loading = np.zeros(self._samples)
        if self._loads:
            loading = np.nan_to_num(self._draw(self._loading, row, taken))
        return loading, np.asarray(drawn, dtype=np.float64)

    def _draw(self, distribution: RunTimeParts, row: int, taken: NDArray[np.intp]) -> Floats:
        freedom = int(np.nan_to_num(distribution.freedom[taken[0]]))
        noise = self._rng.permutation(_student_table(freedom, self._samples)) * np.sqrt(
            distribution.noise[taken]
        )
        key = row, distribution is self._loading
        if key not in self._errors:
            # one draw a sample: waiting times add up what is not known of a kind
            self._errors[key] = self._rng.permutation(_student_table(200, self._samples))
        error = self._errors[key] * np.sqrt(distribution.error[taken])
        return np.asarray(np.exp(distribution.location[taken] + noise + error))


@lru_cache(maxsize=1024)
def _student_table(freedom: int, samples: int) -> Floats:
    """Return quantiles of Student's t at the middles of equally likely strata, shape (samples,)."""
    from scipy.special import stdtrit  # slow to import, and not needed elsewhere

    strata = (np.arange(samples) + 0.5) / samples
    table = np.asarray(stdtrit(min(max(freedom, 1), 200), strata), dtype=np.float64)
    table.flags.writeable = False
    return table


def _with_default(distribution: RunTimeParts, bounds: Floats) -> RunTimeParts:
    """Return the distribution, with a wide one by the bound where it is unknown."""
    unknown = np.isnan(distribution.location)
    if not unknown.any():
        return distribution
    return RunTimeParts(
        location=np.where(unknown, np.log(bounds * _UNKNOWN_SHARE), distribution.location),
        noise=np.where(unknown, _UNKNOWN_SCALE**2, distribution.noise),
        error=np.where(unknown, 0.0, distribution.error),
        freedom=np.where(unknown, 200.0, distribution.freedom),
    )


def _with_current_reports(batch: Batch) -> Batch:
    """Return the batch with a twin of age 0, and without progress on idle boards.

    A forecast assumes that the cluster answers again and that its last report holds until then.
    """
    snapshot = batch.snapshot
    progress = np.where(snapshot.busy, snapshot.progress, np.nan)
    return replace(batch, snapshot=replace(snapshot, age_s=0.0, progress=progress))


def _free_times_of_users(
    batch: Batch, holders: Sequence[BoardHolder], ends: Floats, samples: int
) -> dict[str, list[Floats]]:
    """Return when each place of a user, and of their group, comes free, by user.

    Arrays of shape (samples, max_running); members of a group have the same one of the group.
    Users and groups without a bound on how many of their benchmarks run at once have none.
    """

    def places_of(who: Entitlement) -> list[Floats]:
        return [np.zeros((samples, who.max_running))] if who.max_running else []

    of_group = {name: places_of(each) for name, each in batch.knowledge.groups.items()}
    places = {
        user: places_of(each) + of_group.get(each.group_id or "", [])
        for user, each in batch.knowledge.entitlements.items()
    }
    for holder, end in zip(holders, ends, strict=True):
        for own in places.get(holder.user_id, ()):
            own[np.arange(samples), own.argmin(axis=1)] = end
    return places


def expected_left_s(batch: Batch, holders: Sequence[BoardHolder]) -> Floats:
    """Return the median of how much longer each run lasts, seconds, shape (holders,)."""
    nothing = np.zeros(0, dtype=np.intp)
    return expected_times(batch, nothing, nothing, holders)[1]


def left_times(batch: Batch, holders: Sequence[BoardHolder]) -> tuple[Floats, Floats]:
    """Return how much longer each run lasts, and the standard error of that, shape (holders,).

    The median, and half of what lies between the quantiles one standard error to both sides.
    """
    if not holders:
        return np.empty(0), np.empty(0)
    nothing = np.zeros(0, dtype=np.intp)
    _, distribution = _predicted(batch, nothing, nothing, holders)
    left = _left_s(batch, holders, distribution, np.tile((0.16, 0.5, 0.84), (len(holders), 1)))
    return left[:, 1], (left[:, 2] - left[:, 0]) / 2.0


def hold_times_left(batch: Batch, holders: Sequence[BoardHolder], policy: Policy) -> Floats:
    """Return within which time each run under way counts as over, seconds, shape (holders,).

    As `edgeyard.scheduler.prediction.timeline.hold_times` when it started. So one that takes longer
    counts as nearly over, and the reservation before which it was placed stays on its board.
    """
    left_s = bounds_left(batch, holders)
    if policy.hold_quantile >= 1.0 or not holders:
        return left_s
    nothing = np.zeros(0, dtype=np.intp)
    _, predicted = _predicted(batch, nothing, nothing, holders)
    scale = np.sqrt(predicted.noise + predicted.error)
    run_s = np.exp(
        predicted.location + scale * student_quantiles(predicted.freedom, policy.hold_quantile)
    )
    over_s = np.maximum(run_s - elapsed_times(batch, holders), np.finfo(np.float64).tiny)
    return np.asarray(np.fmin(over_s, left_s), dtype=np.float64)


def expected_run_times(batch: Batch, rows: NDArray[np.intp], boards: NDArray[np.intp]) -> Floats:
    """Return the median run time of each pair, seconds, shape (pairs,); never NaN.

    Where nothing is known of a run, its bound says what to expect, as in forecasts.
    """
    return expected_times(batch, rows, boards, ())[0]


def expected_times(
    batch: Batch,
    rows: NDArray[np.intp],
    boards: NDArray[np.intp],
    holders: Sequence[BoardHolder],
) -> tuple[Floats, Floats]:
    """Return what `expected_run_times` and `expected_left_s` return, predicted at once."""
    pairs, running = _predicted(batch, rows, boards, holders)
    bounds = batch.time_limits_s[rows]
    run_s = np.minimum(np.exp(_with_default(pairs, bounds).location), bounds)
    left_s = _left_s(batch, holders, running, np.full((len(holders), 1), 0.5))[:, 0]
    return np.asarray(run_s, dtype=np.float64), left_s


def _ends(
    batch: Batch, holders: Sequence[BoardHolder], samples: int, rng: np.random.Generator
) -> Floats:
    """Draw when each run ends that has not ended yet, shape (holders, samples)."""
    if not holders:
        return np.empty((0, samples))
    nothing = np.zeros(0, dtype=np.intp)
    pairs, there = _with_holders(batch, nothing, nothing, holders)
    distribution = _at(pairs.run_time_parts(), np.arange(len(there)), there, len(holders))
    draws = PastRunDraws(pairs)
    past = {
        number: draws.of(pair, holders[number].user_id)
        for pair, number in enumerate(there.tolist())
    }
    strata = rng.permuted(np.tile((np.arange(samples) + 0.5) / samples, (len(holders), 1)), axis=1)
    return _left_s(batch, holders, distribution, strata, past)


def _predicted(
    batch: Batch,
    rows: NDArray[np.intp],
    boards: NDArray[np.intp],
    holders: Sequence[BoardHolder],
) -> tuple[RunTimeParts, RunTimeParts]:
    """Return the distributions of run times of pairs, and those of the runs that are under way."""
    pairs, there = _with_holders(batch, rows, boards, holders)
    found, count = pairs.run_time_parts(), len(rows)
    every = np.arange(count)
    running = _at(found, np.arange(count, len(pairs.rows)), there, len(holders))
    return _at(found, every, every, count), running


def _with_holders(
    batch: Batch,
    rows: NDArray[np.intp],
    boards: NDArray[np.intp],
    holders: Sequence[BoardHolder],
) -> tuple[PastPairs, NDArray[np.intp]]:
    """Return pairs and behind them those of runs that are under way, and which runs these are."""
    row_of_uid = batch.row_of_uid
    rows_of_kind: dict[RunKind, int] = {}
    there, theirs, at = [], [], []
    for number, each in enumerate(holders):
        board = row_of_uid.get(each.target_uid)
        if each.kind is not None and board is not None:
            there.append(number)
            theirs.append(rows_of_kind.setdefault(each.kind, len(rows_of_kind)))
            at.append(board)
    if not there:
        return PastPairs(batch, rows, boards), np.zeros(0, dtype=np.intp)
    both = replace(
        batch,
        kinds=(*batch.kinds, *rows_of_kind),
        families=(*batch.families, *("" for _ in rows_of_kind)),
    )
    of_boards(batch, both)
    pairs = PastPairs(
        both,
        np.concatenate((rows, np.array(theirs, dtype=np.intp) + batch.shape[0])),
        np.concatenate((boards, np.array(at, dtype=np.intp))),
    )
    return pairs, np.array(there, dtype=np.intp)


def _at(
    found: RunTimeParts, pairs: NDArray[np.intp], places: NDArray[np.intp], count: int
) -> RunTimeParts:
    """Return distributions of pairs at their places among ``count``, NaN at others."""

    def placed(values: Floats) -> Floats:
        whole = np.full(count, np.nan)
        whole[places] = values[pairs]
        return whole

    return RunTimeParts(
        location=placed(found.location),
        noise=placed(found.noise),
        error=placed(found.error),
        freedom=placed(found.freedom),
    )


def _left_s(
    batch: Batch,
    holders: Sequence[BoardHolder],
    predicted: RunTimeParts,
    strata: Floats,
    past: Mapping[int, tuple[WeightedRuns, float]] | None = None,
) -> Floats:
    """Return quantiles of how much longer runs last that have not ended yet, seconds.

    Args:
        batch: Of the cycle.
        holders: The runs.
        predicted: Distributions of their run times; NaN where nothing is known.
        strata: The quantiles, shape (holders, samples).
        past: By number of the holder, past runs that its run is like; None: by ``predicted`` alone.
    """
    from scipy.special import stdtr, stdtrit

    bounds, elapsed = run_bounds(batch, holders), elapsed_times(batch, holders)
    distribution = _with_default(predicted, bounds)
    scale = np.sqrt(distribution.noise + distribution.error)
    with np.errstate(divide="ignore"):
        passed = stdtr(distribution.freedom, (np.log(elapsed) - distribution.location) / scale)
    redrawn = np.full(strata.shape, np.nan)
    for number, (runs, offset) in (past or {}).items():
        with np.errstate(divide="ignore"):
            longer = runs.beyond(np.log(elapsed[number]) - offset)
        modelled = (1.0 - runs.weight) * (1.0 - passed[number])
        levels = strata[number] * (longer.weight + modelled)
        like_past = levels < longer.weight
        redrawn[number, like_past] = longer.at(levels[like_past]) + offset
        if modelled > 0.0:
            strata[number, ~like_past] = (levels[~like_past] - longer.weight) / modelled
    drawn = passed[:, None] + (1.0 - passed[:, None]) * strata
    total = np.exp(
        distribution.location[:, None]
        + scale[:, None] * stdtrit(distribution.freedom[:, None], drawn)
    )
    total = np.where(np.isnan(redrawn), total, np.exp(redrawn))
    total = np.minimum(np.nan_to_num(total, nan=np.inf), bounds[:, None])
    left: Floats = np.maximum(total - elapsed[:, None], 0.0)
    left[np.array([each.ending for each in holders], dtype=np.bool_)] = 0.0
    return left
