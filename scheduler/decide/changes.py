"""Find what would let a benchmark start sooner: decide a cycle again with one thing changed.

Pure, and within a second: of queue and boards only those families are decided again that compete
with the one in question, filters are asked, and scorers repeat their answers of the cycle. A pair
of which they were not asked then counts as neutral: no programme is solved for this, and no other
machine is asked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.cycle import decide
from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.decide.preempt import with_latest_progress
from edgeyard.scheduler.framework.batch import NO_ROW, Batch, Pairs
from edgeyard.scheduler.framework.protocols import Answer, Proposal
from edgeyard.scheduler.framework.registry import WeightedScorer
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.decision import BoardHolder, CycleInput, PendingBenchmark, Snapshot
from edgeyard.scheduler.model.forecast import Forecast
from edgeyard.scheduler.model.knowledge import Entitlement
from edgeyard.scheduler.model.strict_json import time_to_json
from edgeyard.scheduler.prediction.calibration import AS_DRAWN, IntervalScales
from edgeyard.scheduler.prediction.estimates import run_times
from edgeyard.scheduler.prediction.forecast import forecast_of

HIGHEST_PRIORITY = 10
MAX_THRESHOLD = 100
"""Highest ``job_completion_threshold``, percent of another run's progress."""

_SAMPLES = 32
_MAX_CHANGES = 3
_MIN_GAIN_S = 1.0
_MAX_VALUES = 3  # values that are tried of one thing: the nearest ones
_BOUND_QUANTILE = 0.9  # quantile of the run time that a longer bound is to allow


