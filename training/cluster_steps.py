"""The paper's cluster: jobs of several resources on N nodes, in steps; many environments at once.

Jobs arrive in steps of time, at most one per step. Up to ``slots`` of them are visible; more wait
in the backlog, and those past its end are lost (and counted). An action is a visible job or "none".
A job is put on the first node, and there at the first step, at which its resources are free for as
long as it runs; it must end within the horizon. Time goes on when the action is "none", an empty
slot, or a job that fits nowhere.

Everything is in columns with the environments first, and compiled where Numba is installed.

Source: Mao, Alizadeh, Menache, Kandula, "Resource Management with Deep Reinforcement Learning",
HotNets 2016, and its code, for what the A2cScheduler paper leaves open.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.compiled import compiled

Integers = NDArray[np.int64]

NOW, VISIBLE, BACKLOG, RUNNING, LOST, SINCE_NEW, COMING = range(7)
"""Places in `Clusters.counts`: steps so far, jobs in slots, in the backlog, placed and not ended,
lost, steps since the last arrival, next row of the arrivals."""

MAX_SINCE_NEW = 10
"""Maximum of the observed number of steps since the last arrival."""

NO_JOB = -1

MOVED, PLACED = 0, 1
"""What an action did."""


class Clusters(NamedTuple):
    """State of many environments; the first axis is theirs.

    Attributes:
        lengths: Shape (envs, steps): run time of the job that arrives at a step; 0: none does.
        sizes: Shape (envs, steps, resources): what it needs.
        counts: See the constants above.
        free: Shape (envs, nodes, horizon, resources): free units now and in the steps to come.
        slots: Shape (envs, slots): steps at which the visible jobs arrived; -1: empty.
        backlog: Shape (envs, backlog): the same of those behind them, first to last.
        starts: Shape (envs, steps): when the job of a step starts; -1: not placed yet.
        nodes: Shape (envs, steps): where.
        ends: Shape (envs, steps): when it ends; -1: not placed yet.
        active: Shape (envs, steps): jobs that are placed and have not ended, in order of placement.
    """

    lengths: Integers
    sizes: Integers
    counts: Integers
    free: Integers
    slots: Integers
    backlog: Integers
    starts: Integers
    nodes: Integers
    ends: Integers
    active: Integers


def empty_clusters(
    envs: int, steps: int, *, nodes: int, resources: int, units: int, horizon: int, slots: int,
    backlog: int,
) -> Clusters:  # fmt: skip
    """Return clusters in which nothing has happened, with no arrivals."""
    shape = (envs, steps)
    return Clusters(
        lengths=np.zeros(shape, dtype=np.int64),
        sizes=np.zeros((*shape, resources), dtype=np.int64),
        counts=np.zeros((envs, 7), dtype=np.int64),
        free=np.full((envs, nodes, horizon, resources), units, dtype=np.int64),
        slots=np.full((envs, slots), NO_JOB, dtype=np.int64),
        backlog=np.full((envs, backlog), NO_JOB, dtype=np.int64),
        starts=np.full(shape, -1, dtype=np.int64),
        nodes=np.full(shape, -1, dtype=np.int64),
        ends=np.full(shape, -1, dtype=np.int64),
        active=np.full(shape, NO_JOB, dtype=np.int64),
    )


@compiled
def begin(clusters: Clusters, env: int, units: int) -> None:
    """Empty one environment; its arrivals stay."""
    clusters.counts[env, :] = 0
    clusters.free[env, :, :, :] = units
    clusters.slots[env, :] = NO_JOB
    clusters.backlog[env, :] = NO_JOB
    clusters.starts[env, :] = -1
    clusters.nodes[env, :] = -1
    clusters.ends[env, :] = -1
    clusters.active[env, :] = NO_JOB


@compiled
def _fits(clusters: Clusters, env: int, node: int, job: int, first: int) -> bool:
    """Return whether a job's resources are free from a step on, for as long as it runs."""
    for step in range(first, first + clusters.lengths[env, job]):
        for resource in range(clusters.sizes.shape[2]):
            if clusters.free[env, node, step, resource] < clusters.sizes[env, job, resource]:
                return False
    return True


