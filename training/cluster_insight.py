"""What networks are given of the paper's cluster instead of an image; compiled where Numba is.

`see_all` is what a policy may know. `know_all` is for a critic in training: it also has the time
and the arrivals that are still to come, which no policy can know.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.compiled import compiled
from edgeyard.training.cluster_scores import see
from edgeyard.training.cluster_steps import (
    BACKLOG,
    COMING,
    NO_JOB,
    NOW,
    RUNNING,
    VISIBLE,
    Clusters,
    Integers,
)

Inputs = NDArray[np.float32]

_AHEAD = np.array([1, 4, 11, 21], dtype=np.int64)
"""Steps to come with which spans of coming arrivals begin; the last one ends with the episode."""
_FREE = np.array([0, 1, 4, 10], dtype=np.int64)
"""The same of spans of free units; the last one ends with the horizon."""
_USUAL_JOBS = 10.0
"""Counts of jobs, and sums over jobs, are divided by it: inputs are of the order of 1."""
_USUAL_STEPS = 20.0
"""Work of jobs is divided by what the cluster can do in so many steps."""
_OF_TIME = 3


def knowledge_count(resources: int) -> int:
    """Return how many numbers `know_all` writes for each environment."""
    return _OF_TIME + 3 + (2 + len(_AHEAD)) * (2 + resources) + len(_FREE) * resources


@compiled
def see_all(clusters: Clusters, units: int, long: int, inputs: Inputs) -> None:
    """Write what a score sees of each visible job, 0 for slots whose job can't be placed.

    Args:
        clusters: The environments.
        units: Of each resource on each node.
        long: Shortest run time of long jobs, steps.
        inputs: Shape (envs, slots, inputs), written.
    """
    seen = np.empty((inputs.shape[1], inputs.shape[2]))
    for env in range(len(inputs)):
        see(clusters, env, units, long, seen)
        for slot in range(len(seen)):
            if np.isnan(seen[slot, 0]):
                inputs[env, slot, :] = 0.0
            else:
                inputs[env, slot, :] = seen[slot]


@compiled
def _count(
    clusters: Clusters, env: int, jobs: Integers, count: int, full: float, out: Inputs
) -> None:
    """Write how many jobs there are, their summed 1/T, and their work in each resource."""
    out[:] = 0.0
    for place in range(count):
        job = jobs[place]
        length = clusters.lengths[env, job] if job != NO_JOB else 0
        if length == 0:
            continue
        out[0] += 1.0 / _USUAL_JOBS
        out[1] += 1.0 / length / _USUAL_JOBS
        for resource in range(clusters.sizes.shape[2]):
            out[2 + resource] += length * clusters.sizes[env, job, resource] / full


@compiled
def know_all(clusters: Clusters, units: int, knowledge: Inputs) -> None:
    """Write the state of each environment, the time, and what is still to come.

    In this order: the time as a share of the steps with arrivals, capped at 2; no arrival is left;
    no job is placed; placed jobs; what placed jobs still cost, which is certain; the share of slots
    that are empty; then count, summed 1/T and work of visible jobs, of those in the backlog, and of
    those that come in each span of steps; then the free share of each resource in spans of steps.

    Args:
        clusters: The environments.
        units: Of each resource on each node.
        knowledge: Shape (envs, `knowledge_count`), written.
    """
    nodes, horizon, resources = clusters.free.shape[1:]
    steps, slots = clusters.lengths.shape[1], clusters.slots.shape[1]
    rows = np.arange(steps)
    full = nodes * units * _USUAL_STEPS
    each = 2 + resources
    for env in range(len(knowledge)):
        counts, out = clusters.counts[env], knowledge[env]
        out[0] = min(2.0, counts[NOW] / steps)
        out[1] = 1.0 if counts[COMING] >= steps else 0.0
        out[2] = 1.0 if counts[RUNNING] == 0 else 0.0
        out[3] = counts[RUNNING] / _USUAL_JOBS
        left = 0.0
        for place in range(counts[RUNNING]):
            job = clusters.active[env, place]
            left += (clusters.ends[env, job] - counts[NOW]) / clusters.lengths[env, job]
        out[4] = left / _USUAL_JOBS
        out[5] = (slots - counts[VISIBLE]) / slots
        at = 6
        _count(clusters, env, clusters.slots[env], slots, full, out[at : at + each])
        at += each
        _count(clusters, env, clusters.backlog[env], counts[BACKLOG], full, out[at : at + each])
        at += each
        for span in range(len(_AHEAD)):
            start = min(steps, counts[COMING] + _AHEAD[span])
            end = steps
            if span + 1 < len(_AHEAD):
                end = min(steps, counts[COMING] + _AHEAD[span + 1])
            _count(clusters, env, rows[start:end], end - start, full, out[at : at + each])
            at += each
        for span in range(len(_FREE)):
            start = min(_FREE[span], horizon - 1)
            end = horizon
            if span + 1 < len(_FREE):
                end = max(start + 1, min(_FREE[span + 1], horizon))
            for resource in range(resources):
                free = 0
                for node in range(nodes):
                    for step in range(start, end):
                        free += clusters.free[env, node, step, resource]
                out[at] = free / (nodes * (end - start) * units)
                at += 1