class ChangeKind(StrEnum):
    """Kinds of changes, the cheapest first; named as in the job description."""

    PRIORITY = "user_priority"
    THRESHOLD = "job_completion_threshold"
    START = "start_time"
    DEADLINE = "deadline"
    TIME = "user_time"
    BUDGET = "user_budget"
    BOARD = "target_uid"
    CONSTRAINT = "constraints"
    STORAGE = "storage"
    RAM = "ram"
    FAMILY = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of what a user may request.

    Attributes:
        priority: Highest ``user_priority``.
        budget: Highest ``user_budget``; None: any.
    """

    priority: int = HIGHEST_PRIORITY
    budget: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change and what it gains.

    Attributes:
        kind: The field of the job description.
        value: What it would be, as it is written there; None: left out. Of constraints, the one
            that is left out.
        start: Expected start with it.
        gain_s: By how much sooner that is; None where the benchmark has no expected start as it is.
    """

    kind: ChangeKind
    value: str | int | None
    start: datetime
    gain_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes that help, and what was not tried.

    Attributes:
        decided_at: Of the cycle that was decided again.
        start: Expected start as it is; None: not in sight.
        changes: The cheapest that gain something, at most three.
        deadline: Its own.
        reachable_deadline: The nearest that is met nine times in ten; None where its own is, or
            where none is in sight.
        untried: What there was no time to try.
    """

    decided_at: datetime
    start: datetime | None
    changes: tuple[Change, ...]
    deadline: datetime | None
    reachable_deadline: datetime | None
    untried: tuple[ChangeKind, ...] = ()


@dataclass(frozen=True, slots=True)
class _ExpectedTimes:
    placed: bool
    start: datetime
    finish_high: datetime


def what_would_change(
    then: Decisions,
    benchmark_id: str,
    *,
    bounds: Bounds | None = None,
    now: datetime | None = None,
    forecast: Forecast | None = None,
    interval_scales: IntervalScales = AS_DRAWN,
    left_s: Callable[[], float] | None = None,
) -> Changes:
    """Try what a user could change.

    Args:
        then: A cycle with the benchmark among its pending ones.
        bounds: Of its user; None: those of everybody.
        now: No start before it is reported; None: the cycle's own time.
        forecast: The newest forecast of the benchmark, from which gains are counted; None: the
            cycle's own.
        interval_scales: As for `edgeyard.scheduler.prediction.forecast.forecasts`.
        left_s: Returns how much time is left; what there was no time to try is reported. None: any.

    Raises:
        KeyError: It is not pending in that cycle.
    """
    bounds, now = bounds or Bounds(), max(now or then.now, then.now)
    own = then.pending[then.row_of_id[benchmark_id]]
    rerun = _CycleRerun(then, own, interval_scales)
    base = rerun.expected(own)
    aligned = _AlignedForecast(own, base, now, forecast)
    reachable = None if aligned.in_time(base) else _nearest_deadline(own, base, rerun, aligned)
    found: list[Change] = []
    untried: list[ChangeKind] = []
    budget = _TimeBudget(left_s)
    for kind, candidates in _candidates(then, own, bounds, reachable):
        if len(found) == _MAX_CHANGES:
            break
        if not budget.has_time:
            untried.append(kind)
            continue
        change = _first_gain(kind, candidates, rerun, aligned)
        budget.update()
        if change is not None:
            found.append(change)
    return Changes(
        decided_at=then.now,
        start=aligned.start,
        changes=tuple(found),
        deadline=own.deadline,
        reachable_deadline=reachable,
        untried=tuple(untried),
    )


class _TimeBudget:
    """Time budget of the tries."""

    def __init__(self, left_s: Callable[[], float] | None) -> None:
        self._clock = left_s or (lambda: math.inf)
        self._left_s, self._max_s = self._clock(), 0.0

    @property
    def has_time(self) -> bool:
        """Whether there is time for another try, which may take as long as the longest so far."""
        return self._left_s > self._max_s

    def update(self) -> None:
        """Record the end of a try."""
        before_s, self._left_s = self._left_s, self._clock()
        if math.isfinite(before_s):
            self._max_s = max(self._max_s, before_s - self._left_s)


class _AlignedForecast:
    """Expected moments in line with the newest forecast, and none that has passed."""

    def __init__(
        self,
        own: PendingBenchmark,
        base: _ExpectedTimes | None,
        now: datetime,
        forecast: Forecast | None,
    ) -> None:
        self._own, self._now = own, now
        self._forecast = None if forecast is None or forecast.place is None else forecast
        self._later = self._ends_later = timedelta()
        if base is not None and self._forecast is not None and not base.placed:
            self._later = self._forecast.start - base.start
            self._ends_later = self._forecast.finish_high - base.finish_high
        self.start: datetime | None = None
        if self._forecast is not None:
            self.start = max(self._forecast.start, now)
        elif base is not None:
            self.start = self.start_of(base, own)

    def start_of(self, expected: _ExpectedTimes, changed: PendingBenchmark) -> datetime:
        """Return when the changed benchmark starts."""
        if expected.placed:
            return self._now
        later = self._later if changed.family == self._own.family else timedelta()
        return max(expected.start + later, self._now)

    def in_time(self, base: _ExpectedTimes | None) -> bool:
        """Return whether its deadline is met nine times in ten, or it has none."""
        deadline = self._own.deadline
        if deadline is None:
            return True
        if self._forecast is not None:
            return self._forecast.finish_high <= deadline
        return base is not None and base.finish_high <= deadline

    def end_of(self, expected: _ExpectedTimes) -> datetime:
        """Return by when one of the same family has ended, nine times in ten."""
        return max(expected.finish_high + self._ends_later, self._now)


def _nearest_deadline(
    own: PendingBenchmark,
    base: _ExpectedTimes | None,
    rerun: _CycleRerun,
    aligned: _AlignedForecast,
) -> datetime | None:
    """Return the nearest deadline, to the minute, that is met nine times in ten; None: none.

    A later one may cost it its place in the queue: so it is looked for step by step.
    """
    found = base
    for _ in range(_MAX_VALUES):
        if found is None:
            break
        deadline = _next_minute(aligned.end_of(found))
        found = rerun.expected(replace(own, deadline=deadline))
        if found is not None and aligned.end_of(found) <= deadline:
            return deadline
    free = rerun.expected(replace(own, deadline=None))
    return None if free is None else _next_minute(aligned.end_of(free))


_Candidate = tuple[str | int | None, PendingBenchmark]


def _candidates(
    then: Decisions, own: PendingBenchmark, bounds: Bounds, reachable: datetime | None
) -> Iterator[tuple[ChangeKind, Sequence[_Candidate]]]:
    """Yield the values to try by kind, each kind's smallest change first."""
    raised = range(own.user_priority + 1, bounds.priority + 1)
    if raised:
        yield ChangeKind.PRIORITY, [(value, replace(own, user_priority=value)) for value in raised]
    thresholds = _higher_thresholds(then, own)
    if thresholds:
        yield (
            ChangeKind.THRESHOLD,
            [(value, replace(own, job_completion_threshold=value)) for value in thresholds],
        )
    if own.start_time is not None and own.start_time > then.now:
        yield ChangeKind.START, [(None, replace(own, start_time=None))]
    if reachable is not None:
        yield ChangeKind.DEADLINE, [(time_to_json(reachable), replace(own, deadline=reachable))]
    row = int(then.batch.class_of_job[then.row_of_id[own.benchmark_id]])
    refusing = _refused_boards(then, own, row)
    times = _other_bounds(then, own, row, refusing)
    if times:
        yield ChangeKind.TIME, [(time_s, replace(own, user_time_s=time_s)) for time_s in times]
    if own.budget is not None and "budget" in refusing:
        rate = then.batch.knowledge.rate(own.family, then.batch.now)
        cost = _needed_bound_s(then, row, refusing["budget"]) * rate
        if math.isfinite(cost) and (bounds.budget is None or cost <= bounds.budget):
            budget = max(math.ceil(cost), math.floor(own.budget) + 1)
            yield ChangeKind.BUDGET, [(budget, replace(own, budget=float(budget)))]
    if own.target_uid is not None:
        yield ChangeKind.BOARD, [(None, replace(own, target_uid=None))]
    if own.constraints and "constraints" in refusing:
        yield (
            ChangeKind.CONSTRAINT,
            [
                (
                    f"{each.attribute} {each.operator} {each.value}".rstrip(),
                    replace(
                        own, constraints=own.constraints[:place] + own.constraints[place + 1 :]
                    ),
                )
                for place, each in enumerate(own.constraints[:_MAX_VALUES])
            ],
        )
    snapshot = then.snapshot
    in_family = np.equal(then.batch.board_families, own.family)
    for kind, column, required in (
        (ChangeKind.STORAGE, snapshot.storage_bytes, own.storage_bytes),
        (ChangeKind.RAM, snapshot.ram_bytes, own.ram_bytes),
    ):
        field = "ram_bytes" if kind is ChangeKind.RAM else "storage_bytes"
        smaller = np.unique(column[in_family & (column < required)])[::-1][:_MAX_VALUES].tolist()
        if smaller:
            yield kind, [(size, replace(own, **{field: size})) for size in smaller]
    nearest = _other_families(then, own)
    if nearest:
        yield (
            ChangeKind.FAMILY,
            [(family, replace(own, family=family, target_uid=None)) for family in nearest],
        )