@compiled
def fits_now(clusters: Clusters, env: int, job: int) -> int:
    """Return the first node on which a job could start at once; -1: on none."""
    if clusters.lengths[env, job] > clusters.free.shape[2]:
        return -1
    for node in range(clusters.free.shape[1]):
        if _fits(clusters, env, node, job, 0):
            return node
    return -1


@compiled
def earliest(clusters: Clusters, env: int, job: int) -> int:
    """Return the steps until a job could start if it is placed next; -1: beyond the horizon."""
    for first in range(clusters.free.shape[2] - clusters.lengths[env, job]):
        for node in range(clusters.free.shape[1]):
            if _fits(clusters, env, node, job, first):
                return first
    return -1


@compiled
def fits(clusters: Clusters, env: int, job: int) -> bool:
    """Return whether a job could be placed within the horizon."""
    return earliest(clusters, env, job) >= 0


@compiled
def allowed(clusters: Clusters, env: int, mask: NDArray[np.int8]) -> None:
    """Write which actions differ from "none" now, and "none" itself, which comes first.

    Args:
        mask: Shape (slots + 1,), written: 1 for none and for the slots whose job can be placed.
    """
    mask[0] = 1
    for slot in range(clusters.slots.shape[1]):
        job = clusters.slots[env, slot]
        mask[slot + 1] = 1 if job != NO_JOB and fits(clusters, env, job) else 0


@compiled
def allowed_all(clusters: Clusters, masks: NDArray[np.int8]) -> None:
    """Write `allowed` of each environment; shape (envs, slots + 1)."""
    for env in range(len(masks)):
        allowed(clusters, env, masks[env])


@compiled
def _place(clusters: Clusters, env: int, job: int) -> bool:
    """Put a job on the node where it starts first; the first of equals. Return whether one did."""
    length = clusters.lengths[env, job]
    for first in range(clusters.free.shape[2] - length):
        for node in range(clusters.free.shape[1]):
            if _fits(clusters, env, node, job, first):
                for step in range(first, first + length):
                    for resource in range(clusters.sizes.shape[2]):
                        clusters.free[env, node, step, resource] -= clusters.sizes[
                            env, job, resource
                        ]
                counts = clusters.counts[env]
                clusters.starts[env, job] = counts[NOW] + first
                clusters.ends[env, job] = counts[NOW] + first + length
                clusters.nodes[env, job] = node
                clusters.active[env, counts[RUNNING]] = job
                counts[RUNNING] += 1
                return True
    return False


@compiled
def _arrive(clusters: Clusters, env: int) -> None:
    """Let the job of the present step arrive, if there is one."""
    counts = clusters.counts[env]
    row = counts[COMING]
    if row >= clusters.lengths.shape[1] or clusters.lengths[env, row] == 0:
        return
    counts[SINCE_NEW] = 0
    for slot in range(clusters.slots.shape[1]):
        if clusters.slots[env, slot] == NO_JOB:
            clusters.slots[env, slot] = row
            counts[VISIBLE] += 1
            return
    if counts[BACKLOG] < clusters.backlog.shape[1]:
        clusters.backlog[env, counts[BACKLOG]] = row
        counts[BACKLOG] += 1
    else:
        counts[LOST] += 1


@compiled
def _pass_time(clusters: Clusters, env: int, units: int, max_since_new: int) -> None:
    """Go on to the next step."""
    counts = clusters.counts[env]
    counts[NOW] += 1
    counts[COMING] += 1
    if counts[SINCE_NEW] < max_since_new:
        counts[SINCE_NEW] += 1
    last = clusters.free.shape[2] - 1
    for node in range(clusters.free.shape[1]):
        for step in range(last):
            for resource in range(clusters.free.shape[3]):
                clusters.free[env, node, step, resource] = clusters.free[
                    env, node, step + 1, resource
                ]
        for resource in range(clusters.free.shape[3]):
            clusters.free[env, node, last, resource] = units
    kept = 0
    for place in range(counts[RUNNING]):
        job = clusters.active[env, place]
        if clusters.ends[env, job] > counts[NOW]:
            clusters.active[env, kept] = job
            kept += 1
    counts[RUNNING] = kept


