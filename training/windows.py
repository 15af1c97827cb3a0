"""Windows of logs under policies that learn, replayed by one compiled loop.

A window is 1,024 consecutive jobs on an empty machine, with EASY backfilling and the queue ordered
again at each event, as `edgeyard.training.worlds.replay` does it with the plugins themselves: a
test compares the starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.compiled import compiled
from edgeyard.scheduler.kernel.queue_inputs import INPUTS, queue_inputs
from edgeyard.scheduler.kernel.rollouts import (
    FUTURES,
    RULES,
    arrived_jobs,
    expected_run,
    look_ahead,
    order_by,
    rule_keys,
    running_jobs,
    waiting_jobs,
)
from edgeyard.simulator.kernel.events import Events
from edgeyard.simulator.kernel.history import (
    SAMPLES,
    add_run,
    empty_history,
    sample_jobs,
    sample_runs,
)
from edgeyard.training.worlds import processors as world
from edgeyard.training.worlds.replay import MAX_PAST
from edgeyard.training.worlds.swf import Log

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

WINDOW_JOBS = 1024
JUDGED_STARTS = (1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085)
"""Where the judged sequences begin, counted in the kept jobs of a log; RLScheduler's protocol."""

_MIN_JOBS = 512
_MIN_WINDOWS = 8

FIFO, SHORTEST, CARASTAN_SANTOS, SMALLEST_AREA = range(4)
"""The simple rules that a learned policy is compared with."""

_GUARD_S = 30 * 86400.0
_LOOK_AHEAD = -1
"""Instead of a rule: the look-ahead."""


class Window(NamedTuple):
    """Consecutive jobs of a log.

    Attributes:
        jobs: In the order of their arrival.
        users: Shape (jobs,): numbers of their users, from 0.
        processors: Of the machine.
    """

    jobs: world.Jobs
    users: Integers
    processors: int


def window_of(log: Log, start: int, processors: int, count: int = WINDOW_JOBS) -> Window:
    """Return ``count`` jobs of a log from the one at ``start``."""
    part = log.part(start, count)
    arrival = np.lexsort((part.job, part.submit))
    _, users = np.unique(part.user[arrival], return_inverse=True)
    return Window(
        world.Jobs(
            submit=part.submit[arrival],
            run=part.run[arrival],
            requested=part.requested[arrival],
            bound=np.maximum(part.run, part.requested)[arrival],
            procs=part.procs[arrival],
        ),
        users.astype(np.int64),
        processors,
    )


def judged_windows(log: Log, processors: int) -> list[Window]:
    """Return the ten sequences on which policies are compared."""
    return [window_of(log, start, processors) for start in JUDGED_STARTS]


def training_windows(log: Log, processors: int) -> tuple[list[Window], list[Window]]:
    """Return windows for training and for validation, which overlap no judged sequence.

    Where the rest of the log is long, windows follow one another, and every fourth is for
    validation. Otherwise the windows of the first gap overlap each other, 128 jobs apart, and
    later gaps, of 512 jobs at least, are for validation.
    """
    taken = sorted((start, start + WINDOW_JOBS) for start in JUDGED_STARTS)
    gaps, place = [], 0
    for begin, end in [*taken, (len(log), len(log))]:
        until = min(begin, len(log))
        if until - place >= _MIN_JOBS:
            gaps.append((place, until))
        place = max(place, end)
    whole = [
        window_of(log, start, processors)
        for begin, end in gaps
        for start in range(begin, end - WINDOW_JOBS + 1, WINDOW_JOBS)
    ]
    if len(whole) >= _MIN_WINDOWS:
        return [each for at, each in enumerate(whole) if at % 4 != 3], whole[3::4]
    if not gaps:
        return [], []
    begin, end = gaps[0]
    starts = range(begin, max(end - WINDOW_JOBS, begin) + 1, 128)
    return (
        [window_of(log, start, processors) for start in starts],
        [
            window_of(log, start, processors, min(until - start, WINDOW_JOBS))
            for start, until in gaps[1:]
        ],
    )


def slowdowns(window: Window, end: Floats) -> Floats:
    """Return the bounded slowdown of each job."""
    jobs = window.jobs
    found: Floats = np.maximum(1.0, (end - jobs.submit) / np.maximum(jobs.run, 10.0))
    return found


def rule_ends(window: Window, rule: int) -> Floats:
    """Return when the jobs end under one of the simple rules."""
    jobs = window.jobs
    if rule == SHORTEST:
        keys = jobs.requested
    elif rule == CARASTAN_SANTOS:
        size = np.log10(np.where(jobs.requested > 0, jobs.requested, 0.1)) * jobs.procs
        keys = size + 870.0 * np.log10(np.where(jobs.submit > 0, jobs.submit, 0.1))
    elif rule == SMALLEST_AREA:
        keys = jobs.requested * jobs.procs
    else:
        keys = jobs.submit
    ranks = np.empty(len(keys), np.int64)
    ranks[np.argsort(keys, kind="stable")] = np.arange(len(keys))
    machine, events = world.empty_machine(jobs, window.processors)
    while world.advance(jobs, machine, events, ranks, world.EASY, False, 1 << 30) == 1 << 30:
        pass
    return machine.end


