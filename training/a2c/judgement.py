"""Judges the agent and simple rules on sequences of arrivals that no training has seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.streams import stream
from edgeyard.simulator.mixes import JobMix
from edgeyard.training import cluster_steps as world
from edgeyard.training.a2c.settings import A2cTraining
from edgeyard.training.cluster_environment import BASELINES, ClusterVectorEnv

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DEEPRM_SEED = 314159
RULES = (*BASELINES, "place", "hold")
"""``place`` places any visible job that fits within the horizon, drawn at random: an agent that is
not better has learned nothing but not to wait. ``hold`` places the shortest visible job that fits
within the horizon, a long one (longer than the mix's short jobs) only where no slot is empty or no
job is placed: short jobs then find less of the cluster taken."""
_RESAMPLES = 2000
_SPANS = 8
"""After so many times the steps with arrivals ``place`` acts instead of a policy, so that every job
ends and counts; simple rules need up to five."""

Choose = Callable[[ClusterVectorEnv, NDArray[np.float32]], Integers]
"""Returns the actions of all environments, from these and their images."""


class Sequences(NamedTuple):
    """Arrivals of some episodes.

    Attributes:
        lengths: Shape (sequences, steps): run time of the job that arrives; 0: none does.
        sizes: Shape (sequences, steps, resources).
    """

    lengths: Integers
    sizes: Integers


class Totals(NamedTuple):
    """What a policy reached on each sequence; shapes (sequences, ...).

    Attributes:
        sums: (sequences, 3): over the jobs that ended: slowdowns, turnarounds and waits in steps.
        jobs: How many ended; all but those that were lost because the backlog was full.
        arrived: How many arrived.
        unplaced: How many ``place`` had to place, because the policy had not.
    """

    sums: Floats
    jobs: Integers
    arrived: Integers
    unplaced: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A mean over all jobs; NaN where none ended.

    Attributes:
        mean: Of the jobs that ended, 95 % interval by a bootstrap of the sequences.
        low: Lower end.
        high: Upper end.
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """A row of the table.

    Attributes:
        policy: ``a2c``, ``score`` or one of `RULES`.
        slowdown: (end - arrival) / run time.
        turnaround: End - arrival, steps.
        wait: Start - arrival, steps.
        slowdown_to_sjf: Slowdown less that of ``sjf`` on the same sequences (paired).
        jobs: Over which the means are.
        unplaced: Of these, the jobs that ``place`` had to place after 8 times the steps with
            arrivals, because the policy had not; and those that were lost, which are in no mean.
    """

    policy: str
    slowdown: Figure
    turnaround: Figure
    wait: Figure
    slowdown_to_sjf: Figure
    jobs: int
    unplaced: int

    @property
    def document(self) -> dict[str, object]:
        """Return it as JSON: a figure is null where no job ended."""
        return {
            name: None if isinstance(value, dict) and np.isnan(value["mean"]) else value
            for name, value in asdict(self).items()
        }


def unseen_sequences(mix: JobMix, count: int, steps: int, seed: int = DEEPRM_SEED) -> Sequences:
    """Return sequences as DeepRM's code draws its unseen ones: with its mix and seed, the same.

    Source: hongzimao/deeprm, ``job_distribution.py``; each row is an episode, whose first step has
    no arrival.
    """
    random = np.random.RandomState(seed)
    lengths = np.zeros(count * steps, dtype=np.int64)
    sizes = np.zeros((count * steps, mix.resources), dtype=np.int64)

    def drawn_from(bounds: tuple[int, int]) -> int:
        return int(random.randint(bounds[0], bounds[1] + 1))

    for row in range(count * steps):
        if random.rand() < mix.rate:
            lengths[row] = drawn_from(mix.short if random.rand() < mix.short_share else mix.long)
            dominant = random.randint(0, mix.resources)
            for resource in range(mix.resources):
                sizes[row, resource] = drawn_from(
                    mix.dominant if resource == dominant else mix.other
                )
    rows = lengths.reshape(count, steps)
    rows[:, 0] = 0
    return Sequences(rows, sizes.reshape(count, steps, mix.resources))


def play(settings: A2cTraining, sequences: Sequences, choose: Choose) -> Totals:
    """Run each sequence until all of its jobs have ended.

    Where jobs are left after `_SPANS` times the steps with arrivals, ``place`` goes on.

    Args:
        settings: Of the cluster.
        sequences: What arrives.
        choose: The actions.
    """
    count = len(sequences.lengths)
    patience = _SPANS * settings.arrival_steps
    env = ClusterVectorEnv(count, **{**settings.cluster(), "max_steps": 2 * patience})
    images, _ = env.reset(seed=0, options={"lengths": sequences.lengths, "sizes": sequences.sizes})
    sums, jobs, unplaced = np.zeros((count, 3)), *np.zeros((2, count), dtype=np.int64)
    running, late = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    state, place = env.clusters.state, baseline("place", 0)
    while running.any():
        now_late = state.counts[:, world.NOW] >= patience
        new = running & now_late & ~late
        waiting = state.counts[:, world.VISIBLE] + state.counts[:, world.BACKLOG]
        unplaced[new], late = waiting[new], now_late
        actions = choose(env, images)
        if (running & late).any():
            actions = np.where(late, place(env, images), actions)
        images, _, terminated, truncated, _ = env.step(actions)
        ended = running & (terminated | truncated)
        for row in np.flatnonzero(ended).tolist():
            found = env.clusters.schedule(row)
            jobs[row] = len(found.end)
            sums[row] = found.slowdown.sum(), found.turnaround_s.sum(), found.wait_s.sum()
        running &= ~ended
    return Totals(sums, jobs, (sequences.lengths > 0).sum(axis=1), unplaced)


def masks_of(settings: A2cTraining, env: ClusterVectorEnv) -> NDArray[np.int8]:
    """Return what the agent may choose, shape (envs, actions)."""
    if not settings.masked:
        return np.ones((env.num_envs, env.clusters.actions), dtype=np.int8)
    masks = env.action_masks()
    if settings.place_when_idle:
        is_idle = env.clusters.state.counts[:, world.RUNNING] == 0
        masks[is_idle & masks[:, 1:].any(axis=1), 0] = 0
    return masks


def baseline(name: str, seed: int) -> Choose:
    """Return how one of `RULES` chooses."""
    random = stream(seed, "a2c", name)

    def place(env: ClusterVectorEnv, images: NDArray[np.float32]) -> Integers:
        jobs = env.action_masks()[:, 1:]
        drawn = np.where(jobs > 0, random.random(jobs.shape), 0.0)
        return np.where(jobs.any(axis=1), drawn.argmax(axis=1) + 1, 0)

    def choose(env: ClusterVectorEnv, images: NDArray[np.float32]) -> Integers:
        found = [env.clusters.choice(place, name, random) for place in range(env.num_envs)]
        return np.array(found, dtype=np.int64)

    return {"place": place, "hold": _hold}.get(name, choose)


def _hold(env: ClusterVectorEnv, images: NDArray[np.float32]) -> Integers:
    state = env.clusters.state
    is_empty = state.slots == world.NO_JOB
    lengths = np.take_along_axis(state.lengths, np.maximum(state.slots, 0), axis=1)
    must = ~is_empty.any(axis=1) | (state.counts[:, world.RUNNING] == 0)
    wanted = env.action_masks()[:, 1:] > 0
    wanted &= (lengths <= env.clusters.mix.short[1]) | must[:, None]
    ordered = np.where(wanted, lengths, np.iinfo(np.int64).max)
    return np.where(wanted.any(axis=1), ordered.argmin(axis=1) + 1, 0)


def mean_slowdown(played: Totals) -> float:
    """Return the mean over all jobs that ended; 1 where none did."""
    jobs = played.jobs.sum()
    return float(played.sums[:, 0].sum() / jobs) if jobs else 1.0


def play_beside_rules(
    settings: A2cTraining, choose: Choose, sequences: Sequences, name: str
) -> dict[str, Totals]:
    """Play an agent of a name and all `RULES` on the same sequences."""
    rules = {rule: play(settings, sequences, baseline(rule, settings.seed)) for rule in RULES}
    return {name: play(settings, sequences, choose), **rules}


def judge(played: Mapping[str, Totals]) -> list[PolicyFigures]:
    """Return the rows of policies that were played on the same sequences, one of them ``sjf``."""
    return [figures(policy, each, played["sjf"]) for policy, each in played.items()]


def slowdown_ratio(played: Totals, peer: Totals) -> Figure:
    """Return the mean slowdown relative to a peer's on the same sequences, with its interval."""
    count = len(played.jobs)
    draws = np.random.default_rng(0).integers(0, count, (_RESAMPLES, count))
    means, drawn = _means(played, draws)
    peer_means, peer_drawn = _means(peer, draws)
    return _figure(means[0] / peer_means[0], drawn[:, 0] / peer_drawn[:, 0])


def figures(name: str, played: Totals, sjf: Totals) -> PolicyFigures:
    """Return the row of a policy; both were played on the same sequences."""
    count = len(played.jobs)
    draws = np.random.default_rng(0).integers(0, count, (_RESAMPLES, count))
    means, drawn = _means(played, draws)
    other_means, other_drawn = _means(sjf, draws)
    by_measure = [_figure(means[place], drawn[:, place]) for place in range(3)]
    return PolicyFigures(
        policy=name,
        slowdown=by_measure[0],
        turnaround=by_measure[1],
        wait=by_measure[2],
        slowdown_to_sjf=_figure(means[0] - other_means[0], drawn[:, 0] - other_drawn[:, 0]),
        jobs=int(played.jobs.sum()),
        unplaced=int((played.unplaced + played.arrived - played.jobs).sum()),
    )


def _means(played: Totals, draws: Integers) -> tuple[Sequence[float], Floats]:
    """Return the means over all jobs, and those of each draw of sequences: (draws, 3).

    NaN where no job ended.
    """
    jobs = played.jobs[draws].sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        drawn = played.sums[draws].sum(axis=1) / jobs
        return (played.sums.sum(axis=0) / played.jobs.sum()).tolist(), drawn


def _figure(mean: float, drawn: Floats) -> Figure:
    known = drawn[np.isfinite(drawn)]
    low, high = np.quantile(known, (0.025, 0.975)).tolist() if len(known) else (math.nan, math.nan)
    return Figure(mean=mean, low=low, high=high)