@compiled
def _jobs_in_system(clusters: Clusters, env: int) -> int:
    """Return how many jobs have arrived and not ended."""
    counts = clusters.counts[env]
    return int(counts[RUNNING] + counts[VISIBLE] + counts[BACKLOG])


@compiled
def _reward(clusters: Clusters, env: int, placed: float, held: float, waiting: float) -> float:
    """Return the sum of 1/T over the jobs in the system, each with the factor of where it is."""
    counts = clusters.counts[env]
    total = 0.0
    for place in range(counts[RUNNING]):
        total += placed / clusters.lengths[env, clusters.active[env, place]]
    for slot in range(clusters.slots.shape[1]):
        if clusters.slots[env, slot] != NO_JOB:
            total += held / clusters.lengths[env, clusters.slots[env, slot]]
    for place in range(counts[BACKLOG]):
        total += waiting / clusters.lengths[env, clusters.backlog[env, place]]
    return total


@compiled
def idle_share(clusters: Clusters, env: int, units: int) -> float:
    """Return the share of all units of all nodes that no job uses in the present step, 0 to 1."""
    nodes, resources = clusters.free.shape[1], clusters.free.shape[3]
    free = 0
    for node in range(nodes):
        for resource in range(resources):
            free += clusters.free[env, node, 0, resource]
    return float(free / (nodes * resources * units))


@compiled
def act(
    clusters: Clusters,
    env: int,
    action: int,
    units: int,
    max_since_new: int,
    penalties: NDArray[np.float64],
) -> tuple[float, int]:
    """Take one action in one environment.

    Args:
        action: A slot, or the number of slots for "none".
        penalties: Shape (4,): factors of 1/T of placed, visible and backlogged jobs, and of the
            idle share of the step that passes, where a job is in the system.

    Returns:
        The reward, 0 where the action placed a job; and what the action did.
    """
    slots = clusters.slots.shape[1]
    if 0 <= action < slots and clusters.slots[env, action] != NO_JOB:
        counts = clusters.counts[env]
        if _place(clusters, env, clusters.slots[env, action]):
            if counts[BACKLOG] > 0:
                clusters.slots[env, action] = clusters.backlog[env, 0]
                counts[BACKLOG] -= 1
                for place in range(counts[BACKLOG]):
                    clusters.backlog[env, place] = clusters.backlog[env, place + 1]
                clusters.backlog[env, counts[BACKLOG]] = NO_JOB
            else:
                clusters.slots[env, action] = NO_JOB
                counts[VISIBLE] -= 1
            return 0.0, PLACED
    idle = 0.0
    if penalties[3] != 0.0 and _jobs_in_system(clusters, env) > 0:
        idle = penalties[3] * idle_share(clusters, env, units)
    _pass_time(clusters, env, units, max_since_new)
    _arrive(clusters, env)
    return idle + _reward(clusters, env, penalties[0], penalties[1], penalties[2]), MOVED


@compiled
def all_done(clusters: Clusters, env: int) -> bool:
    """Return whether nothing arrives any more and every job has ended."""
    coming = clusters.counts[env, COMING]
    return bool(coming >= clusters.lengths.shape[1] and _jobs_in_system(clusters, env) == 0)


