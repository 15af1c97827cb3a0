"""A replay as one would write it first: objects, sorted lists, one event at a time.

It shares nothing with the simulator but the rules, so that each checks the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import numpy as np

from edgeyard.simulator.schedules import Schedule
from edgeyard.training.worlds.swf import Log


@dataclass
class PlainJob:
    """A job; ``key`` is where the policy puts it."""

    number: int
    submit: float
    run: float
    requested: float
    procs: int
    key: float
    start: float = inf

    @property
    def end(self) -> float:
        return self.start + self.run

    @property
    def bound_end(self) -> float:
        return self.start + max(self.run, self.requested)


@dataclass
class PlainMachine:
    """A machine with a queue."""

    free: int
    backfilling: str
    commit: bool
    queue: list[PlainJob] = field(default_factory=list)
    running: list[PlainJob] = field(default_factory=list)
    committed: PlainJob | None = None
    limit: float = inf

    def begin(self, job: PlainJob, now: float) -> None:
        job.start = now
        self.free -= job.procs
        self.queue.remove(job)
        self.running.append(job)

    def start_jobs(self, now: float) -> None:
        self.queue.sort(key=lambda job: (job.key, job.submit, job.number))
        while self.queue:
            first = self.committed or self.queue[0]
            if first.procs > self.free:
                break
            self.begin(first, now)
            self.committed = None
        else:
            return
        if self.commit and self.committed is None:
            self.committed = first
            self.limit = self.requested_limit(first)
        if self.backfilling == "easy":
            self.easy(first, now)
        elif self.backfilling == "rlscheduler":
            for job in sorted(self.queue, key=lambda job: (job.submit, job.number)):
                if job.procs <= self.free and now + job.requested < self.limit:
                    self.begin(job, now)

    def requested_limit(self, first: PlainJob) -> float:
        free = self.free
        for job in sorted(self.running, key=lambda job: job.start + job.requested):
            free += job.procs
            if free >= first.procs:
                return job.start + job.requested
        raise AssertionError("it never fits")

    def easy(self, first: PlainJob, now: float) -> None:
        times = sorted({job.bound_end for job in self.running})
        for when in times:
            free = self.free + sum(job.procs for job in self.running if job.bound_end <= when)
            if free >= first.procs:
                break
        spare = free - first.procs
        for job in list(self.queue):
            if job is first or job.procs > self.free:
                continue
            if now + max(job.run, job.requested) <= when:
                self.begin(job, now)
            elif job.procs <= spare:
                spare -= job.procs
                self.begin(job, now)


def plain_starts(
    log: Log,
    key: Callable[[float, float, int], float],
    *,
    processors: int,
    backfilling: str,
    commit: bool,
) -> list[float]:
    """When each job starts; ``key`` is of submit time, requested time and processors."""
    columns = (log.job, log.submit, log.run, log.requested, log.procs)
    jobs = [
        PlainJob(job, submit, run, asked, procs, key(submit, asked, procs))
        for job, submit, run, asked, procs in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
    machine = PlainMachine(processors, backfilling, commit or backfilling == "rlscheduler")
    coming = sorted(jobs, key=lambda job: (job.submit, job.number))
    while coming or machine.running:
        # at one instant arrivals first; ends by end time, then in the order of their starts
        ending = min(machine.running, key=lambda job: job.end, default=None)
        if coming and (ending is None or coming[0].submit <= ending.end):
            now = coming[0].submit
            machine.queue.append(coming.pop(0))
        else:
            assert ending is not None
            now = ending.end
            machine.running.remove(ending)
            machine.free += ending.procs
        machine.start_jobs(now)
    return [job.start for job in jobs]


def max_in_use(schedule: Schedule) -> int:
    """Return how many processors were in use at the same time at most."""
    times = np.concatenate([schedule.start, schedule.end])
    change = np.concatenate([schedule.procs, -schedule.procs])
    order = np.lexsort((change, times))  # at one instant ends come first
    return int(np.cumsum(change[order]).max(initial=0))