def _higher_thresholds(then: Decisions, own: PendingBenchmark) -> list[int]:
    """Return the thresholds from which on it could preempt another run, the lowest first.

    They are just above the progress of a run on a board that it could use.
    """
    row = int(then.batch.class_of_job[then.row_of_id[own.benchmark_id]])
    possible, row_of_uid = then.feasibility.possible[row], then.batch.row_of_uid
    found = set()
    for each in then.holders:
        board = row_of_uid.get(each.target_uid)
        if board is None or not possible[board] or not each.preemptible or each.ending:
            continue
        holder = with_latest_progress(then.batch, board, each)
        if holder.progress is not None:
            found.add(math.floor(holder.progress) + 1)
    known = own.job_completion_threshold or 0
    return sorted(value for value in found if known < value <= MAX_THRESHOLD)[:_MAX_VALUES]


def _refused_boards(
    then: Decisions, own: PendingBenchmark, row: int
) -> Mapping[str, NDArray[np.intp]]:
    """Return the boards of its family by the filter that refuses them."""
    boards = np.flatnonzero(np.equal(then.batch.board_families, own.family))
    codes = then.feasibility.codes[row, boards]
    found: dict[str, NDArray[np.intp]] = {}
    for code in np.unique(codes[codes != 0]).tolist():
        plugin = then.feasibility.reason(code).plugin
        if plugin is not None:
            earlier = found.get(plugin.name, np.zeros(0, dtype=np.intp))
            found[plugin.name] = np.concatenate((earlier, boards[codes == code]))
    return found


