"""When who is expected to start and end: the queue rolled forward, many times at once.

Pure, in virtual time. The cycle's own order of the queue, its filters and its scores are used as
they are; what is rolled forward is list scheduling by events, since a whole decision for each board
that comes free would take hours: from first to last in the queue, each benchmark takes, among the
boards that its filters would let it use were they free, the one that comes free first (of those
free at the same time the one with the best score). With all benchmarks ready that is what the
cycle does, step by step: nobody further back ever delays it. Before a promised start or a lease
only those get the board who are surely through by then (`edgeyard.scheduler.decide.time_slots`).

Each *sample* is one possible future. A run's time is drawn from its predictive law
(`edgeyard.scheduler.prediction.estimates`): what is not known of a kind on a board is drawn once a
sample, the same for all its runs; what differs from run to run, anew for each (stratified: Latin
hypercube, McKay, Beckman & Conover 1979). A run never takes longer than its bound, which holds.
Of one that runs already, the time is drawn given that it has not ended yet.

Not foreseen: benchmarks that will be submitted later and overtake, preemption, failures and their
repetition, boards that go or come back; and runs of a queue resemble each other more than any past
run tells. How wrong earlier starts were says how far waits are to be stretched for all of that
(`edgeyard.scheduler.prediction.calibration`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.assign import NOBODY
from edgeyard.scheduler.decide.commitments import holds_s
from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.decide.feasibility import feasibility
from edgeyard.scheduler.decide.time_slots import stretches
from edgeyard.scheduler.framework.batch import Batch, Pairs, pairs_of
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.forecast import HIGH, LOW, MIDDLE, Forecast
from edgeyard.scheduler.prediction.calibration import IntervalScale, stretched
from edgeyard.scheduler.prediction.cool_down import rests_s
from edgeyard.scheduler.prediction.estimates import RunTimeParts, run_time_parts

SAMPLES = 64
"""Futures: quantiles at 10 % and 90 % are then off by 0.04 of probability at most times."""

MAX_PAIRS = 1_000_000
"""(class, board) pairs that are looked at; who is behind those in the queue gets no forecast."""

_UNKNOWN_SHARE = 0.25
"""Median of a run of which nothing is known, as a share of its bound: bounds are generous."""

_UNKNOWN_SCALE = 1.0
"""Of its logarithm: between a fourteenth of the bound and the bound, four times in five."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WaitSamples:
    """Possible futures; times are seconds from now, inf where it never starts.

    Attributes:
        jobs: Shape (rolled,): rows of the pending benchmarks, first to last.
        starts: Shape (rolled, samples).
        finishes: Shape (rolled, samples).
        ends: Shape (holders, samples): of those that run now.
        grounded: Shape (rolled,): the past says something of it.
        soonest: Shape (rolled,): before, its start time or a lease lets no board have it; inf
            where they never do.
    """

    jobs: NDArray[np.intp]
    starts: Floats
    finishes: Floats
    ends: Floats
    grounded: NDArray[np.bool_]
    soonest: Floats


def forecasts(
    decided: Decisions, *, samples: int = SAMPLES, stretch: IntervalScale | None = None
) -> dict[str, Forecast]:
    """Of all that run or wait, by id.

    Args:
        decided: What a cycle found out.
        samples: Futures to draw.
        stretch: Of waits, as earlier forecasts turned out.
    """
    rolled = roll(decided, samples=samples)
    now = decided.now
    found = {}
    for number, job in enumerate(rolled.jobs.tolist()):
        each = decided.pending[job]
        # while files come nobody knows when it is ready, but its place in the queue counts
        if each.not_ready is None and np.isfinite(rolled.finishes[number]).all():
            found[each.benchmark_id] = _forecast(
                each,
                now,
                int(decided.rank[job] - decided.never_ahead[job]) + 1,
                rolled,
                number,
                stretch,
            )
    for holder, ends in zip(decided.holders, rolled.ends, strict=True):
        if holder.started_at is not None and not holder.ending:
            low, middle, high = _moments(ends, now)
            found[holder.benchmark_id] = Forecast(
                benchmark_id=holder.benchmark_id,
                made_at=now,
                place=None,
                start=holder.started_at,
                start_low=holder.started_at,
                start_high=holder.started_at,
                finish=middle,
                finish_low=low,
                finish_high=high,
                deadline_chance=_chance(ends, holder.deadline, now),
                grounded=bool(np.isfinite(ends).all()),
            )
    return found


