"""Rollouts: how a queue would run on a machine in futures that are like the past.

All times are seconds from now. Jobs start by EASY backfilling as a real pass does it: who may start
before the first is decided by the bounds of run times, which are often far above what is expected;
but each runs for as long as it is expected to. In a future, jobs arrive as they did in a part of
the past. `look_ahead` tries several orders in the same futures; it leaves the first of them only
for one whose delays are lower beyond what the futures differ by.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SQUARED_RUN, FCFS, SJF, F1, SMALLEST_AREA = range(5)
RULES = ("run² x processors", "fcfs", "sjf", "f1", "smallest area")
"""The rules that a queue is rolled out under, the base first; see `rule_keys`."""

FUTURES = 16
HORIZON_S = 4 * 3600.0
"""Time constant of delays: what is far away will be decided again."""
SPAN_S = 12 * 3600.0
"""Length of a future."""
ERRORS = 2.0
"""So many standard errors below the base is better than the base."""
MIN_PAST = 8
"""With fewer arrivals before now, or all in one instant, nothing arrives in a future."""
_FEW = 4
"""After so many futures rules are given up that are not below the base until then."""

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


class ArrivedJobs(NamedTuple):
    """The jobs that have arrived so far, the oldest first; shape (arrivals,) each.

    Attributes:
        ago_s: How long ago each arrived.
        expected_s: How long each is expected to run by what is known before it runs.
        run_s: How long it ran; where it has not ended, as ``expected_s``.
        bound_s: As of `WaitingJobs`; not below ``run_s``.
        procs: Processors.
    """

    ago_s: Floats
    expected_s: Floats
    run_s: Floats
    bound_s: Floats
    procs: Integers


@compiled
def waiting_jobs(
    submit_s: Floats,
    wait_s: Floats,
    requested_s: Floats,
    samples_s: Floats,
    weights: Floats,
    procs: Integers,
    first: NDArray[np.bool_],
) -> WaitingJobs:
    """Return the jobs that wait, expected by `expected_runs` and bounded by what they ask for.

    Args:
        submit_s: As of `WaitingJobs`, like ``wait_s``, ``procs`` and ``first``.
        requested_s: How long each asks for.
        samples_s: As of `expected_runs`, like ``weights``.
    """
    run_s, weight = expected_runs(requested_s, samples_s, weights, np.zeros(len(requested_s)))
    bound_s = np.maximum(requested_s, run_s)
    return WaitingJobs(submit_s, wait_s, run_s, bound_s, weight, procs, first.astype(np.int64))


@compiled
def running_jobs(
    elapsed_s: Floats,
    requested_s: Floats,
    samples_s: Floats,
    weights: Floats,
    procs: Integers,
) -> RunningJobs:
    """Return the jobs that run; the arguments are those of `waiting_jobs` and `expected_runs`."""
    run_s, _ = expected_runs(requested_s, samples_s, weights, elapsed_s)
    return RunningJobs(run_s - elapsed_s, np.maximum(requested_s, run_s) - elapsed_s, procs)


@compiled
def arrived_jobs(
    ago_s: Floats,
    requested_s: Floats,
    samples_s: Floats,
    weights: Floats,
    run_s: Floats,
    procs: Integers,
) -> ArrivedJobs:
    """Return the jobs that have arrived so far; the arguments are those of `waiting_jobs`.

    Args:
        ago_s: As of `ArrivedJobs`.
        run_s: How long each ran; NaN: it has not ended.
    """
    expected_s, _ = expected_runs(requested_s, samples_s, weights, np.zeros(len(requested_s)))
    lasted_s = np.where(np.isnan(run_s), expected_s, run_s)
    return ArrivedJobs(ago_s, expected_s, lasted_s, np.maximum(requested_s, lasted_s), procs)


class Work(NamedTuple):
    """Arrays that a rollout writes to, so that it allocates none; shape (jobs + running,) each.

    Attributes:
        end_s: When those that run end, ascending.
        end_procs: Processors of each of these.
        end_bound_s: Until when reservations expect each of these.
        bound_s: The same bounds, ascending.
        bound_procs: Processors of each of those.
        queue: The jobs that wait.
        rank: Place of each job in the order.
    """

    end_s: Floats
    end_procs: Integers
    end_bound_s: Floats
    bound_s: Floats
    bound_procs: Integers
    queue: Integers
    rank: Integers


@compiled
def work_for(jobs: int, running: int) -> Work:
    """Return the arrays for so many jobs."""
    count = jobs + running + 1
    return Work(
        np.zeros(count), np.zeros(count, np.int64), np.zeros(count), np.zeros(count),
        np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64),
    )  # fmt: skip


@compiled
def rule_keys(rule: int, jobs: WaitingJobs, keys: Floats) -> None:
    """Write the rule's key of each job to ``keys``; the least comes first.

    With r the expected run time, n the processors and s the submission: ``SQUARED_RUN`` r^2 n;
    ``FCFS`` s; ``SJF`` r; ``F1`` log10(r) n + 870 log10(s); ``SMALLEST_AREA`` r n.
    """
    for job in range(len(keys)):
        run_s, procs = max(jobs.run_s[job], _MIN_LOG_S), jobs.procs[job]
        if rule == SQUARED_RUN:
            keys[job] = run_s * run_s * procs
        elif rule == SJF:
            keys[job] = run_s
        elif rule == F1:
            submit_s = jobs.submit_s[job]
            since = math.log10(submit_s if submit_s > 0.0 else _MIN_LOG_S)
            keys[job] = math.log10(run_s) * procs + 870.0 * since
        elif rule == SMALLEST_AREA:
            keys[job] = run_s * procs
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
    arrive_s: Floats,
    truth_s: Floats,
    free: int,
    running: RunningJobs,
    work: Work,
    horizon_s: float,
    until_s: float,
) -> float:
    """Return the sum over the jobs of weight times the seconds that each waits from now on.

    With a horizon h a second after t seconds counts exp(-t / h). As in a replay there is a pass
    after each arrival and each end, also within one instant.

    Args:
        order: The jobs, the first to the last, also those that arrive later.
        jobs: Those that wait, then those that arrive, by their arrivals.
        arrive_s: Shape (jobs,), ascending: when each arrives; 0: it waits now.
        truth_s: Shape (jobs,): how long each runs; not above its bound.
        free: Processors that are free now.
        running: What runs, in the order of the starts.
        work: Written to.
        horizon_s: inf: all seconds count alike.
        until_s: Waits count until then.
    """
    count = len(order)
    rank, queue = work.rank, work.queue
    head, waiting = 0, 0
    for place in range(count):
        rank[order[place]] = place
        if arrive_s[order[place]] <= 0.0:
            queue[waiting] = order[place]
            waiting += 1
    coming = waiting
    begin = last = 0  # where those that run are, in `work`
    for place in range(len(running.procs)):
        left_s, bound_s = running.left_s[place], running.bound_s[place]
        _start(work, begin, last, left_s, bound_s, running.procs[place])
        last += 1
    now, cost = 0.0, 0.0
    while True:
        # start the first jobs that fit
        while waiting > 0 and jobs.procs[queue[head]] <= free:
            job = queue[head]
            head += 1
            waiting -= 1
            cost += jobs.weight[job] * _counted(arrive_s[job], now, horizon_s)
            until = now + jobs.bound_s[job]
            _start(work, begin, last, now + truth_s[job], until, jobs.procs[job])
            last += 1
            free -= jobs.procs[job]
        if waiting == 0 and coming == count:
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
                        cost += jobs.weight[job] * _counted(arrive_s[job], now, horizon_s)
                        _start(work, begin, last, now + truth_s[job], until, procs)
                        last += 1
                        free -= procs
                        continue
                queue[kept] = job
                kept += 1
            waiting = kept - head
        next_end = work.end_s[begin] if begin < last else math.inf
        next_arrival = arrive_s[coming] if coming < count else math.inf
        if min(next_end, next_arrival) > until_s or min(next_end, next_arrival) == math.inf:
            break
        if next_arrival <= next_end:
            now = next_arrival
            place = head + waiting
            while place > head and rank[queue[place - 1]] > rank[coming]:
                queue[place] = queue[place - 1]
                place -= 1
            queue[place] = coming
            waiting += 1
            coming += 1
        else:
            now = next_end
            free += work.end_procs[begin]
            _end(work, begin)
            begin += 1
    for place in range(head, head + waiting):
        cost += jobs.weight[queue[place]] * _counted(arrive_s[queue[place]], until_s, horizon_s)
    return cost


@compiled
def _counted(since_s: float, until_s: float, horizon_s: float) -> float:
    """Return the seconds of a wait, the later ones discounted."""
    if math.isinf(horizon_s):
        return until_s - since_s
    return horizon_s * (math.exp(-since_s / horizon_s) - math.exp(-until_s / horizon_s))


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
    jobs: WaitingJobs,
    running: RunningJobs,
    free: int,
    past: ArrivedJobs,
    costs: Floats,
) -> tuple[int, Integers]:
    """Roll the queue out under each rule in the same futures; return the best rule and its order.

    The base is left for the rule whose costs are the lowest of those that are below the base's by
    `ERRORS` standard errors of their differences. The future of number i of `FUTURES` is the time
    after the share (i + 1/2) / `FUTURES` of the past, which goes on at its beginning. With fewer
    than `MIN_PAST` arrivals, or all of them in one instant, there is one future, in which none
    arrives.

    Args:
        jobs: The jobs that wait, the oldest first; at least one.
        running: What runs, in the order of the starts.
        free: Processors that are free now.
        past: What has arrived so far, also the jobs that wait or run.
        costs: Shape (`RULES`, `FUTURES`): `roll_out` of each is written to it; NaN: not tried.
    """
    size, seen = len(jobs.procs), len(past.procs)
    # a burst of one instant states no rate: repeated, it would seem to come again and again
    known = seen >= MIN_PAST and past.ago_s[0] > past.ago_s[-1]
    length_s = past.ago_s[0] if known else 0.0
    futures = FUTURES if length_s > 0.0 else 1
    room = size + (seen if length_s > 0.0 else 0)
    here = _with_room(jobs, room)
    arrive_s, truth_s = np.zeros(room), np.empty(room)
    truth_s[:size] = jobs.run_s
    work = work_for(room, len(running.procs))
    now_s = jobs.submit_s[0] + jobs.wait_s[0]
    alive = np.ones(len(RULES), np.bool_)
    keys = np.empty(room)
    costs[:] = np.nan
    for future in range(futures):
        count = size
        if length_s > 0.0:
            begin_s = length_s * (future + 0.5) / FUTURES
            count = _add_arrivals(past, begin_s, here, arrive_s, truth_s, size, now_s)
        part = first_of(here, count)
        for rule in range(len(RULES)):
            if alive[rule]:
                rule_keys(rule, part, keys[:count])
                order = order_by(keys[:count], part)
                until_s = SPAN_S if length_s > 0.0 else math.inf
                costs[rule, future] = roll_out(
                    order, part, arrive_s, truth_s, free, running, work, HORIZON_S, until_s
                )
        if future == _FEW - 1:
            for rule in range(1, len(RULES)):
                alive[rule] = (costs[rule, :_FEW] - costs[0, :_FEW]).sum() < 0.0
    best, lowest = 0, 0.0
    for rule in range(1, len(RULES)):
        if alive[rule]:
            gain = costs[rule, :futures] - costs[0, :futures]
            mean = gain.mean()
            error = 0.0
            if futures > 1:
                error = math.sqrt(((gain - mean) ** 2).sum() / (futures - 1) / futures)
            if mean + ERRORS * error < 0.0 and mean < lowest:
                best, lowest = rule, mean
    rule_keys(best, jobs, keys[:size])
    return best, order_by(keys[:size], jobs)


@compiled
def _with_room(jobs: WaitingJobs, count: int) -> WaitingJobs:
    """Return the jobs in arrays for so many."""
    size = len(jobs.procs)
    found = WaitingJobs(
        np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count),
        np.zeros(count, np.int64), np.zeros(count, np.int64),
    )  # fmt: skip
    found.submit_s[:size] = jobs.submit_s
    found.wait_s[:size] = jobs.wait_s
    found.run_s[:size] = jobs.run_s
    found.bound_s[:size] = jobs.bound_s
    found.weight[:size] = jobs.weight
    found.procs[:size] = jobs.procs
    found.first[:size] = jobs.first
    return found


@compiled
def first_of(jobs: WaitingJobs, count: int) -> WaitingJobs:
    """Return the first so many of the jobs."""
    return WaitingJobs(
        jobs.submit_s[:count], jobs.wait_s[:count], jobs.run_s[:count], jobs.bound_s[:count],
        jobs.weight[:count], jobs.procs[:count], jobs.first[:count],
    )  # fmt: skip


@compiled
def _add_arrivals(
    past: ArrivedJobs,
    begin_s: float,
    jobs: WaitingJobs,
    arrive_s: Floats,
    truth_s: Floats,
    size: int,
    now_s: float,
) -> int:
    """Write what arrived after a moment of the past behind the first ``size`` jobs.

    Args:
        begin_s: The moment, after the first arrival.

    Returns:
        How many jobs there are then.
    """
    seen, length_s = len(past.procs), past.ago_s[0]
    span_s = min(SPAN_S, length_s)
    first = 0
    while first < seen and length_s - past.ago_s[first] < begin_s:
        first += 1
    count = size
    for step in range(seen):
        row = (first + step) % seen
        after_s = length_s - past.ago_s[row] - begin_s
        if step >= seen - first:
            after_s += length_s
        if after_s > span_s:
            break
        arrive_s[count] = max(after_s, 1e-9)  # not one of those that wait now
        jobs.submit_s[count] = now_s + after_s
        jobs.wait_s[count] = 0.0
        jobs.run_s[count] = past.expected_s[row]
        jobs.bound_s[count] = past.bound_s[row]
        jobs.weight[count] = 1.0 / max(past.run_s[row], MIN_RUN_S)
        jobs.procs[count] = past.procs[row]
        truth_s[count] = past.run_s[row]
        count += 1
    return count


@compiled
def expected_run(
    requested_s: float,
    samples_s: Floats,
    weights: Floats,
    elapsed_s: float,
) -> tuple[float, float]:
    """Return how long a run is expected to last in all, and its expected weight in slowdowns.

    Both are weighted means over the request and the samples that are longer than what has elapsed.
    The weight of a run of r seconds is 1 / max(r, 10). Without any, a run that has outrun its
    request is expected to outrun it by as much again, by 10 s at least.

    Args:
        requested_s: What was asked for; runs are at least 1 s long.
        samples_s: Equally likely run times where their weights are equal; NaN: none.
        weights: Shape of the samples; next to them the request has the weight 1.
        elapsed_s: For how long it runs already; 0 for a job that waits.
    """
    total, run_s, weight = 0.0, 0.0, 0.0
    max_run_s = max(requested_s, 1.0)
    if max_run_s > elapsed_s:
        total += 1.0
        run_s += max_run_s
        weight += 1.0 / max(max_run_s, MIN_RUN_S)
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
    elapsed_s: Floats,
) -> tuple[Floats, Floats]:
    """Return `expected_run` of several runs; their samples have the shape (runs, samples)."""
    count = len(requested_s)
    run_s, weight = np.empty(count), np.empty(count)
    for run in range(count):
        run_s[run], weight[run] = expected_run(
            requested_s[run], samples_s[run], weights[run], elapsed_s[run]
        )
    return run_s, weight