def _other_bounds(
    then: Decisions, own: PendingBenchmark, row: int, refusing: Mapping[str, NDArray[np.intp]]
) -> list[int]:
    """Return other bounds on its run time: longer where runs would be stopped, otherwise shorter.

    A shorter one reserves fewer credits, and has ended before a reservation or a lease begins.
    """
    if own.user_time_s is not None and "user_time" in refusing:
        longer = _needed_bound_s(then, row, refusing["user_time"])
        if math.isfinite(longer):
            return [max(math.ceil(longer), math.floor(own.user_time_s) + 1)]
    withheld = then.assignment.withheld.get(then.row_of_id[own.benchmark_id])
    if withheld is None or withheld.reason not in (WaitingReason.BUDGET, WaitingReason.RESERVED):
        return []
    boards = np.flatnonzero(then.feasibility.possible[row])
    shorter = _needed_bound_s(then, row, boards)
    return [math.ceil(shorter)] if shorter + 1.0 < then.batch.time_limits_s[row] else []


def _needed_bound_s(then: Decisions, row: int, boards: NDArray[np.intp]) -> float:
    """Return the time in which nine of ten runs end on the quickest board; NaN: unknown."""
    rows = np.full(len(boards), row, dtype=np.intp)
    if not len(boards) or not len(then.batch.knowledge.runs):
        return math.nan
    return float(np.fmin.reduce(run_times(then.batch, rows, boards, _BOUND_QUANTILE)))


def _other_families(then: Decisions, own: PendingBenchmark) -> list[str]:
    """Return the families whose boards could run it, those with the most free boards first."""
    snapshot = then.snapshot
    supports = snapshot.offers.get((own.engine, own.benchmark_type.value))
    if supports is None:
        return []
    of_board = then.batch.board_families
    free = Counter(of_board[supports & ~snapshot.busy & snapshot.online].tolist())
    others = set(of_board[supports].tolist()) - {own.family}
    return sorted(others, key=lambda family: (-free[family], family))[:_MAX_VALUES]


def _first_gain(
    kind: ChangeKind,
    candidates: Sequence[_Candidate],
    rerun: _CycleRerun,
    aligned: _AlignedForecast,
) -> Change | None:
    if kind is not ChangeKind.PRIORITY:
        found = (_change(kind, candidate, rerun, aligned) for candidate in candidates)
        return next((change for change in found if change is not None), None)
    # Mostly not even the highest helps: asked first. What helps, all above it do too.
    best = _change(kind, candidates[-1], rerun, aligned)
    low, high = 0, len(candidates) - 1
    while best is not None and low < high:
        middle = (low + high) // 2
        change = _change(kind, candidates[middle], rerun, aligned)
        if change is None:
            low = middle + 1
        else:
            best, high = change, middle
    return best


def _change(
    kind: ChangeKind, candidate: _Candidate, rerun: _CycleRerun, aligned: _AlignedForecast
) -> Change | None:
    value, changed = candidate
    found = rerun.expected(changed)
    if found is None:
        return None
    start = aligned.start_of(found, changed)
    gain_s = None if aligned.start is None else (aligned.start - start).total_seconds()
    if gain_s is not None and gain_s < _MIN_GAIN_S and kind is not ChangeKind.DEADLINE:
        return None
    return Change(kind=kind, value=value, start=start, gain_s=gain_s)


def _next_minute(when: datetime) -> datetime:
    return when.replace(second=0, microsecond=0) + timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """The part of a cycle that competes with one family.

    Attributes:
        boards: Rows of its boards.
        jobs: Rows of its benchmarks, but for the one in question.
        given: A cycle's input without that one.
    """

    boards: NDArray[np.intp]
    jobs: NDArray[np.intp]
    given: CycleInput