def forecast_of(
    decided: Decisions,
    benchmark_id: str,
    *,
    samples: int = SAMPLES,
    stretch: IntervalScale | None = None,
) -> Forecast | None:
    """Of one that waits, or was placed now: nobody behind it in the queue is looked at.

    Args:
        decided: As for `forecasts`.
        benchmark_id: Of a pending benchmark.
        samples: As for `forecasts`.
        stretch: As for `forecasts`.

    Returns:
        None: no time is known of what it waits for.
    """
    rolled = roll(decided, samples=samples, last=benchmark_id)
    job = decided.row_of_id[benchmark_id]
    if not len(rolled.jobs) or rolled.jobs[-1] != job or not np.isfinite(rolled.finishes[-1]).all():
        return None
    return _forecast(
        decided.pending[job],
        decided.now,
        int(decided.rank[job]) + 1,
        rolled,
        len(rolled.jobs) - 1,
        stretch,
    )


def roll(
    decided: Decisions,
    *,
    samples: int = SAMPLES,
    last: str | None = None,
) -> WaitSamples:
    """Draw futures; the same arguments give the same ones.

    Args:
        decided: As for `forecasts`.
        samples: As for `forecasts`; 1: the one future in which each run takes its median.
        last: Stop behind this benchmark: nobody behind it delays it.
    """
    rng = np.random.default_rng(decided.batch.seed)
    lab = _Lab(decided, samples, rng)
    jobs = lab.queue(last)
    lab.keep_for_those_left_out(jobs)
    runs = _Runs(lab.batch, lab.pairs, samples, rng)
    starts = np.full((len(jobs), samples), np.inf)
    finishes = starts.copy()
    grounded = np.zeros(len(jobs), dtype=np.bool_)
    soonest = np.full(len(jobs), np.inf)
    for number, job in enumerate(jobs.tolist()):
        row = int(lab.batch.class_of_job[job])
        its, places = lab.choices(job, row)
        if not len(its):
            continue
        soonest[number] = lab.soonest(job, its, places)
        start = lab.starts(job, its, places)
        choice = start.argmin(axis=1)
        begins = start[lab.samples, choice]
        taken = its[choice]
        ends = begins + runs.draw(row, taken)
        lab.hold(job, places[choice], ends)
        starts[number], finishes[number] = begins, ends
        grounded[number] = runs.known[taken].all()
    return WaitSamples(
        jobs=jobs,
        starts=starts,
        finishes=finishes,
        ends=lab.ends,
        grounded=grounded,
        soonest=soonest,
    )