def spread_starts(log: Log, count: int) -> list[int]:
    """Return where so many windows begin that are evenly spread over the whole log."""
    last = max(len(log) - WINDOW_JOBS, 0)
    found: list[int] = np.unique(np.linspace(0, last, count).astype(np.int64)).tolist()
    return found


def best_rule(windows: Sequence[Window]) -> Floats:
    """Return each window's mean bounded slowdown under each simple rule, shape (windows, 3)."""
    rules = (FIFO, SHORTEST, CARASTAN_SANTOS)
    return np.array(
        [[slowdowns(each, rule_ends(each, rule)).mean() for rule in rules] for each in windows]
    )


def lookahead_ends(window: Window) -> Floats:
    """Return when the jobs end under the look-ahead."""
    return _rollout_ends(window, _LOOK_AHEAD)


def candidate_ends(window: Window, rule: int) -> Floats:
    """Return when the jobs end under one of the rules that the look-ahead chooses among.

    Args:
        window: The jobs.
        rule: Place in `RULES`. It knows of run times what the look-ahead knows.
    """
    return _rollout_ends(window, rule)


def _rollout_ends(window: Window, rule: int) -> Floats:
    machine, events = world.empty_machine(window.jobs, window.processors)
    _run_rollouts(window.jobs, window.users, machine, events, rule)
    return machine.end


@compiled
def _run_rollouts(
    jobs: world.Jobs, users: Integers, machine: world.Machine, events: Events, rule: int
) -> None:
    counts = machine.counts
    history = empty_history(users.max() + 1)
    costs = np.zeros((len(RULES), FUTURES))
    ended = np.zeros(len(jobs.submit), np.bool_)
    while events.size[0] > 0:
        subject = events.subjects[0]
        arrived = world.take_event(jobs, machine, events, world.EASY)
        if arrived == world.NO_JOB:
            ended[subject] = True
            add_run(history, users[subject], jobs.run[subject], jobs.requested[subject])
        now, head = machine.times[world.NOW], counts[world.HEAD]
        size = counts[world.WAITING]
        if size > 1 and counts[world.FREE] > 0:
            queue = np.sort(machine.queue[head : head + size])
            requested_s, wait_s = jobs.requested[queue], now - jobs.submit[queue]
            samples, weights = sample_jobs(history, users[queue], requested_s)
            waiting = waiting_jobs(
                jobs.submit[queue], wait_s, requested_s, samples, weights, jobs.procs[queue],
                wait_s >= _GUARD_S,
            )  # fmt: skip
            if rule == _LOOK_AHEAD:
                rows = np.sort(machine.running[: counts[world.RUNNING]])
                requested_s, elapsed_s = jobs.requested[rows], now - machine.start[rows]
                samples, weights = sample_jobs(history, users[rows], requested_s)
                running = running_jobs(elapsed_s, requested_s, samples, weights, jobs.procs[rows])
                rows = np.arange(max(counts[world.ARRIVED] - MAX_PAST, 0), counts[world.ARRIVED])
                requested_s, ago_s = jobs.requested[rows], now - jobs.submit[rows]
                samples, weights = sample_jobs(history, users[rows], requested_s)
                run_s = np.where(ended[rows], jobs.run[rows], np.nan)
                past = arrived_jobs(ago_s, requested_s, samples, weights, run_s, jobs.procs[rows])
                _, order = look_ahead(waiting, running, counts[world.FREE], past, costs)
            else:
                keys = np.empty(size)
                rule_keys(rule, waiting, keys)
                order = order_by(keys, waiting)
            for place in range(size):
                machine.queue[head + place] = queue[order[place]]
        world.schedule(jobs, machine, events, world.EASY, False)


@compiled
def score(weights: Floats, hidden: int, inputs: Floats, activations: Floats) -> float:
    """Return the score of a job: a dense layer with softsign, and a linear way past it.

    Args:
        weights: Shape ``(INPUTS + 1) hidden + hidden + INPUTS``: per hidden unit its inputs'
            weights and its bias; the units' weights; the linear weights.
        hidden: Units.
        inputs: Shape (`INPUTS`,).
        activations: Shape (hidden,), written to.
    """
    total, place = 0.0, 0
    out = (INPUTS + 1) * hidden
    for unit in range(hidden):
        value = weights[place + INPUTS]
        for number in range(INPUTS):
            value += weights[place + number] * inputs[number]
        activations[unit] = value / (1.0 + abs(value))
        total += weights[out + unit] * activations[unit]
        place += INPUTS + 1
    for number in range(INPUTS):
        total += weights[out + hidden + number] * inputs[number]
    return total