class _CycleRerun:
    """Decides a cycle again with one benchmark changed."""

    def __init__(
        self, then: Decisions, own: PendingBenchmark, interval_scales: IntervalScales
    ) -> None:
        self._then = then
        self._interval_scales = interval_scales
        self._own = then.row_of_id[own.benchmark_id]
        self._parts: dict[frozenset[str], _Part] = {}
        self._known: dict[PendingBenchmark, _ExpectedTimes | None] = {}
        queued = int(np.count_nonzero(then.ready))
        # The part may be as short as a queue that gets its boards jointly: it still is no such.
        jointly = then.policy.max_joint_jobs if queued <= then.policy.max_joint_jobs else 0
        self._policy = replace(then.policy, max_joint_jobs=jointly)

    def expected(self, changed: PendingBenchmark) -> _ExpectedTimes | None:
        """Return when the changed benchmark starts and ends; None: not in sight."""
        if changed not in self._known:
            self._known[changed] = self._expected(changed)
        return self._known[changed]

    def _expected(self, changed: PendingBenchmark) -> _ExpectedTimes | None:
        then, part = self._then, self._part(changed.family)
        classes = np.append(then.batch.class_of_job[part.jobs], then.batch.class_of_job[self._own])
        plugins = replace(
            then.plugins,
            scorers=tuple(
                WeightedScorer(
                    scorer=_RecordedScorer(each, self._cells, part.boards, classes),
                    weight=each.weight,
                )
                for each in then.scores.proposals
            ),
            fallback=None,
            evaluator=None,
        )
        given = replace(part.given, pending=[*part.given.pending, changed])
        result = decide(given, self._policy, plugins)
        found = forecast_of(
            result.decided.forecast_input,
            changed.benchmark_id,
            samples=_SAMPLES,
            interval_scales=self._interval_scales,
        )
        if found is None:
            return None
        placed = result.decided.placed(len(part.jobs)) or any(
            each.benchmark_id == changed.benchmark_id for each in result.preemptions
        )
        if not placed:
            return _ExpectedTimes(False, found.start, found.finish_high)
        sooner = found.start - given.now  # forecasts expect no preemption
        return _ExpectedTimes(True, given.now, found.finish_high - sooner)

    @cached_property
    def _cells(self) -> _Cells:
        """The pairs of the cycle's scores."""
        pairs, width = self._then.scores.pairs, self._then.batch.shape[1]
        return _Cells(pairs.rows * width + pairs.boards, width)

    def _part(self, family: str) -> _Part:
        families = self._competing(family)
        if families not in self._parts:
            self._parts[families] = self._cut(families)
        return self._parts[families]

    def _competing(self, family: str) -> frozenset[str]:
        """Return the families that compete for its boards, or for their cores; "" for all."""
        then = self._then
        if all(each.name != "family" for each in then.plugins.filters):
            return frozenset(("",))
        found, conflicts = {family}, then.snapshot.conflicts
        while conflicts is not None:
            its = np.isin(then.batch.board_families, sorted(found))
            more = set(then.batch.board_families[conflicts[its].any(axis=0)].tolist())
            if more <= found:
                break
            found |= more
        return frozenset(found)

    def _cut(self, families: frozenset[str]) -> _Part:
        then = self._then
        if "" in families:
            boards = np.arange(then.batch.shape[1])
            kept = np.ones(len(then.pending), dtype=np.bool_)
        else:
            boards = np.flatnonzero(np.isin(then.batch.board_families, sorted(families)))
            kept = np.isin(self._job_families, sorted(families))
        kept[self._own] = False
        jobs = np.flatnonzero(kept)
        pending = [then.pending[job] for job in jobs.tolist()]
        users = {each.user_id for each in pending} | {then.pending[self._own].user_id}
        known = then.batch.knowledge
        entitlements, groups = self._entitlements(users, ~kept)
        uids = {then.snapshot.uids[board] for board in boards.tolist()}
        bounded = {
            user
            for user, each in entitlements.items()
            if each.max_running is not None or each.group_id in groups
        }

        def counts(holder: BoardHolder) -> bool:
            return holder.target_uid in uids or holder.user_id in bounded

        given = CycleInput(
            snapshot=_rows_of(then.snapshot, boards),
            pending=pending,
            now=then.now,
            holders=[each for each in then.holders if counts(each)],
            knowledge=replace(
                known, entitlements=entitlements, groups=groups, weights={}, suspended={}
            ),
            seed=then.batch.seed,
        )
        return _Part(boards=boards, jobs=jobs, given=given)

    @cached_property
    def _job_families(self) -> NDArray[np.str_]:
        return np.array([each.family for each in self._then.pending], dtype=np.str_)

    def _entitlements(
        self, users: set[str], left_out: NDArray[np.bool_]
    ) -> tuple[Mapping[str, Entitlement], Mapping[str, Entitlement]]:
        """Return what users, and groups, may have without what the cycle gave to those left out."""
        then, known = self._then, self._then.batch.knowledge
        groups = dict(known.groups)
        found = {user: known.entitlements[user] for user in users & known.entitlements.keys()}
        rows, limits_s = then.batch.class_of_job, then.batch.time_limits_s
        given = left_out & (then.assignment.board_of_job != NO_ROW)
        given[self._own] = False
        for job in np.flatnonzero(given).tolist():
            each = then.pending[job]
            entitlement = known.entitlements.get(each.user_id)
            if entitlement is None or each.probe:
                continue
            cost = known.rate(each.family, then.batch.now) * float(limits_s[rows[job]])
            for of, name in ((found, each.user_id), (groups, entitlement.group_id or "")):
                if name in of:
                    of[name] = _less(of[name], cost)
        return found, groups


