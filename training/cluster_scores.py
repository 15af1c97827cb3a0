"""A score of the visible jobs of the paper's cluster, which decides which is placed, or none.

The job with the highest score is placed if its score is above 0, or if no job is placed; time
passes otherwise. So every job ends, whatever the weights are. A score is a linear function of what
is seen of the job and of the cluster, with a few hidden units beside it. Everything is compiled
where Numba is installed: whole episodes are played in one call.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.compiled import compiled
from edgeyard.training.cluster_steps import (
    BACKLOG,
    LOST,
    MAX_SINCE_NEW,
    NO_JOB,
    RUNNING,
    VISIBLE,
    Clusters,
    act,
    all_done,
    begin,
    earliest,
)

Floats = NDArray[np.float64]

_USUAL_LENGTH = 15.0
"""Run times are divided by it: inputs are of the order of 1."""
_USUAL_JOBS = 10.0
"""Counts of jobs are divided by it."""
_SPANS = (0, 1, 4, 10)
"""Steps to come with which spans of free units begin; the last one ends with the horizon."""
_OF_JOB, _OF_CLUSTER = 7, 4
COSTS = np.array([-1.0, -1.0, -1.0, 0.0])
"""Each job in the system costs 1/T a step, whose sum is the sum of the slowdowns."""


def input_count(resources: int) -> int:
    """Return how many numbers a score sees of a job."""
    return _OF_JOB + _OF_CLUSTER + (1 + len(_SPANS)) * resources


def weight_count(resources: int, hidden: int) -> int:
    """Return how many weights a score has: the linear ones, then those of each hidden unit."""
    inputs = input_count(resources)
    return inputs + hidden * (inputs + 1)


@compiled
def see(clusters: Clusters, env: int, units: int, long: int, seen: Floats) -> None:
    """Write what a score sees of each visible job.

    In this order: 1; run time; 1 / run time; earliest start; starts at once; share of the visible
    jobs that are shorter; is long; then empty slots, backlog, placed jobs, no job is placed; then
    what the job needs of each resource, and the free share of each in spans of steps to come.

    Args:
        clusters: The environments.
        env: Which of them.
        units: Of each resource on each node.
        long: Shortest run time of long jobs, steps.
        seen: Shape (slots, inputs), written; NaN for slots whose job can't be placed.
    """
    slots, resources = clusters.slots.shape[1], clusters.free.shape[3]
    nodes, horizon = clusters.free.shape[1], clusters.free.shape[2]
    counts = clusters.counts[env]
    fixed = _OF_JOB + _OF_CLUSTER
    for slot in range(slots):
        job = clusters.slots[env, slot]
        first = earliest(clusters, env, job) if job != NO_JOB else -1
        if first < 0:
            seen[slot, :] = np.nan
            continue
        length = clusters.lengths[env, job]
        shorter = 0
        for other in range(slots):
            peer = clusters.slots[env, other]
            if peer != NO_JOB and clusters.lengths[env, peer] < length:
                shorter += 1
        seen[slot, 0] = 1.0
        seen[slot, 1] = length / _USUAL_LENGTH
        seen[slot, 2] = 1.0 / length
        seen[slot, 3] = first / horizon
        seen[slot, 4] = 1.0 if first == 0 else 0.0
        seen[slot, 5] = shorter / slots
        seen[slot, 6] = 1.0 if length >= long else 0.0
        seen[slot, 7] = (slots - counts[VISIBLE]) / slots
        seen[slot, 8] = counts[BACKLOG] / _USUAL_JOBS
        seen[slot, 9] = counts[RUNNING] / _USUAL_JOBS
        seen[slot, 10] = 1.0 if counts[RUNNING] == 0 else 0.0
        at = fixed
        for resource in range(resources):
            seen[slot, at] = clusters.sizes[env, job, resource] / units
            at += 1
        for span in range(len(_SPANS)):
            start = min(_SPANS[span], horizon - 1)
            end = horizon
            if span + 1 < len(_SPANS):
                end = max(start + 1, min(_SPANS[span + 1], horizon))
            for resource in range(resources):
                free = 0
                for node in range(nodes):
                    for step in range(start, end):
                        free += clusters.free[env, node, step, resource]
                seen[slot, at] = free / (nodes * (end - start) * units)
                at += 1


@compiled
def scored(weights: Floats, seen: Floats) -> float:
    """Return the score of one job, from what is seen of it."""
    inputs = len(seen)
    total = 0.0
    for place in range(inputs):
        total += weights[place] * seen[place]
    for unit in range((len(weights) - inputs) // (inputs + 1)):
        start = inputs + unit * (inputs + 1)
        value = 0.0
        for place in range(inputs):
            value += weights[start + place] * seen[place]
        total += weights[start + inputs] * np.tanh(value)
    return total


@compiled
def choose(
    clusters: Clusters, env: int, weights: Floats, units: int, long: int, seen: Floats
) -> int:
    """Return the slot whose job is placed; the number of slots: time passes.

    Args:
        seen: As of `see`, written.
    """
    see(clusters, env, units, long, seen)
    slots = clusters.slots.shape[1]
    best, choice = 0.0, slots
    must = clusters.counts[env, RUNNING] == 0
    for slot in range(slots):
        if np.isnan(seen[slot, 0]):
            continue
        score = scored(weights, seen[slot])
        if score > best or (must and choice == slots):
            best, choice = score, slot
    return int(choice)


@compiled
def play_all(
    clusters: Clusters, weights: Floats, units: int, long: int, costs: Floats
) -> tuple[float, int]:
    """Play an episode in each environment from its beginning to its end.

    Returns:
        The sum of the jobs' slowdowns; and how many jobs there were that were not lost.
    """
    slots = clusters.slots.shape[1]
    inputs = _OF_JOB + _OF_CLUSTER + (1 + len(_SPANS)) * clusters.free.shape[3]
    seen = np.empty((slots, inputs))
    total, jobs = 0.0, 0
    for env in range(len(clusters.counts)):
        begin(clusters, env, units)
        while not all_done(clusters, env):
            action = choose(clusters, env, weights, units, long, seen)
            reward, _ = act(clusters, env, action, units, MAX_SINCE_NEW, costs)
            total -= reward
        for job in range(clusters.lengths.shape[1]):
            if clusters.lengths[env, job] > 0:
                jobs += 1
        jobs -= clusters.counts[env, LOST]
    return total, jobs
