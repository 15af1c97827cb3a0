"""Gangs in a simulated lab: each waits until all of it can start at once.

The rules are the cycle's (`edgeyard.scheduler.decide.gangs`). While a gang waits, those behind it
in the queue use the boards that are too few for it, and so may delay it. Once it has waited for the
policy's ``guard_s``, boards are held for it as they come free. Boards that share cores are not used
together.

The queue is simulated from first to last, not by time. A gang starts there when nobody behind it
can be sooner: just before a benchmark that wants one of its boards, or a place of its user, would
start later. Where benchmarks behind it can use different boards, one that is farther behind may
therefore delay it less than in the cycle.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import NO_ROW
from edgeyard.scheduler.prediction.simulated_lab import ForecastInput, RunSampler, SimulatedLab

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class _Choices:
    """Where benchmarks of one class, or one with a reserved board, may start.

    Attributes:
        job: Row of one of the benchmarks.
        pairs: Shape (choices,): pairs of class and board, best first.
        slots: Shape (choices,): time slots of their boards.
        boards: Shape (choices,): rows of the boards.
        rankings: Orders of the choices, shape (choices,) each: best first; where boards share
            cores also those first that share them with the fewest others.
    """

    job: int
    pairs: Rows
    slots: Rows
    boards: Rows
    rankings: tuple[Rows, ...]


@dataclass(slots=True, eq=False)
class SimulatedGang:
    """A gang that waits, and its start in each sample.

    Attributes:
        jobs: Rows of its benchmarks, first to last in the queue.
        choices: By benchmark, where it may start; the same object for benchmarks with the same.
        boards: Shape (boards,): which of them its benchmarks use, or keep others from using.
        held_from_s: From when on boards are held for it, seconds from now; inf: never.
        soonest_s: When it could start if no other benchmark waited or ran; inf: never.
        no_sooner: Shape (samples,): it does not start before, as far as is known.
        starts: Shape (samples,): when it gets its boards, inf where it has not yet.
        task_starts: Shape (its benchmarks, samples): a time of loading later.
        ends: Shape (its benchmarks, samples): inf where it has not started.
        grounded: Shape (its benchmarks,): whether past runs say something of each.
    """

    jobs: Sequence[int]
    choices: Sequence[_Choices]
    boards: NDArray[np.bool_]
    held_from_s: float
    soonest_s: float
    no_sooner: Floats
    starts: Floats
    task_starts: Floats
    ends: Floats
    grounded: NDArray[np.bool_]

    @property
    def next_s(self) -> Floats:
        """Return when each takes boards next, or has some held; inf: never, or it has started."""
        begins: Floats = np.minimum(self.no_sooner, self.held_from_s)
        return np.where(np.isfinite(self.no_sooner) & np.isinf(self.starts), begins, np.inf)


class SimulatedGangs:
    """The gangs of one simulated lab that have no boards yet.

    Attributes:
        all: The gangs that have been reached in the queue.
    """

    def __init__(
        self, given: ForecastInput, lab: SimulatedLab, runs: RunSampler, jobs: Rows
    ) -> None:
        """Find the gangs that wait.

        Args:
            given: What a cycle found out.
            lab: Its boards, which the gangs take.
            runs: Draws their run times.
            jobs: Rows of the benchmarks that are simulated, first to last.
        """
        self._given, self._lab, self._runs = given, lab, runs
        self._apart = _boards_apart(given)
        self._members: dict[str, list[int]] = defaultdict(list)
        for job in jobs.tolist():
            gang_id = given.pending[job].gang_id
            if gang_id is not None and given.board_of_job[job] == NO_ROW:
                self._members[gang_id].append(job)
        self._waiting: list[SimulatedGang] = []
        self.all: list[SimulatedGang] = []

    def __contains__(self, job: int) -> bool:
        """Return whether a benchmark starts with its gang."""
        return self._given.pending[job].gang_id in self._members

    def reach(self, job: int) -> None:
        """Add the gang whose first benchmark is the next one in the queue.

        A gang of which a benchmark is not in the queue never starts.
        """
        gang_id = self._given.pending[job].gang_id
        jobs = self._members[gang_id or ""]
        if job != jobs[0] or len(jobs) != self._given.pending[job].gang_size:
            return
        gang = self._gang(jobs)
        if gang is not None:
            self.all.append(gang)
            self._waiting.append(gang)

    def start_before(self, job: int, pairs: Rows, begins: Floats) -> bool:
        """Start the gangs ahead of a benchmark that compete with it for boards.

        Args:
            job: Row of the benchmark.
            pairs: Its pairs of class and board.
            begins: Shape (samples,): when it would start, inf where it never would.

        Returns:
            Whether any gang took boards, so that the benchmark may start later than that.
        """
        if not self._waiting:
            return False
        rivals = [gang for gang in self._waiting if self._compete(gang, job, pairs)]
        return self._start_until(rivals, np.where(np.isfinite(begins), begins, -np.inf))

    def start_all(self) -> None:
        """Start all remaining gangs, as no other benchmark can delay them."""
        while self._waiting and self._start_until(
            self._waiting, np.full(len(self._lab.samples), np.finfo(np.float64).max)
        ):
            pass

    def _compete(self, gang: SimulatedGang, job: int, pairs: Rows) -> bool:
        if self._lab.share_run_limit(gang.jobs[0], job):
            return True
        return bool(gang.boards[self._lab.pairs.boards[pairs]].any())

    def _start_until(self, gangs: Sequence[SimulatedGang], until: Floats) -> bool:
        """Start gangs in the order of time up to ``until``; return once some have started."""
        started = False
        while gangs and not started:
            times = np.array([gang.next_s for gang in gangs])
            first, earliest_start = times.argmin(axis=0), times.min(axis=0)
            due = np.isfinite(earliest_start) & (earliest_start <= until)
            if not due.any():
                break
            for number in np.unique(first[due]).tolist():
                started |= self._start(gangs[number], due & (first == number))
        self._waiting = [gang for gang in self._waiting if np.isfinite(gang.next_s).any()]
        return started

    def _start(self, gang: SimulatedGang, samples: NDArray[np.bool_]) -> bool:
        """Start a gang in samples, unless it turns out to start later; return whether it did."""
        lab = self._lab
        starts, chosen = self._earliest(gang)
        known = gang.no_sooner
        gang.no_sooner = np.where(np.isinf(gang.starts), starts, known)
        held = gang.held_from_s <= known
        samples = samples & np.isfinite(starts) & (held | (starts <= known))
        if not samples.any():
            return False
        if (waited := samples & held).any():
            for choices in set(gang.choices):  # what it does not use in the end was held for it
                lab.block_until(choices.slots, starts, waited)
        gang.starts = np.where(samples, starts, gang.starts)
        for number, (job, choices) in enumerate(zip(gang.jobs, gang.choices, strict=True)):
            taken = choices.pairs[chosen[number]]
            loading_s, run_s = self._runs.draw(job, taken)
            task_starts = np.where(samples, starts + loading_s, np.inf)
            ends = task_starts + run_s
            lab.hold(job, choices.slots[chosen[number]], ends)
            gang.task_starts[number] = np.where(samples, task_starts, gang.task_starts[number])
            gang.ends[number] = np.where(samples, ends, gang.ends[number])
            gang.grounded[number] &= self._runs.known[taken[samples]].all()
        return True

    def _gang(self, jobs: Sequence[int]) -> SimulatedGang | None:
        """Return a gang that waits from now on; None: a benchmark of it fits no board."""
        given, lab = self._given, self._lab
        found: dict[tuple[int, bool], _Choices] = {}
        choices = []
        for job in jobs:
            row = int(lab.batch.class_of_job[job])
            pairs, slots = lab.choices(job, row)
            if not len(pairs):
                return None
            key = (job, True) if job in given.timeline.stated_boards else (row, False)
            if key not in found:
                found[key] = self._choices_of(job, pairs, slots)
            choices.append(found[key])
        boards: NDArray[np.bool_] = np.zeros(lab.batch.shape[1], dtype=np.bool_)
        for each in found.values():
            boards[each.boards] = True
        if self._apart is not None:
            boards = np.asarray(self._apart[boards].any(axis=0), dtype=np.bool_)
        samples = len(lab.samples)
        gang = SimulatedGang(
            jobs=jobs,
            choices=choices,
            boards=boards,
            held_from_s=math.inf,
            soonest_s=math.inf,
            no_sooner=np.zeros(samples),
            starts=np.full(samples, np.inf),
            task_starts=np.full((len(jobs), samples), np.inf),
            ends=np.full((len(jobs), samples), np.inf),
            grounded=np.ones(len(jobs), dtype=np.bool_),
        )
        alone = {
            each.job: lab.starts_if_empty(each.job, each.pairs, each.slots)[None]
            for each in found.values()
        }
        gang.soonest_s = float(self._earliest_of(gang, alone)[0][0])
        first = given.pending[jobs[0]]
        since = max(first.submit_time, first.start_time or first.submit_time)
        waited_s = (lab.batch.now - since).total_seconds()
        due_s = max(-waited_s, 0.0)
        if gang.soonest_s <= due_s:  # no lease or reservation is in the way
            gang.held_from_s = max(given.timeline.policy.guard_s - waited_s, 0.0)
        gang.no_sooner = self._earliest(gang)[0]
        return gang

    def _choices_of(self, job: int, pairs: Rows, slots: Rows) -> _Choices:
        boards = self._lab.pairs.boards[pairs]
        rankings: tuple[Rows, ...] = (np.arange(len(pairs)),)
        if self._apart is not None:
            others = self._apart[np.ix_(boards, np.unique(boards))].sum(axis=1)
            rankings = (*rankings, np.argsort(others, kind="stable"))
        return _Choices(job, pairs, slots, boards, rankings)

    def _earliest(self, gang: SimulatedGang) -> tuple[Floats, Rows]:
        """Return the earliest start of a gang and its boards.

        Returns:
            Shape (samples,), inf where it never could; shape (its benchmarks, samples), the
            choice of each benchmark, 0 where it never could.
        """
        count = len(gang.jobs)
        each = {choices.job: choices for choices in gang.choices}.values()
        starts = {
            choices.job: self._lab.starts(choices.job, choices.pairs, choices.slots, count)
            for choices in each
        }
        return self._earliest_of(gang, starts)

    def _earliest_of(
        self, gang: SimulatedGang, starts: Mapping[int, Floats]
    ) -> tuple[Floats, Rows]:
        """Return `_earliest` for given first starts in each choice, shape (samples, choices).

        A gang can start at the first of these times at which it finds different boards.
        """
        moments = np.sort(np.concatenate([*starts.values()], axis=1), axis=1)
        samples, count = len(moments), len(gang.jobs)
        found = np.full(samples, np.inf)
        chosen = np.zeros((count, samples), dtype=np.intp)
        if moments.shape[1] < count:
            return found, chosen
        rows = np.arange(samples)
        at = moments[:, count - 1]
        while True:
            rows, at = rows[np.isfinite(at)], at[np.isfinite(at)]
            if not len(rows):
                return found, chosen
            columns, whole = self._choose(gang, starts, rows, at)
            found[rows[whole]] = at[whole]
            chosen[:, rows[whole]] = columns[:, whole]
            rows, at = rows[~whole], at[~whole]
            later = (moments[rows] <= at[:, None]).sum(axis=1)
            last = later >= moments.shape[1]
            rows, later = rows[~last], later[~last]
            at = moments[rows, later]

    def _choose(
        self, gang: SimulatedGang, starts: Mapping[int, Floats], rows: Rows, at: Floats
    ) -> tuple[Rows, NDArray[np.bool_]]:
        """Choose different boards that share no cores for all of a gang at one time a sample.

        Args:
            starts: As for `_earliest_of`.
            rows: Shape (here,): samples.
            at: Shape (here,): the time in each of them.

        Returns:
            The choice of each benchmark, shape (its benchmarks, here); shape (here,): whether
            all of them have one.
        """
        free = {}
        for choices in gang.choices:
            if choices.job not in free:
                then = np.maximum(starts[choices.job][rows], at[:, None])
                allowed = self._lab.open_starts(choices.job, choices.pairs, choices.slots, then)
                free[choices.job] = allowed <= at[:, None]
        columns = np.zeros((len(gang.jobs), len(rows)), dtype=np.intp)
        whole = np.zeros(len(rows), dtype=np.bool_)
        for ranking in range(len(gang.choices[0].rankings)):
            here = np.flatnonzero(~whole)
            whole[here] = True
            left = np.ones((len(here), len(gang.boards)), dtype=np.bool_)
            for number, choices in enumerate(gang.choices):
                order = choices.rankings[ranking]
                usable = free[choices.job][np.ix_(here, order)] & left[:, choices.boards[order]]
                best = usable.argmax(axis=1)
                whole[here] &= usable[np.arange(len(here)), best]
                columns[number, here] = order[best]
                self._take(left, choices.boards[order[best]])
        return columns, whole

    def _take(self, left: NDArray[np.bool_], boards: Rows) -> None:
        """Mark one board per sample, and those that share its cores, as taken."""
        if self._apart is None:
            left[np.arange(len(boards)), boards] = False
        else:
            left &= ~self._apart[boards]


def _boards_apart(given: ForecastInput) -> NDArray[np.bool_] | None:
    """Return which boards must not run at the same time, each and itself; None: no two."""
    conflicts = given.batch.snapshot.conflicts
    if conflicts is None:
        return None
    return conflicts | conflicts.T | np.eye(len(conflicts), dtype=np.bool_)