def _less(before: Entitlement, cost: float) -> Entitlement:
    """Return what is left after one more benchmark has a board."""
    left = before.credits_left
    return replace(
        before, running=before.running + 1, credits_left=None if left is None else left - cost
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Pairs of a cycle as ascending numbers ``row * width + board``."""

    numbers: NDArray[np.intp]
    width: int

    def find(self, rows: NDArray[np.intp], boards: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the index of each pair; -1 where there is none."""
        wanted = rows * self.width + boards
        at = np.searchsorted(self.numbers, wanted)
        at[at == len(self.numbers)] = 0
        there = self.numbers[at] == wanted if len(self.numbers) else np.zeros(len(at), np.bool_)
        return np.where(there, at, -1)


class _RecordedScorer:
    """Repeats a scorer's answers of the cycle; abstains where it was not asked."""

    def __init__(
        self,
        answer: Proposal,
        cells: _Cells,
        boards: NDArray[np.intp],
        classes: NDArray[np.intp],
    ) -> None:
        """Take the scorer's answers.

        Args:
            answer: Its proposal in the cycle.
            cells: The pairs of that proposal.
            boards: Rows of the boards that are decided again.
            classes: By benchmark that is decided again, its class; the changed one comes last.
        """
        self.name, self.objective, self.kind = answer.scorer, answer.objective, answer.kind
        self.unit = answer.unit
        missing = np.float32(np.nan)
        self._scores = np.append(answer.scores, missing)
        self._errors = None if answer.errors is None else np.append(answer.errors, missing)
        self._cells, self._boards, self._classes = cells, boards, classes

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """Implement `Scorer.score`."""
        return self.answer(batch, pairs).scores

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        """Implement `DetailedScorer.answer`."""
        # From last to first: a class that has others than the changed one is theirs.
        row_then = np.zeros(batch.shape[0], dtype=np.intp)
        row_then[batch.class_of_job[::-1]] = self._classes[::-1]
        found = self._cells.find(row_then[pairs.rows], self._boards[pairs.boards])
        errors = None if self._errors is None else self._errors[found]
        return Answer(scores=self._scores[found], errors=errors)


def _rows_of(snapshot: Snapshot, boards: NDArray[np.intp]) -> Snapshot:
    """Return the snapshot with these boards only."""
    if len(boards) == len(snapshot.uids):
        return snapshot
    rows = boards.tolist()
    conflicts = snapshot.conflicts
    return replace(
        snapshot,
        uids=tuple(snapshot.uids[row] for row in rows),
        families=tuple(snapshot.families[row] for row in rows),
        hosts=tuple(snapshot.hosts[row] for row in rows),
        ram_bytes=snapshot.ram_bytes[boards],
        storage_bytes=snapshot.storage_bytes[boards],
        expected=snapshot.expected[boards],
        online=snapshot.online[boards],
        healthy=snapshot.healthy[boards],
        drained=snapshot.drained[boards],
        busy=snapshot.busy[boards],
        progress=snapshot.progress[boards],
        supports={key: column[boards] for key, column in snapshot.supports.items()},
        undeclared={key: column[boards] for key, column in snapshot.undeclared.items()},
        engines={key: column[boards] for key, column in snapshot.engines.items()},
        reasons=tuple(snapshot.reasons[row] for row in rows),
        attributes=tuple(snapshot.attributes[row] for row in rows) if snapshot.attributes else (),
        conflicts=None if conflicts is None else conflicts[np.ix_(boards, boards)],
    )