class _Lab:
    """Boards in virtual time: when each of their stretches comes free, in each sample."""

    def __init__(self, decided: Decisions, samples: int, rng: np.random.Generator) -> None:
        self._decided = decided
        holders = decided.holders
        self.samples = np.arange(samples)
        row_of_uid = {uid: row for row, uid in enumerate(decided.snapshot.uids)}
        on_board = [row_of_uid.get(each.target_uid, NOBODY) for each in holders]
        self.batch = decided.batch
        self._set_up_s = decided.policy.cool_down_s
        rests = np.zeros(decided.batch.shape[1])
        if self._set_up_s > 0.0:
            runs = decided.batch.knowledge.runs
            rests = rests_s(decided.snapshot, runs, decided.now, self._set_up_s)
        held = [row for row in on_board if row != NOBODY]
        fits = _if_free(decided, [*held, *np.flatnonzero(rests).tolist()])
        self.pairs = pairs_of(fits)
        self._stretches = stretches(decided)
        first = self._stretches.first
        self._cut = bool(self._stretches.lanes)
        self.free = np.tile(
            np.maximum(rests[self._stretches.boards], self._stretches.begins), (samples, 1)
        )
        self.ends = _ends(decided, holders, samples, rng)
        self._slots = _slots(decided, holders, self.ends, samples)
        for row, ends in zip(on_board, self.ends, strict=True):
            if row != NOBODY:
                known = np.where(np.isfinite(ends), ends + self._set_up_s, np.inf)
                its = slice(int(first[row]), int(first[row + 1]))
                self.free[:, its] = np.maximum(self.free[:, its], known[:, None])
                beside = self._beside(row)
                self.free[:, beside] = np.maximum(self.free[:, beside], known[:, None])
        self._promised = self._promised_pairs()
        self._holds_s = np.zeros(0)
        if self._cut:
            self._holds_s = holds_s(self.batch, self.pairs.rows, self.pairs.boards, decided.policy)
        self._closes_for: dict[str, Floats] = {}
        self._preferred: dict[int, tuple[NDArray[np.intp], NDArray[np.intp]]] = {}

    def _beside(self, board: int) -> NDArray[np.intp]:
        """Stretches of the boards that must not run beside this one."""
        conflicts = self.batch.snapshot.conflicts
        if conflicts is None:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(conflicts[board][self._stretches.boards])

    def queue(self, last: str | None) -> NDArray[np.intp]:
        """Who is looked at, up to a number of pairs.

        First those placed now, then those to whom a start was promised, then all others that wait.
        """
        decided = self._decided
        placed = decided.assignment.board_of_job != NOBODY
        promised = np.isin(np.arange(len(placed)), list(self._promised))
        order = decided.order
        order = order[np.lexsort((~promised[order], ~placed[order]))]
        held = [
            (waiting := decided.pending[job].not_ready) is not None
            and waiting.reason is WaitingReason.HELD
            for job in order.tolist()
        ]
        order = order[~np.array(held, dtype=np.bool_)]
        if last is not None:
            found = np.flatnonzero(order == decided.row_of_id[last])
            order = order[: int(found[0]) + 1] if len(found) else order[:0]
        rows = decided.batch.class_of_job[order]
        _, first = np.unique(rows, return_index=True)
        sizes = np.zeros(len(order), dtype=np.int64)
        sizes[first] = np.diff(self.pairs.starts)[rows[first]]
        return order[np.cumsum(sizes) <= MAX_PAIRS]

    def keep_for_those_left_out(self, jobs: NDArray[np.intp]) -> None:
        """What is promised to a benchmark that is not rolled (it is held) is closed to all."""
        rolled = set(jobs.tolist())
        for job, places in self._stretches.promised.items():
            for place in places if job not in rolled else ():
                its = slice(place, int(self._stretches.first[self._stretches.boards[place] + 1]))
                self.free[:, its] = np.inf

    def choices(self, job: int, row: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Pairs of the benchmark, best first, and a stretch of the pair's board for each.

        Of one that was given a board now, that one alone; of one to whom a start is promised, the
        boards where it is.
        """
        given = int(self._decided.assignment.board_of_job[job])
        if given != NOBODY:
            at = self.pairs.at(row, given)
            pairs = np.array([] if at is None else [at], dtype=np.intp)
            return pairs, self._stretches.first[self.pairs.boards[pairs]]
        if job in self._promised:
            return self._cut_up(self._promised[job])
        if row not in self._preferred:
            its = self.pairs.of(row)
            worth = self._worth(row)
            pairs = np.arange(its.start, its.stop)
            place = np.argsort(self.batch.board_order, kind="stable")[self.pairs.boards[its]]
            self._preferred[row] = self._cut_up(pairs[np.lexsort((place, -worth))])
        return self._preferred[row]

    def _promised_pairs(self) -> dict[int, NDArray[np.intp]]:
        """By row of the benchmark, pairs with the boards that are promised to it, if it fits."""
        found = {}
        for job, places in self._stretches.promised.items():
            row = int(self.batch.class_of_job[job])
            boards = sorted(set(self._stretches.boards[list(places)].tolist()))
            pairs = [at for board in boards if (at := self.pairs.at(row, board)) is not None]
            if pairs:
                found[job] = np.array(pairs, dtype=np.intp)
        return found

    def _cut_up(self, pairs: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """A pair for each stretch of its board, and the stretch."""
        boards = self.pairs.boards[pairs]
        if not self._cut:
            return pairs, boards
        first = self._stretches.first
        counts = first[boards + 1] - first[boards]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(pairs, counts), np.repeat(first[boards], counts) + within

    def _worth(self, row: int) -> Floats:
        """Scores of the class's pairs; 0 for boards that are not free now."""
        scores = self._decided.scores
        worth: Floats = np.zeros(self.batch.shape[1])
        known = scores.pairs.of(row)
        worth[scores.pairs.boards[known]] = scores.combined[known]
        its: Floats = worth[self.pairs.boards[self.pairs.of(row)]]
        return its

    def soonest(self, job: int, its: NDArray[np.intp], places: NDArray[np.intp]) -> float:
        """From when on it could start, did nobody else wait or run; inf: never."""
        begins = np.maximum(self._stretches.begins[places], self._due(job))
        return float(self._where_open(job, its, places, begins).min())

    def _due(self, job: int) -> float:
        start = self._decided.pending[job].start_time
        return 0.0 if start is None else max((start - self._decided.now).total_seconds(), 0.0)

    def _ready(self, job: int) -> Floats:
        """Shape (samples,): from when on it may start."""
        ready = np.full(len(self.samples), self._due(job))
        slots = self._slots.get(self._decided.pending[job].user_id)
        return ready if slots is None else np.maximum(ready, slots.min(axis=1))

    def starts(self, job: int, its: NDArray[np.intp], places: NDArray[np.intp]) -> Floats:
        """Shape (samples, pairs): when it could start in each stretch; inf where it may not."""
        start: Floats = np.maximum(self.free[:, places], self._ready(job)[:, None])
        return self._where_open(job, its, places, start)

    def _where_open(
        self, job: int, its: NDArray[np.intp], places: NDArray[np.intp], start: Floats
    ) -> Floats:
        """``start``, shaped (..., pairs), and inf where it may not start then in that stretch."""
        if not self._cut or self._decided.assignment.board_of_job[job] != NOBODY:
            return start
        closes = self._closes(job)[places]
        fits = (start + self._holds_s[its] <= closes) & (start < self._stretches.ends[places])
        return np.where(fits, start, np.inf)

    def _closes(self, job: int) -> Floats:
        """Shape (stretches,): when its run must be over."""
        user = self._decided.pending[job].user_id
        if user not in self._closes_for:
            self._closes_for[user] = self._stretches.closes_for(user, self._set_up_s)
        closes = self._closes_for[user]
        if job in self._promised:
            closes = closes.copy()
            for board in self.pairs.boards[self._promised[job]].tolist():
                its = slice(*self._stretches.first[board : board + 2].tolist())
                # the cycle holds leases alone against it there
                closes[its] = self._stretches.lanes[board].closes(user, 0.0, promised=False)
        return closes

    def hold(self, job: int, places: NDArray[np.intp], ends: Floats) -> None:
        """It runs there until then; what of the board comes later is free no sooner."""
        known = np.flatnonzero(np.isfinite(ends))
        places, until = places[known], ends[known] + self._set_up_s
        begun, begun_until, boards = known, until, self._stretches.boards[places]
        self.free[known, places] = until
        last = self._stretches.first[self._stretches.boards[places] + 1] - 1
        while self._cut and len(known := known[later := places < last]):
            places, last, until = places[later] + 1, last[later], until[later]
            self.free[known, places] = np.maximum(self.free[known, places], until)
        if self.batch.snapshot.conflicts is not None:
            self._hold_beside(begun, begun_until, boards)
        slots = self._slots.get(self._decided.pending[job].user_id)
        if slots is not None:
            started = np.isfinite(ends)
            slots[self.samples[started], slots.argmin(axis=1)[started]] = ends[started]

    def _hold_beside(
        self, known: NDArray[np.intp], until: Floats, boards: NDArray[np.intp]
    ) -> None:
        """Boards that share cores with the one that is held are free no sooner.

        Args:
            known: Samples in which it runs.
            until: Shape (known,): when it ends there.
            boards: Shape (known,): the board that it runs on there.
        """
        for board in np.unique(boards).tolist():
            beside = self._beside(board)
            if len(beside):
                here = boards == board
                cells = np.ix_(known[here], beside)
                self.free[cells] = np.maximum(self.free[cells], until[here, None])


class _Runs:
    """Draws run times of pairs."""

    def __init__(self, batch: Batch, pairs: Pairs, samples: int, rng: np.random.Generator) -> None:
        law = run_time_parts(batch, pairs.rows, pairs.boards)
        self._bounds = batch.time_limits_s[pairs.rows]
        self.known = ~np.isnan(law.location)
        self._law = _or_unknown(law, self._bounds)
        self._rng = rng
        self._samples = samples
        self._errors: dict[int, Floats] = {}

    def draw(self, row: int, taken: NDArray[np.intp]) -> Floats:
        """Shape (samples,): of a run of the class on pair ``taken[s]`` in sample s."""
        law = self._law
        freedom = int(law.freedom[taken[0]])
        noise = self._rng.permutation(_student_table(freedom, self._samples)) * np.sqrt(
            law.noise[taken]
        )
        if row not in self._errors:
            # one draw a sample: waiting times add up what is not known of a kind
            self._errors[row] = self._rng.permutation(_student_table(200, self._samples))
        error = self._errors[row] * np.sqrt(law.error[taken])
        drawn = np.exp(law.location[taken] + noise + error)
        return np.asarray(np.minimum(drawn, self._bounds[taken]), dtype=np.float64)


@lru_cache(maxsize=1024)
def _student_table(freedom: int, samples: int) -> Floats:
    """Quantiles of one Student's t in the middle of so many strata; the same for all forecasts."""
    from scipy.special import stdtrit  # takes a moment: others do without

    strata = (np.arange(samples) + 0.5) / samples
    table = np.asarray(stdtrit(min(max(freedom, 1), 200), strata), dtype=np.float64)
    table.flags.writeable = False
    return table


def _or_unknown(law: RunTimeParts, bounds: Floats) -> RunTimeParts:
    unknown = np.isnan(law.location)
    if not unknown.any():
        return law
    return RunTimeParts(
        location=np.where(unknown, np.log(bounds * _UNKNOWN_SHARE), law.location),
        noise=np.where(unknown, _UNKNOWN_SCALE**2, law.noise),
        error=np.where(unknown, 0.0, law.error),
        freedom=np.where(unknown, 200.0, law.freedom),
    )


def _if_free(decided: Decisions, held: list[int]) -> NDArray[np.bool_]:
    """Shape (classes, boards): what the filters would say, were all that runs over.

    And were the cluster heard: it will be, and until then the last that is known of it holds.
    """
    batch = decided.batch
    busy = batch.snapshot.busy.copy()
    if batch.snapshot.conflicts is None:
        busy[held] = False
    else:
        beside = batch.snapshot.conflicts[held].any(axis=0)
        busy[held] = False
        busy &= ~beside
    snapshot = replace(
        batch.snapshot,
        age_s=0.0,
        busy=busy,
        progress=np.where(busy, batch.snapshot.progress, np.nan),
    )
    knowledge = replace(batch.knowledge, leases=())
    cleared = replace(batch, snapshot=snapshot, knowledge=knowledge)
    runner = PluginRunner(lock=decided.plugins.lock)
    return feasibility(cleared, decided.plugins.filters, runner).fits


def _slots(
    decided: Decisions, holders: Sequence[BoardHolder], ends: Floats, samples: int
) -> dict[str, Floats]:
    """Shape (samples, most at once) by user: when each place of a user's comes free."""
    slots = {}
    for user, entitlement in decided.batch.knowledge.entitlements.items():
        if entitlement.max_running is not None and entitlement.max_running > 0:
            slots[user] = np.zeros((samples, entitlement.max_running))
    for holder, end in zip(holders, ends, strict=True):
        own = slots.get(holder.user_id)
        if own is not None:
            own[np.arange(samples), own.argmin(axis=1)] = end
    return slots


def _ends(
    decided: Decisions, holders: Sequence[BoardHolder], samples: int, rng: np.random.Generator
) -> Floats:
    """Shape (holders, samples): seconds until each ends, given that it has not ended yet."""
    from scipy.special import stdtr, stdtrit

    ends = np.empty((len(holders), samples))
    if not holders:
        return ends
    snapshot = decided.snapshot
    row_of_uid = {uid: row for row, uid in enumerate(snapshot.uids)}
    there = [
        number
        for number, each in enumerate(holders)
        if each.kind is not None and each.target_uid in row_of_uid
    ]
    bound = decided.batch.knowledge.max_run_s
    bounds = np.array([each.time_limit_s or bound for each in holders], dtype=np.float64)
    law = _or_unknown(_nothing(len(holders)), bounds)
    if there:
        batch = build_batch(
            snapshot,
            [_as_pending(holders[number], decided.now) for number in there],
            decided.now,
            decided.batch.seed,
            decided.batch.knowledge,
        )
        boards = np.array([row_of_uid[holders[number].target_uid] for number in there])
        told = run_time_parts(batch, batch.class_of_job, boards)
        for name in ("location", "noise", "error", "freedom"):
            column = getattr(law, name)
            column[there] = np.where(np.isnan(told.location), column[there], getattr(told, name))
    elapsed = np.array(
        [
            0.0
            if each.started_at is None
            else max((decided.now - each.started_at).total_seconds(), 0.0)
            for each in holders
        ]
    )
    scale = np.sqrt(law.noise + law.error)
    with np.errstate(divide="ignore"):
        passed = stdtr(law.freedom, (np.log(elapsed) - law.location) / scale)
    strata = rng.permuted(np.tile((np.arange(samples) + 0.5) / samples, (len(holders), 1)), axis=1)
    drawn = passed[:, None] + (1.0 - passed[:, None]) * strata
    total = np.exp(law.location[:, None] + scale[:, None] * stdtrit(law.freedom[:, None], drawn))
    total = np.minimum(np.nan_to_num(total, nan=np.inf), bounds[:, None])
    left: Floats = np.maximum(total - elapsed[:, None], 0.0)
    ending = np.array([each.ending for each in holders], dtype=np.bool_)
    left[ending] = 0.0
    return left


def _nothing(count: int) -> RunTimeParts:
    return RunTimeParts(
        location=np.full(count, np.nan),
        noise=np.full(count, np.nan),
        error=np.full(count, np.nan),
        freedom=np.full(count, np.nan),
    )


def _as_pending(holder: BoardHolder, now: datetime) -> PendingBenchmark:
    """What an estimate needs of one that runs."""
    if holder.kind is None:
        raise ValueError(holder.benchmark_id)
    return PendingBenchmark(
        benchmark_id=holder.benchmark_id,
        user_id=holder.user_id,
        submit_time=now,
        family="",
        engine=holder.kind.engine,
        benchmark_type=holder.kind.benchmark_type,
        model_sha256=holder.kind.model_sha256,
        nb_inference=holder.kind.nb_inference,
        variant=holder.kind.variant,
    )


def _forecast(
    each: PendingBenchmark,
    now: datetime,
    place: int,
    rolled: WaitSamples,
    number: int,
    stretch: IntervalScale | None,
) -> Forecast:
    starts = stretched(rolled.starts[number], float(rolled.soonest[number]), stretch)
    finishes = starts + (rolled.finishes[number] - rolled.starts[number])  # runs stay as drawn
    start_low, start, start_high = _moments(starts, now)
    finish_low, finish, finish_high = _moments(finishes, now)
    return Forecast(
        benchmark_id=each.benchmark_id,
        made_at=now,
        place=place,
        start=start,
        start_low=start_low,
        start_high=start_high,
        finish=finish,
        finish_low=finish_low,
        finish_high=finish_high,
        deadline_chance=_chance(finishes, each.deadline, now),
        grounded=bool(rolled.grounded[number]),
    )


def _moments(seconds: Floats, now: datetime) -> tuple[datetime, datetime, datetime]:
    low, middle, high = np.quantile(seconds, (LOW, MIDDLE, HIGH)).tolist()
    return tuple(now + timedelta(seconds=each) for each in (low, middle, high))  # type: ignore[return-value]  # three


def _chance(finishes: Floats, deadline: datetime | None, now: datetime) -> float | None:
    if deadline is None:
        return None
    return float((finishes <= (deadline - now).total_seconds()).mean())
