"""Rollouts: how a queue would run on a machine if no further job arrived.

All times are seconds from now. The queue is in one order from the first to the last. Jobs start by
EASY backfilling as a real pass does it: who may start before the first is decided by the bounds of
run times, which are often far above what is expected; but each runs for as long as it is expected
to. `look_ahead` tries several orders and returns the one whose expected slowdowns are lowest.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FCFS, SJF, F1, SMALLEST_AREA, WFP3, RELATIVE_WAIT, CHEAPEST_AREA, CHEAPEST = range(8)
RULES = (
    *("fcfs", "sjf", "f1", "smallest area", "wfp3", "relative wait"),
    *("area per weight", "greatest weight"),
)
"""The rules that a queue is rolled out under; see `rule_keys`."""

MIN_RUN_S = 10.0
"""Minimum run time in bounded slowdowns."""
_MIN_LOG_S = 0.1
"""Minimum time in logarithms."""


class WaitingJobs(NamedTuple):
    """The jobs that wait, the oldest first; shape (jobs,) each.

    Attributes:
        submit_s: Submission on the log's own clock.
        wait_s: How long each has waited.
        run_s: How long it is expected to run, above 0.
        bound_s: How long it may run, as reservations see it; not below ``run_s``.
        weight: What a second of delay adds to its slowdown: 1 / max(run time, 10 s), expected.
        procs: Processors.
        first: 1: comes before all others, whatever the rule.
    """

    submit_s: Floats
    wait_s: Floats
    run_s: Floats
    bound_s: Floats
    weight: Floats
    procs: Integers
    first: Integers


class RunningJobs(NamedTuple):
    """The jobs that run; shape (running,) each.

    Attributes:
        left_s: How long each is expected to run yet.
        bound_s: How long it may run yet, as reservations see it; not below ``left_s``.
        procs: Processors.
    """

    left_s: Floats
    bound_s: Floats
    procs: Integers


class Work(NamedTuple):
    """Arrays that a rollout writes to, so that it allocates none; shape (jobs + running,) each.

    Attributes:
        end_s: When those that run end, ascending.
        end_procs: Processors of each of these.
        end_bound_s: Until when reservations expect each of these.
        bound_s: The same bounds, ascending.
        bound_procs: Processors of each of those.
        queue: The jobs that wait.
    """

    end_s: Floats
    end_procs: Integers
    end_bound_s: Floats
    bound_s: Floats
    bound_procs: Integers
    queue: Integers


@compiled
def work_for(jobs: int, running: int) -> Work:
    """Return the arrays for so many jobs."""
    count = jobs + running + 1
    return Work(
        np.zeros(count), np.zeros(count, np.int64), np.zeros(count), np.zeros(count),
        np.zeros(count, np.int64), np.zeros(count, np.int64),
    )  # fmt: skip


@compiled
def rule_keys(rule: int, jobs: WaitingJobs, keys: Floats) -> None:
    """Write the rule's key of each job to ``keys``; the least comes first.

    With r the expected run time, n the processors, s the submission and w the wait: ``FCFS`` s;
    ``SJF`` r; ``F1`` log10(r) n + 870 log10(s); ``SMALLEST_AREA`` r n; ``WFP3`` -(w / r)^3 n;
    ``RELATIVE_WAIT`` -((w + r) / max(r, 10)) / (r n); ``CHEAPEST_AREA`` r n / weight; ``CHEAPEST``
    1 / weight.
    """
    for job in range(len(keys)):
        run_s, procs = max(jobs.run_s[job], _MIN_LOG_S), jobs.procs[job]
        if rule == SJF:
            keys[job] = run_s
        elif rule == F1:
            submit_s = jobs.submit_s[job]
            since = math.log10(submit_s if submit_s > 0.0 else _MIN_LOG_S)
            keys[job] = math.log10(run_s) * procs + 870.0 * since
        elif rule == SMALLEST_AREA:
            keys[job] = run_s * procs
        elif rule == WFP3:
            keys[job] = -((jobs.wait_s[job] / run_s) ** 3) * procs
        elif rule == RELATIVE_WAIT:
            slowdown = (jobs.wait_s[job] + run_s) / max(run_s, MIN_RUN_S)
            keys[job] = -slowdown / (run_s * procs)
        elif rule == CHEAPEST_AREA:
            keys[job] = run_s * procs / jobs.weight[job]
        elif rule == CHEAPEST:
            keys[job] = 1.0 / jobs.weight[job]
        else:
            keys[job] = jobs.submit_s[job]


@compiled
def order_by(keys: Floats, jobs: WaitingJobs) -> Integers:
    """Return the jobs by their keys, the least first; then the older.

    Who is marked as ``first`` comes before all others, the oldest first.
    """
    order = np.argsort(keys, kind="mergesort")
    size = len(order)
    count = 0
    for job in range(size):
        count += jobs.first[job]
    if count == 0:
        return order
    found = np.empty(size, np.int64)
    place = 0
    for job in range(size):
        if jobs.first[job]:
            found[place] = job
            place += 1
    for job in order:
        if not jobs.first[job]:
            found[place] = job
            place += 1
    return found


@compiled
def roll_out(
    order: Integers,
    jobs: WaitingJobs,
    free: int,
    running: RunningJobs,
    work: Work,
    horizon_s: float,
    later: float,
    limit: float,
) -> float:
    """Return the sum over the jobs of weight times the seconds that each still waits.

    With a horizon h a delay of t seconds counts h (1 - exp(-t / h)): what is far away will be
    decided again, with the jobs that arrive until then.

    As in a replay there is a pass after each end, also within one instant.

    Args:
        order: The jobs, the first to the last.
        free: Processors that are free now.
        running: What runs, in any order.
        work: Written to.
        horizon_s: inf: all seconds count alike.
        later: Weight of the jobs that are assumed to arrive later and to wait for the start of the
            last of these.
        limit: The rollout ends as soon as the sum reaches it; something not below it is returned.
    """
    size, queue, end_s = len(order), work.queue, work.end_s
    begin = last = 0  # where those that run are, in `work`
    for place in range(len(running.procs)):
        left_s, bound_s = running.left_s[place], running.bound_s[place]
        _start(work, begin, last, left_s, bound_s, running.procs[place])
        last += 1
    for place in range(size):
        queue[place] = order[place]
    head, waiting = 0, size
    now, cost = 0.0, 0.0
    while True:
        # start the first jobs that fit
        while waiting > 0 and jobs.procs[queue[head]] <= free:
            job = queue[head]
            head += 1
            waiting -= 1
            cost += jobs.weight[job] * _discounted(now, horizon_s)
            until = now + jobs.bound_s[job]
            _start(work, begin, last, now + jobs.run_s[job], until, jobs.procs[job])
            last += 1
            free -= jobs.procs[job]
        if waiting == 0:
            return cost + later * _discounted(now, horizon_s)
        if cost >= limit:
            return cost
        if free > 0 and waiting > 1:
            when, spare = _reservation(work, begin, last, now, free, jobs.procs[queue[head]])
            kept = head + 1
            for place in range(head + 1, head + waiting):
                job = queue[place]
                procs = jobs.procs[job]
                if procs <= free:
                    until = now + jobs.bound_s[job]
                    if until <= when or procs <= spare:
                        if until > when:
                            spare -= procs
                        cost += jobs.weight[job] * _discounted(now, horizon_s)
                        _start(work, begin, last, now + jobs.run_s[job], until, procs)
                        last += 1
                        free -= procs
                        continue
                queue[kept] = job
                kept += 1
            waiting = kept - head
        if begin == last:
            return math.inf  # a job that fits no machine
        now = end_s[begin]
        free += work.end_procs[begin]
        _end(work, begin)
        begin += 1


@compiled
def _discounted(delay_s: float, horizon_s: float) -> float:
    if math.isinf(horizon_s):
        return delay_s
    return horizon_s * (1.0 - math.exp(-delay_s / horizon_s))


@compiled
def _start(work: Work, begin: int, last: int, end: float, bound: float, procs: int) -> None:
    """Insert a job among those that run, at places ``begin`` to ``last``."""
    place = last
    while place > begin and work.end_s[place - 1] > end:
        work.end_s[place] = work.end_s[place - 1]
        work.end_procs[place] = work.end_procs[place - 1]
        work.end_bound_s[place] = work.end_bound_s[place - 1]
        place -= 1
    work.end_s[place], work.end_procs[place], work.end_bound_s[place] = end, procs, bound
    place = last
    while place > begin and work.bound_s[place - 1] > bound:
        work.bound_s[place] = work.bound_s[place - 1]
        work.bound_procs[place] = work.bound_procs[place - 1]
        place -= 1
    work.bound_s[place], work.bound_procs[place] = bound, procs


@compiled
def _end(work: Work, begin: int) -> None:
    """Take the bound of the job at ``begin``, which ends, out of those from ``begin`` on."""
    bound, procs = work.end_bound_s[begin], work.end_procs[begin]
    place = begin
    while work.bound_s[place] != bound or work.bound_procs[place] != procs:
        place += 1
    while place > begin:
        work.bound_s[place] = work.bound_s[place - 1]
        work.bound_procs[place] = work.bound_procs[place - 1]
        place -= 1


@compiled
def _reservation(
    work: Work, begin: int, last: int, now: float, free: int, wanted: int
) -> tuple[float, int]:
    """Return until when the bounds have freed so many processors, and what is spare then."""
    when = now
    for place in range(begin, last):
        if free >= wanted and work.bound_s[place] > when:
            break
        free += work.bound_procs[place]
        when = work.bound_s[place]
    return when, free - wanted


@compiled
def look_ahead(
    rules: Integers,
    jobs: WaitingJobs,
    free: int,
    running: RunningJobs,
    max_jobs: int,
    horizon_s: float,
    later_jobs: float,
    costs: Floats,
    prune: bool,
) -> Integers:
    """Roll the queue out under each rule; return the order by the best, the first of equals.

    Args:
        rules: The rules to try.
        jobs: The jobs that wait, the oldest first.
        free: Processors that are free now.
        running: What runs, in any order.
        max_jobs: Only the oldest so many are rolled out; all are ordered.
        horizon_s: See `roll_out`.
        later_jobs: How many further jobs, of the mean weight of these, are assumed to wait until
            the last of these has started.
        costs: Shape (rules,): `roll_out` of each is written to it.
        prune: A rollout ends as soon as it is worse than the best before it; its cost is then a
            lower bound.
    """
    size = len(jobs.procs)
    work = work_for(size, len(running.procs))
    keys = np.empty(size)
    later = later_jobs * jobs.weight[:max_jobs].mean() if size and later_jobs > 0.0 else 0.0
    best, limit = 0, math.inf
    found = np.arange(size)
    for place in range(len(rules)):
        rule_keys(rules[place], jobs, keys)
        order = order_by(keys, jobs)
        rolled = order if size <= max_jobs else order[order < max_jobs]
        cost = roll_out(
            rolled,
            jobs,
            free,
            running,
            work,
            horizon_s,
            later,
            limit if prune else math.inf,
        )
        costs[place] = cost
        if place == 0 or cost < costs[best]:
            best, limit, found = place, cost, order
    return found


@compiled
def expected_run(
    requested_s: float,
    samples_s: Floats,
    weights: Floats,
    request_weight: float,
    elapsed_s: float,
) -> tuple[float, float]:
    """Return how long a run is expected to last in all, and its expected weight in slowdowns.

    Both are weighted means over the request and the samples that are longer than what has elapsed.
    The weight of a run of r seconds is 1 / max(r, 10). Without any, a run that has outrun its
    request is expected to outrun it by as much again, by 10 s at least.

    Args:
        requested_s: What was asked for; runs are at least 1 s long.
        samples_s: Equally likely run times where their weights are equal; NaN: none.
        weights: Shape of the samples.
        request_weight: How much the request counts next to the samples.
        elapsed_s: For how long it runs already; 0 for a job that waits.
    """
    total, run_s, weight = 0.0, 0.0, 0.0
    max_run_s = max(requested_s, 1.0)
    if max_run_s > elapsed_s:
        total += request_weight
        run_s += request_weight * max_run_s
        weight += request_weight / max(max_run_s, MIN_RUN_S)
    for place in range(len(samples_s)):
        sample = max(samples_s[place], 1.0)
        if sample > elapsed_s:  # not so for NaN
            total += weights[place]
            run_s += weights[place] * sample
            weight += weights[place] / max(sample, MIN_RUN_S)
    if total <= 0.0:
        run_s = max_run_s
        if run_s <= elapsed_s:
            run_s = elapsed_s + max(elapsed_s - max_run_s, MIN_RUN_S)
        return run_s, 1.0 / max(run_s, MIN_RUN_S)
    return run_s / total, weight / total


@compiled
def expected_runs(
    requested_s: Floats,
    samples_s: Floats,
    weights: Floats,
    request_weight: float,
    elapsed_s: Floats,
) -> tuple[Floats, Floats]:
    """Return `expected_run` of several runs; their samples have the shape (runs, samples)."""
    count = len(requested_s)
    run_s, weight = np.empty(count), np.empty(count)
    for run in range(count):
        run_s[run], weight[run] = expected_run(
            requested_s[run], samples_s[run], weights[run], request_weight, elapsed_s[run]
        )
    return run_s, weight
