"""The multi-resource world with one resource: jobs that take processors of one machine.

Everything is in columns, and every function here is compiled where Numba is installed. A caller
either lets `advance` run many events with an order that never changes, or takes the events one by
one (`take_event`), orders the queue itself (`waiting`), and lets `schedule` start jobs.

Rules. There is one scheduling pass after each event, also within one instant. At one instant jobs
arrive first, in the order of their rows; then jobs end, in the order in which they started.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.compiled import compiled
from edgeyard.simulator.kernel.events import Events, no_events, pop, push

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NO_BACKFILLING, EASY, CONSERVATIVE, RLSCHEDULER = 0, 1, 2, 3
"""Ways of backfilling; see `schedule`."""

HEAD, WAITING, RUNNING, FREE, STARTED, CHOSEN, STEPS, ENDED_EARLY, ENDED, ARRIVED = range(10)
"""Places in `Machine.counts`."""
NOW, LIMIT = 0, 1
"""Places in `Machine.times`."""

NO_JOB = -1
_END = 1 << 48
"""Ranks of ends are above it, those of arrivals below."""


class Jobs(NamedTuple):
    """Jobs in order of arrival: of their submission, then of their number; shape (jobs,) each.

    Attributes:
        submit: Seconds.
        run: Seconds that the job runs, above 0.
        requested: Seconds that its user asked for.
        bound: ``max(requested, run)``: until then reservations count on its processors being taken.
        procs: Processors, from 1 to those of the machine.
    """

    submit: Floats
    run: Floats
    requested: Floats
    bound: Floats
    procs: Integers


class Machine(NamedTuple):
    """State of the machine and its queue, and outcomes of the jobs.

    Attributes:
        counts: See the constants above: where the queue begins and how long it is, running jobs,
            free processors, jobs started so far, the committed choice, length of the profile.
        times: Now, and until when the committed choice is waited for (RLScheduler's backfilling).
        queue: Shape (jobs,): rows of waiting jobs, first to last, from place ``HEAD``.
        running: Rows of running jobs, by ``release``.
        release: Shape (jobs,): when reservations expect the end of a running job.
        start: Shape (jobs,): seconds; NaN: not yet.
        end: Shape (jobs,): seconds; NaN: not yet.
        first_reservation: Shape (jobs,): the first reservation that the job got; NaN: it needed
            none.
        reserved: Shape (jobs,): the reservation (conservative backfilling); NaN: none.
        profile_time: From each of these times to the next ...
        profile_free: ... so many processors are free by all reservations.
    """

    counts: Integers
    times: Floats
    queue: Integers
    running: Integers
    release: Floats
    start: Floats
    end: Floats
    first_reservation: Floats
    reserved: Floats
    profile_time: Floats
    profile_free: Integers


def empty_machine(jobs: Jobs, processors: int) -> tuple[Machine, Events]:
    """Return a machine without jobs, and the first arrival as the only event."""
    count = len(jobs.submit)
    at_once = min(count, processors)
    machine = Machine(
        counts=np.zeros(10, dtype=np.int64),
        times=np.zeros(2),
        queue=np.zeros(count, dtype=np.int64),
        running=np.zeros(at_once + 1, dtype=np.int64),
        release=np.full(count, np.nan),
        start=np.full(count, np.nan),
        end=np.full(count, np.nan),
        first_reservation=np.full(count, np.nan),
        reserved=np.full(count, np.nan),
        profile_time=np.zeros(2 * count + 4),
        profile_free=np.zeros(2 * count + 4, dtype=np.int64),
    )
    machine.counts[FREE] = processors
    machine.counts[CHOSEN] = NO_JOB
    events = no_events(at_once + 2)
    if count:
        machine.times[NOW] = jobs.submit[0]
        machine.profile_time[0] = jobs.submit[0]
        machine.profile_free[0] = processors
        machine.counts[STEPS] = 1
        push(events, float(jobs.submit[0]), 0, 0)
    return machine, events


def waiting(machine: Machine) -> Integers:
    """Return a view of the waiting jobs' rows, first to last; it may be written to."""
    head = machine.counts[HEAD]
    return machine.queue[head : head + machine.counts[WAITING]]


@compiled
def take_event(jobs: Jobs, machine: Machine, events: Events, backfilling: int) -> int:
    """Process the next event; an arriving job is put at the end of the queue.

    Returns:
        The row of the job that arrived; -1 if one ended.
    """
    time, rank, job = pop(events)
    counts = machine.counts
    machine.times[NOW] = time
    counts[ENDED_EARLY] = 0
    if rank < _END:
        counts[ARRIVED] += 1
        if job + 1 < len(jobs.submit):
            push(events, jobs.submit[job + 1], job + 1, job + 1)
        machine.queue[counts[HEAD] + counts[WAITING]] = job
        counts[WAITING] += 1
        return job
    counts[ENDED] += 1
    counts[FREE] += jobs.procs[job]
    counts[RUNNING] -= 1
    if backfilling != NO_BACKFILLING:
        place = 0
        while machine.running[place] != job:
            place += 1
        for other in range(place, counts[RUNNING]):
            machine.running[other] = machine.running[other + 1]
    if backfilling == CONSERVATIVE and time < machine.release[job]:
        _move_profile(machine, time)
        _change_profile(machine, time, machine.release[job], jobs.procs[job])
        counts[ENDED_EARLY] = 1
    return NO_JOB


@compiled
def _start(jobs: Jobs, machine: Machine, events: Events, backfilling: int, job: int) -> None:
    """Start a job now; the caller takes it out of the queue."""
    counts, now = machine.counts, machine.times[NOW]
    machine.start[job] = now
    machine.end[job] = now + jobs.run[job]
    counts[FREE] -= jobs.procs[job]
    push(events, machine.end[job], _END + counts[STARTED], job)
    counts[STARTED] += 1
    if backfilling != NO_BACKFILLING:
        machine.release[job] = now + (
            jobs.requested[job] if backfilling == RLSCHEDULER else jobs.bound[job]
        )
        place = counts[RUNNING]
        while place > 0 and machine.release[machine.running[place - 1]] > machine.release[job]:
            machine.running[place] = machine.running[place - 1]
            place -= 1
        machine.running[place] = job
    counts[RUNNING] += 1


@compiled
def _leave_queue(machine: Machine, place: int) -> None:
    """Take the job at a place, counted from the head, out of the queue."""
    counts = machine.counts
    head = counts[HEAD]
    for other in range(head + place, head, -1):
        machine.queue[other] = machine.queue[other - 1]
    counts[HEAD] = head + 1
    counts[WAITING] -= 1


@compiled
def schedule(jobs: Jobs, machine: Machine, events: Events, backfilling: int, commit: bool) -> None:
    """Start jobs: one scheduling pass over the queue, which is in order.

    Without backfilling jobs start first to last until one does not fit. With ``EASY`` that one
    gets a reservation, remade at each pass: the time at which enough running jobs have ended by
    their ``bound``; a later job starts now if it ends by then, or takes none of the processors
    that are needed then. With ``CONSERVATIVE`` each job gets a reservation when it arrives, which
    only ever moves to an earlier time. ``RLSCHEDULER`` is the backfilling of RLScheduler's
    environment: the reservation is made once, by requested times, and later jobs start in order of
    arrival if they end before it by their requested time.

    Args:
        commit: The first of the queue is chosen once, and stays first until it starts, wherever
            the policy would put it meanwhile; RLScheduler's backfilling always does so.
    """
    if backfilling == CONSERVATIVE:
        _schedule_conservatively(jobs, machine, events)
        return
    counts = machine.counts
    committed = commit or backfilling == RLSCHEDULER
    while counts[WAITING] > 0:
        place = 0
        if committed and counts[CHOSEN] != NO_JOB:
            while machine.queue[counts[HEAD] + place] != counts[CHOSEN]:
                place += 1
        job = machine.queue[counts[HEAD] + place]
        if jobs.procs[job] > counts[FREE]:
            if committed:
                first_time = counts[CHOSEN] == NO_JOB
                counts[CHOSEN] = job
                if first_time and backfilling == RLSCHEDULER:
                    machine.times[LIMIT] = _reservation(jobs, machine, job)[0]
                    machine.first_reservation[job] = machine.times[LIMIT]
            if backfilling == EASY:
                _backfill_easy(jobs, machine, events, job)
            elif backfilling == RLSCHEDULER:
                _backfill_rlscheduler(jobs, machine, events)
            return
        _leave_queue(machine, place)
        _start(jobs, machine, events, backfilling, job)
        counts[CHOSEN] = NO_JOB


@compiled
def _reservation(jobs: Jobs, machine: Machine, job: int) -> tuple[float, int]:
    """Return when enough running jobs are expected to have ended, and the spare processors then.

    All jobs that are expected to have ended by then count.
    """
    free = machine.counts[FREE]
    when = machine.times[NOW]
    for place in range(machine.counts[RUNNING]):
        other = machine.running[place]
        if free >= jobs.procs[job] and machine.release[other] > when:
            break
        free += jobs.procs[other]
        when = machine.release[other]
    return when, free - jobs.procs[job]


@compiled
def _backfill_easy(jobs: Jobs, machine: Machine, events: Events, first: int) -> None:
    counts, now = machine.counts, machine.times[NOW]
    if counts[FREE] == 0 and not np.isnan(machine.first_reservation[first]):
        return
    when, spare = _reservation(jobs, machine, first)
    if np.isnan(machine.first_reservation[first]):
        machine.first_reservation[first] = when
    head, kept = counts[HEAD], 0
    size = counts[WAITING]
    for place in range(size):
        job = machine.queue[head + place]
        if job != first and jobs.procs[job] <= counts[FREE]:
            in_time = now + jobs.bound[job] <= when
            if in_time or jobs.procs[job] <= spare:
                if not in_time:
                    spare -= jobs.procs[job]
                _start(jobs, machine, events, EASY, job)
                continue
        machine.queue[head + kept] = job
        kept += 1
    counts[WAITING] = kept


@compiled
def _backfill_rlscheduler(jobs: Jobs, machine: Machine, events: Events) -> None:
    counts, now = machine.counts, machine.times[NOW]
    head, size = counts[HEAD], counts[WAITING]
    by_arrival = np.sort(machine.queue[head : head + size])
    for place in range(size):
        job = by_arrival[place]
        if now + jobs.requested[job] < machine.times[LIMIT] and jobs.procs[job] <= counts[FREE]:
            _start(jobs, machine, events, RLSCHEDULER, job)
    kept = 0
    for place in range(size):
        job = machine.queue[head + place]
        if np.isnan(machine.start[job]):
            machine.queue[head + kept] = job
            kept += 1
    counts[WAITING] = kept


@compiled
def _schedule_conservatively(jobs: Jobs, machine: Machine, events: Events) -> None:
    counts, now = machine.counts, machine.times[NOW]
    _move_profile(machine, now)
    head, size = counts[HEAD], counts[WAITING]
    for place in range(size):
        job = machine.queue[head + place]
        if np.isnan(machine.reserved[job]):
            when = _earliest(machine, jobs.procs[job], jobs.bound[job])
            _change_profile(machine, when, when + jobs.bound[job], -jobs.procs[job])
            machine.reserved[job] = when
            machine.first_reservation[job] = when
    moved = counts[ENDED_EARLY] == 1
    while moved:  # each time may make room for who was looked at before
        moved = False
        for place in range(size):
            job = machine.queue[head + place]
            before = machine.reserved[job]
            if before <= now:
                continue
            _change_profile(machine, before, before + jobs.bound[job], jobs.procs[job])
            when = _earliest(machine, jobs.procs[job], jobs.bound[job])
            _change_profile(machine, when, when + jobs.bound[job], -jobs.procs[job])
            machine.reserved[job] = when
            moved = moved or when < before
    kept = 0
    for place in range(size):
        job = machine.queue[head + place]
        if machine.reserved[job] <= now and jobs.procs[job] <= counts[FREE]:
            _start(jobs, machine, events, CONSERVATIVE, job)
        else:
            machine.queue[head + kept] = job
            kept += 1
    counts[WAITING] = kept


@compiled
def _move_profile(machine: Machine, now: float) -> None:
    """Forget what the profile says of the past."""
    counts = machine.counts
    past = 0
    while past + 1 < counts[STEPS] and machine.profile_time[past + 1] <= now:
        past += 1
    if past:
        counts[STEPS] -= past
        for step in range(counts[STEPS]):
            machine.profile_time[step] = machine.profile_time[step + past]
            machine.profile_free[step] = machine.profile_free[step + past]
    machine.profile_time[0] = now


@compiled
def _earliest(machine: Machine, procs: int, seconds: float) -> float:
    """Return the first time from which so many processors are free for so long."""
    step = 0
    while True:
        while machine.profile_free[step] < procs:
            step += 1
        when = machine.profile_time[step]
        last = step + 1
        while (
            last < machine.counts[STEPS]
            and machine.profile_time[last] < when + seconds
            and machine.profile_free[last] >= procs
        ):
            last += 1
        if last >= machine.counts[STEPS] or machine.profile_time[last] >= when + seconds:
            return float(when)
        step = last


@compiled
def _split_profile(machine: Machine, when: float) -> int:
    """Let a step of the profile begin at this time; return its place."""
    counts = machine.counts
    low, high = 0, counts[STEPS]
    while low < high:
        middle = (low + high) // 2
        if machine.profile_time[middle] < when:
            low = middle + 1
        else:
            high = middle
    if low < counts[STEPS] and machine.profile_time[low] == when:
        return low
    for step in range(counts[STEPS], low, -1):
        machine.profile_time[step] = machine.profile_time[step - 1]
        machine.profile_free[step] = machine.profile_free[step - 1]
    machine.profile_time[low] = when
    machine.profile_free[low] = machine.profile_free[low - 1]
    counts[STEPS] += 1
    return low


@compiled
def _join_profile(machine: Machine, step: int) -> None:
    """Remove a step that does not differ from the one before it."""
    counts = machine.counts
    if step == 0 or step >= counts[STEPS]:
        return
    if machine.profile_free[step] != machine.profile_free[step - 1]:
        return
    counts[STEPS] -= 1
    for later in range(step, counts[STEPS]):
        machine.profile_time[later] = machine.profile_time[later + 1]
        machine.profile_free[later] = machine.profile_free[later + 1]


@compiled
def _change_profile(machine: Machine, since: float, until: float, procs: int) -> None:
    """Add processors to the profile for an interval; negative: take them."""
    first = _split_profile(machine, since)
    last = _split_profile(machine, until)
    for step in range(first, last):
        machine.profile_free[step] += procs
    _join_profile(machine, last)
    _join_profile(machine, first)


@compiled
def advance(
    jobs: Jobs,
    machine: Machine,
    events: Events,
    ranks: Integers,
    backfilling: int,
    commit: bool,
    max_events: int,
) -> int:
    """Let up to ``max_events`` events happen, each with its scheduling pass.

    Args:
        ranks: Shape (jobs,): place of each job among all; the same at every time.

    Returns:
        How many happened; fewer than ``max_events``: nothing is left to happen.
    """
    counts = machine.counts
    for count in range(max_events):
        if events.size[0] == 0:
            return count
        job = take_event(jobs, machine, events, backfilling)
        if job != NO_JOB:
            head = counts[HEAD]
            place = head + counts[WAITING] - 1
            while place > head and ranks[machine.queue[place - 1]] > ranks[job]:
                machine.queue[place] = machine.queue[place - 1]
                place -= 1
            machine.queue[place] = job
        schedule(jobs, machine, events, backfilling, commit)
    return max_events