def weight_count(hidden: int) -> int:
    """Return how many weights a scoring function has."""
    return (INPUTS + 1) * hidden + hidden + INPUTS


def score_ends(window: Window, weights: Floats, hidden: int) -> Floats:
    """Return when the jobs end under a scoring function; the least score comes first."""
    machine, events = world.empty_machine(window.jobs, window.processors)
    gradient = np.zeros(len(weights))
    _run_score(
        window.jobs, window.users, machine, events, window.processors, weights, hidden, 0.0, 0,
        gradient,
    )  # fmt: skip
    return machine.end


def sampled_ends(
    window: Window, weights: Floats, hidden: int, temperature: float, seed: int
) -> tuple[Floats, Floats]:
    """Return when the jobs end if the first of the queue is drawn by a softmax of the scores.

    Returns:
        The ends, and the gradient of the log-likelihood of all draws by the weights.
    """
    machine, events = world.empty_machine(window.jobs, window.processors)
    gradient = np.zeros(len(weights))
    _run_score(
        window.jobs, window.users, machine, events, window.processors, weights, hidden,
        temperature, seed, gradient,
    )  # fmt: skip
    return machine.end, gradient


@compiled
def _run_score(
    jobs: world.Jobs,
    users: Integers,
    machine: world.Machine,
    events: Events,
    processors: int,
    weights: Floats,
    hidden: int,
    temperature: float,
    seed: int,
    gradient: Floats,
) -> None:
    np.random.seed(seed)
    counts = machine.counts
    history = empty_history(users.max() + 1)
    count = len(jobs.submit)
    run_s, weight = np.empty(count), np.empty(count)
    samples, sample_weights = np.empty(SAMPLES), np.empty(SAMPLES)
    known = np.full(count, -1, np.int64)
    ended = 0
    inputs, activations = np.empty((count, INPUTS)), np.empty(hidden)
    while events.size[0] > 0:
        subject = events.subjects[0]
        arrived = world.take_event(jobs, machine, events, world.EASY)
        if arrived == world.NO_JOB:
            ended += 1
            add_run(history, users[subject], jobs.run[subject], jobs.requested[subject])
        now, head = machine.times[world.NOW], counts[world.HEAD]
        size, free = counts[world.WAITING], counts[world.FREE]
        if size > 1 and free > 0:
            queue = np.sort(machine.queue[head : head + size])
            scores = np.empty(size)
            for place in range(size):
                job = queue[place]
                if known[job] != ended:
                    known[job] = ended
                    sample_runs(history, users[job], jobs.requested[job], samples, sample_weights)
                    run_s[job], weight[job] = expected_run(
                        jobs.requested[job], samples, sample_weights, 0.0
                    )
                queue_inputs(
                    jobs.requested[job], run_s[job], weight[job], jobs.procs[job],
                    now - jobs.submit[job], free, processors, size, inputs[place],
                )  # fmt: skip
                scores[place] = score(weights, hidden, inputs[place], activations)
                if now - jobs.submit[job] >= _GUARD_S:
                    scores[place] = -1e300 + jobs.submit[job]
            order = np.argsort(scores, kind="mergesort")
            if temperature > 0.0:
                first = _draw(scores, temperature, weights, hidden, inputs, activations, gradient)
                machine.queue[head] = queue[first]
                put = 1
                for place in order:
                    if place != first:
                        machine.queue[head + put] = queue[place]
                        put += 1
            else:
                for place in range(size):
                    machine.queue[head + place] = queue[order[place]]
        world.schedule(jobs, machine, events, world.EASY, False)


@compiled
def _draw(
    scores: Floats,
    temperature: float,
    weights: Floats,
    hidden: int,
    inputs: Floats,
    activations: Floats,
    gradient: Floats,
) -> int:
    """Draw who is first, by a softmax; add the gradient of its log-likelihood."""
    size = len(scores)
    chances = np.exp(-(scores - scores.min()) / temperature)
    chances /= chances.sum()
    draw, chosen = np.random.random(), size - 1
    for place in range(size):
        draw -= chances[place]
        if draw < 0.0:
            chosen = place
            break
    out = (INPUTS + 1) * hidden
    for place in range(size):
        # d log p / d score = (p - 1 for the chosen one) / temperature, as the least comes first
        factor = (chances[place] - (1.0 if place == chosen else 0.0)) / temperature
        if abs(factor) < 1e-9:
            continue
        score(weights, hidden, inputs[place], activations)
        for unit in range(hidden):
            gradient[out + unit] += factor * activations[unit]
            slope = (1.0 - abs(activations[unit])) ** 2
            inner = factor * weights[out + unit] * slope
            base = unit * (INPUTS + 1)
            for number in range(INPUTS):
                gradient[base + number] += inner * inputs[place, number]
            gradient[base + INPUTS] += inner
        for number in range(INPUTS):
            gradient[out + hidden + number] += factor * inputs[place, number]
    return chosen