@compiled
def draw(
    clusters: Clusters,
    env: int,
    units: int,
    max_size: int,
    max_since_new: int,
    image: NDArray[np.float32],
) -> None:
    """Draw the state: shape (horizon, width), values from 0 to 1.

    From left to right, for each resource: one block a node, ``units`` wide, of what is in use in
    each step to come (rows), then one block a slot, ``max_size`` wide, of what its job needs and
    for how long; then the backlog, a cell a job, row by row; then a column with the time since the
    last arrival.
    """
    horizon = clusters.free.shape[2]
    image[:, :] = 0.0
    column = 0
    for resource in range(clusters.free.shape[3]):
        for node in range(clusters.free.shape[1]):
            for step in range(horizon):
                used = units - clusters.free[env, node, step, resource]
                for unit in range(used):
                    image[step, column + unit] = 1.0
            column += units
        for slot in range(clusters.slots.shape[1]):
            job = clusters.slots[env, slot]
            if job != NO_JOB:
                for step in range(min(clusters.lengths[env, job], horizon)):
                    for unit in range(clusters.sizes[env, job, resource]):
                        image[step, column + unit] = 1.0
            column += max_size
    width = image.shape[1] - 1 - column
    for place in range(min(clusters.counts[env, BACKLOG], horizon * width)):
        image[place // width, column + place % width] = 1.0
    image[:, image.shape[1] - 1] = clusters.counts[env, SINCE_NEW] / max_since_new


@compiled
def summarise(clusters: Clusters, env: int, vector: NDArray[np.float32]) -> None:
    """Write DeepRM's compact observation; see ``docs/how-to/environments.md``."""
    nodes, horizon, resources = clusters.free.shape[1:]
    now, running = clusters.counts[env, NOW], clusters.counts[env, RUNNING]
    for step in range(horizon):
        vector[step] = running
    for place in range(running):
        for step in range(clusters.ends[env, clusters.active[env, place]] - now, horizon):
            vector[step] -= 1.0
    at = horizon
    for node in range(nodes):
        for resource in range(resources):
            for step in range(horizon):
                vector[at + step] = clusters.free[env, node, step, resource]
            at += horizon
    for slot in range(clusters.slots.shape[1]):
        job = clusters.slots[env, slot]
        vector[at] = 0.0 if job == NO_JOB else clusters.lengths[env, job]
        for resource in range(resources):
            vector[at + 1 + resource] = 0.0 if job == NO_JOB else clusters.sizes[env, job, resource]
        at += 1 + resources
    vector[at] = clusters.counts[env, BACKLOG]


@compiled
def step_all(
    clusters: Clusters,
    actions: Integers,
    units: int,
    max_size: int,
    max_since_new: int,
    max_steps: int,
    penalties: NDArray[np.float64],
    until_done: bool,
    images: NDArray[np.float32],
    vectors: NDArray[np.float32],
    rewards: NDArray[np.float64],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
) -> None:
    """Take one action in each environment, and draw the states that follow.

    Args:
        until_done: An episode ends when all jobs have ended; otherwise with the last arrival.
        images: Shape (envs, horizon, width), written; likewise the three that follow ``vectors``.
        vectors: Shape (envs, size), written instead of ``images`` where it is not of size 0.
    """
    for env in range(len(actions)):
        rewards[env], _ = act(clusters, env, actions[env], units, max_since_new, penalties)
        if until_done:
            terminated[env] = all_done(clusters, env)
        else:
            terminated[env] = clusters.counts[env, COMING] >= clusters.lengths.shape[1]
        truncated[env] = not terminated[env] and clusters.counts[env, NOW] > max_steps
        if vectors.shape[1]:
            summarise(clusters, env, vectors[env])
        else:
            draw(clusters, env, units, max_size, max_since_new, images[env])


@compiled
def choose_sjf(clusters: Clusters, env: int) -> int:
    """Return the slot of the shortest job that could start at once; "none" where there is none."""
    best, choice = 0, clusters.slots.shape[1]
    for slot in range(clusters.slots.shape[1]):
        job = clusters.slots[env, slot]
        if job != NO_JOB and fits_now(clusters, env, job) >= 0:
            length = clusters.lengths[env, job]
            if best == 0 or length < best:
                best, choice = length, slot
    return int(choice)


@compiled
def choose_tetris(clusters: Clusters, env: int) -> int:
    """Return the slot whose job is aligned best with what is free now, of those that fit at once.

    Source: Grandl et al., "Multi-resource Packing for Cluster Schedulers", SIGCOMM 2014.
    """
    best, choice = 0, clusters.slots.shape[1]
    for slot in range(clusters.slots.shape[1]):
        job = clusters.slots[env, slot]
        if job == NO_JOB:
            continue
        node = fits_now(clusters, env, job)
        if node >= 0:
            score = 0
            for resource in range(clusters.sizes.shape[2]):
                score += clusters.free[env, node, 0, resource] * clusters.sizes[env, job, resource]
            if score > best:
                best, choice = score, slot
    return int(choice)
