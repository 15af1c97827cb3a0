"""Replays of logs: the jobs of a log under a queue policy and a way of backfilling.

A policy whose order of two jobs never changes (`is_time_invariant`) is asked once, for all jobs of
the log, and the compiled loop does the rest. Any other is asked at each event for the jobs that
wait then. Both go through the same functions of `edgeyard.training.worlds.processors`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import inf

import numpy as np
from numpy.typing import NDArray

from edgeyard import __version__
from edgeyard.errors import ConfigError
from edgeyard.scheduler.framework.batch import Outlook, PastArrivals, Queue
from edgeyard.scheduler.framework.protocols import QueuePolicy, is_time_invariant
from edgeyard.simulator.kernel.history import add_run, empty_history, sample_jobs
from edgeyard.simulator.runs import (
    COMPLETED,
    JobColumns,
    OccupancyColumns,
    RunMeta,
    SeriesColumns,
    SimulatedRun,
)
from edgeyard.simulator.schedules import Schedule
from edgeyard.training.worlds import processors as world
from edgeyard.training.worlds.swf import Log, refuse_large_jobs

USAGE_HALF_LIFE_S = 7 * 86400.0
"""Half-life of the usage of users."""

PRIORITY = 50
"""Priority of all jobs, as logs state none."""

MAX_PAST = 1000
"""So many arrivals, the newest, policies may look back at."""

_EVENTS_PER_CALL = 50_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_DATE_S = 250_000_000_000.0
"""Maximum time (the year 9892), because dates end there."""


class Backfilling(StrEnum):
    """Which jobs may start before the first; see `edgeyard.training.worlds.processors.schedule`."""

    NONE = "none"
    EASY = "easy"
    CONSERVATIVE = "conservative"
    RLSCHEDULER = "rlscheduler"


_NUMBERS = {
    Backfilling.NONE: world.NO_BACKFILLING,
    Backfilling.EASY: world.EASY,
    Backfilling.CONSERVATIVE: world.CONSERVATIVE,
    Backfilling.RLSCHEDULER: world.RLSCHEDULER,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replay:
    """What a replay led to; columns have the shape (jobs,), in the order of job numbers.

    Attributes:
        schedule: When the jobs started and ended.
        first_reservation: The first reservation that each job got, seconds; NaN: it needed none.
        events: How many arrivals and ends there were.
    """

    schedule: Schedule
    first_reservation: NDArray[np.float64]
    events: int


def replay(
    log: Log,
    policy: QueuePolicy,
    *,
    processors: int,
    backfilling: Backfilling = Backfilling.NONE,
    commit: bool = False,
    ask_each_time: bool = False,
    advanced: Callable[[float], None] = lambda share: None,
) -> Replay:
    """Replay a log on an empty machine.

    Args:
        log: The jobs; at least one.
        policy: Orders the queue.
        processors: Of the machine.
        backfilling: See `Backfilling`.
        commit: The job chosen first is waited for, whatever jobs arrive meanwhile.
        ask_each_time: Ask the policy at each event also where its order never changes.
        advanced: Called now and then with the share of the events that have happened.

    Raises:
        InvalidInput: A job does not fit the machine.
        ConfigError: The policy raised an error, or its ranks are no permutation; or ``commit``
            was asked for with conservative backfilling, where every job is waited for.
    """
    if commit and backfilling is Backfilling.CONSERVATIVE:
        raise ConfigError(
            [
                "--commit has no effect with --backfill conservative, which reserves a start for "
                "each job: leave one of them out"
            ]
        )
    refuse_large_jobs(log, processors)
    arrival = np.lexsort((log.job, log.submit))
    jobs = world.Jobs(
        submit=log.submit[arrival],
        run=log.run[arrival],
        requested=log.requested[arrival],
        bound=np.maximum(log.run, log.requested)[arrival],
        procs=log.procs[arrival],
    )
    run = _Run(jobs, log.job[arrival], log.user[arrival], policy, processors, backfilling, commit)
    total = 2 * len(log)
    done = 0
    step = run.ask_each_time if ask_each_time or not is_time_invariant(policy) else run.ask_once()
    while handled := step(_EVENTS_PER_CALL):
        done += handled
        advanced(done / total)
    if done != total:
        raise RuntimeError(f"the replay stopped after {done} of {total} events")
    row = np.empty_like(arrival)
    row[arrival] = np.arange(len(arrival))
    machine = run.machine
    return Replay(
        schedule=Schedule(
            submit=log.submit, start=machine.start[row], end=machine.end[row], procs=log.procs
        ),
        first_reservation=machine.first_reservation[row],
        events=total,
    )


class _Run:
    """A replay under way; rows are jobs in order of arrival."""

    def __init__(
        self,
        jobs: world.Jobs,
        numbers: NDArray[np.int64],
        users: NDArray[np.int64],
        policy: QueuePolicy,
        processors: int,
        backfilling: Backfilling,
        commit: bool,
    ) -> None:
        self.machine, self._events = world.empty_machine(jobs, processors)
        self._jobs, self._processors = jobs, processors
        self._policy = policy
        self._mode = _NUMBERS[backfilling]
        self._commit = commit
        width = len(str(int(numbers.max(initial=0))))
        self._ids = np.array([f"{number:0{width}}" for number in numbers.tolist()], dtype=object)
        self._users = np.array([str(user) for user in users.tolist()], dtype=object)
        _, self._user = np.unique(users, return_inverse=True)
        self._usage = np.zeros(self._user.max(initial=0) + 1)
        self._used_at = 0.0
        self._history = empty_history(len(self._usage))
        self._ended = np.zeros(len(numbers), dtype=np.bool_)

    def ask_once(self) -> Callable[[int], int]:
        """Ask the policy for the order of all jobs; return what runs events by it."""
        everything = np.arange(len(self._ids))
        ranks = self._order(everything, float(self._jobs.submit.max(initial=0.0)))
        ranks = ranks.astype(np.int64)

        def step(max_events: int) -> int:
            return world.advance(
                self._jobs, self.machine, self._events, ranks, self._mode, self._commit, max_events
            )

        return step

    def ask_each_time(self, max_events: int) -> int:
        """Run events, and ask the policy after each for the order of the queue."""
        for count in range(max_events):
            if not self._events.size[0]:
                return count
            subject = int(self._events.subjects[0])
            arrived = world.take_event(self._jobs, self.machine, self._events, self._mode)
            now = float(self.machine.times[world.NOW])
            if arrived == world.NO_JOB:
                self._charge(subject, now)
            queue = world.waiting(self.machine)
            if len(queue) > 1:
                queue[self._order(queue, now)] = queue.copy()
            world.schedule(self._jobs, self.machine, self._events, self._mode, self._commit)
        return max_events

    def _charge(self, job: int, now: float) -> None:
        """Note that a job has ended: add what it used to its user's usage and history."""
        self._ended[job] = True
        self._usage *= 0.5 ** ((now - self._used_at) / USAGE_HALF_LIFE_S)
        self._used_at = now
        run_s = float(self._jobs.run[job])
        self._usage[self._user[job]] += run_s * self._jobs.procs[job]
        add_run(self._history, int(self._user[job]), run_s, float(self._jobs.requested[job]))

    def _outlook(self, rows: NDArray[np.int64], now: float) -> Outlook:
        """Return the machine as one pool, with the runs on it in the order of arrival."""
        if self._mode == world.NO_BACKFILLING:
            running = np.flatnonzero(~np.isnan(self.machine.start) & ~self._ended)
        else:
            running = np.sort(self.machine.running[: self.machine.counts[world.RUNNING]])
        samples_s, weights = self._samples(rows)
        running_samples_s, running_weights = self._samples(running)
        return Outlook(
            names=("the machine",),
            pools=np.zeros(len(rows), dtype=np.int64),
            free=self.machine.counts[[world.FREE]],
            samples_s=samples_s,
            weights=weights,
            running_pools=np.zeros(len(running), dtype=np.int64),
            running_processors=self._jobs.procs[running],
            elapsed_s=now - self.machine.start[running],
            requested_s=self._jobs.requested[running],
            running_samples_s=running_samples_s,
            running_weights=running_weights,
            past=self._past(now),
        )

    def _past(self, now: float) -> PastArrivals:
        """Return what has arrived, at most the newest `MAX_PAST`."""
        seen = int(self.machine.counts[world.ARRIVED])
        rows = np.arange(max(seen - MAX_PAST, 0), seen)
        samples_s, weights = self._samples(rows)
        return PastArrivals(
            pools=np.zeros(len(rows), dtype=np.int64),
            ago_s=now - self._jobs.submit[rows],
            processors=self._jobs.procs[rows],
            requested_s=self._jobs.requested[rows],
            run_s=np.where(self._ended[rows], self._jobs.run[rows], np.nan),
            samples_s=samples_s,
            weights=weights,
        )

    def _samples(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return sample_jobs(self._history, self._user[rows], self._jobs.requested[rows])

    def _order(self, rows: NDArray[np.int64], now: float) -> NDArray[np.intp]:
        """Return the rank of each of these jobs, checked."""
        ages = now - self._jobs.submit[rows]
        ids = self._ids[rows]
        count = len(rows)
        fading = 0.5 ** ((now - self._used_at) / USAGE_HALF_LIFE_S)
        queue = Queue(
            now=_EPOCH + timedelta(seconds=min(now, _MAX_DATE_S)),
            ids=tuple(ids.tolist()),
            users=tuple(self._users[rows].tolist()),
            priorities=np.full(count, PRIORITY),
            ages_s=ages,
            waits_s=ages,
            slacks_s=np.full(count, np.nan),
            partly_running=np.zeros(count, dtype=bool),
            usage_board_s=self._usage[self._user[rows]] * fading,
            shares=np.ones(count),
            submit_times_s=self._jobs.submit[rows],
            processors=self._jobs.procs[rows],
            needs=self._jobs.procs[rows, None] / self._processors,
            free=self.machine.counts[[world.FREE]] / self._processors,
            guard_s=inf,
            estimate=lambda: self._jobs.requested[rows],
            look_out=lambda: self._outlook(rows, now),
        )
        return ranks_of(self._policy, queue, f"second {now:g} of the log")


def ranks_of(policy: QueuePolicy, queue: Queue, moment: str) -> NDArray[np.intp]:
    """Return the rank of each waiting job, shape (jobs,).

    Args:
        moment: When the policy is called, for errors.

    Raises:
        ConfigError: The policy raised an error, or its ranks are no permutation.
    """
    name, count = getattr(policy, "name", type(policy).__name__), len(queue.ids)
    try:
        ranks = np.asarray(policy.order(queue))
    except Exception as error:  # of an author we don't know: named, not passed on
        raise ConfigError([f"queue policy {name!r} failed at {moment}: {error!r}"]) from error
    if (
        ranks.shape != (count,)
        or not np.issubdtype(ranks.dtype, np.integer)
        or not np.array_equal(np.sort(ranks), np.arange(count))
    ):
        raise ConfigError(
            [
                f"queue policy {name!r} did not rank the {count} jobs that waited at {moment} "
                f"(expected: each number from 0 to {count - 1} once)"
            ]
        )
    return ranks.astype(np.intp, copy=False)


def simulated_run(
    log: Log,
    found: Replay,
    *,
    scenario: str,
    policy: str,
    processors: int,
    wall_s: float = 0.0,
) -> SimulatedRun:
    """Return a replay as a run, for the reports that all simulations share.

    Runs of the same jobs on the same number of processors have the same scenario hash, so that
    they are compared job by job.

    Args:
        log: The jobs that were replayed.
        found: What the replay led to.
        scenario: What the part of the log is called.
        policy: What the order and the backfilling are called.
        processors: Of the machine.
        wall_s: Real seconds that it took.
    """
    order = np.lexsort((log.job, log.submit))
    schedule, count = found.schedule, len(log)
    digest = hashlib.sha256(f"{processors}\n".encode())
    for column in (log.job, log.submit, log.run, log.requested, log.procs, log.user):
        digest.update(np.ascontiguousarray(column[order]).tobytes())
    times = np.concatenate([schedule.submit, schedule.start, schedule.end])
    one, none = np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    moments, row = np.unique(times, return_inverse=True)

    def after(*changes: NDArray[np.int64]) -> NDArray[np.int64]:
        change = np.bincount(row, weights=np.concatenate(changes), minlength=len(moments))
        return np.cumsum(change).astype(np.int64)

    empty = np.zeros(0, dtype=np.int64)
    return SimulatedRun(
        meta=RunMeta(
            scenario=scenario,
            scenario_hash=digest.hexdigest(),
            world="nodes",
            policy=policy,
            seed=0,
            version=__version__,
            wall_s=wall_s,
            events=found.events,
            notes=log.notes,
            figures={"processors": float(processors)},
        ),
        jobs=JobColumns(
            job=log.job[order].astype(np.str_),
            user=log.user[order].astype(np.str_),
            submit_s=schedule.submit[order],
            start_s=schedule.start[order],
            end_s=schedule.end[order],
            board=none,
            status=np.full(count, COMPLETED, dtype=np.int64),
            attempts=one,
            preemptions=none,
            deadline_s=np.full(count, np.nan),
            procs=schedule.procs[order],
        ),
        occupancy=OccupancyColumns(
            board=empty, job=empty, from_s=np.zeros(0), to_s=np.zeros(0), how=empty
        ),
        series=SeriesColumns(
            time_s=moments,
            pending=after(one, -one, none),
            running=after(none, one, -one),
            busy_share=after(none, schedule.procs, -schedule.procs) / processors,
            overloaded=np.zeros(len(moments), dtype=np.int64),
        ),
        boards=("machine",),
        families=("",),
    )
