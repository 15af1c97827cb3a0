"""Looks ahead in the paper's cluster: each choice is played on into several drawn futures.

At each decision every choice (a visible job that can be placed, or none) is followed by a base
policy to the end of the episode, in futures whose later arrivals are drawn and common to all
choices. The base's own choice is left only for one that is better by more than some standard errors
of the paired differences.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.compiled import compiled
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.training.cluster_environment import ClusterVectorEnv
from edgeyard.training.cluster_scores import COSTS, choose, input_count
from edgeyard.training.cluster_steps import COMING, MAX_SINCE_NEW, Clusters, act, all_done
from edgeyard.training.score_trainer import ScoreTraining, clusters_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@compiled
def _copy(source: Clusters, env: int, target: Clusters) -> None:
    """Make the only environment of one set like one of another set."""
    target.lengths[0] = source.lengths[env]
    target.sizes[0] = source.sizes[env]
    target.counts[0] = source.counts[env]
    target.free[0] = source.free[env]
    target.slots[0] = source.slots[env]
    target.backlog[0] = source.backlog[env]
    target.starts[0] = source.starts[env]
    target.nodes[0] = source.nodes[env]
    target.ends[0] = source.ends[env]
    target.active[0] = source.active[env]


@compiled
def choose_ahead(
    clusters: Clusters,
    env: int,
    weights: Floats,
    units: int,
    long: int,
    costs: Floats,
    lengths: Integers,
    sizes: Integers,
    errors: float,
    scratch: Clusters,
    seen: Floats,
) -> int:
    """Return the slot whose job is placed; the number of slots: time passes.

    Args:
        weights: Of the score that is the base.
        lengths: Shape (futures, steps): run times in drawn futures; only rows that are still to
            come are used.
        sizes: Shape (futures, steps, resources).
        errors: Standard errors by which a choice must be better than the base's.
        scratch: One environment of the same shape, written.
        seen: As of `edgeyard.training.cluster_scores.see`, written.
    """
    slots = clusters.slots.shape[1]
    base = choose(clusters, env, weights, units, long, seen)
    futures = len(lengths)
    coming = clusters.counts[env, COMING]
    found = np.empty((slots + 1, futures))
    possible = np.zeros(slots + 1, dtype=np.bool_)
    possible[slots] = True
    count = 1
    for slot in range(slots):
        possible[slot] = not np.isnan(seen[slot, 0])  # as `choose` found it
        count += possible[slot]
    if count == 1:
        return int(base)
    for choice in range(slots + 1):
        if not possible[choice]:
            continue
        for future in range(futures):
            _copy(clusters, env, scratch)
            scratch.lengths[0, coming + 1 :] = lengths[future, coming + 1 :]
            scratch.sizes[0, coming + 1 :] = sizes[future, coming + 1 :]
            reward, _ = act(scratch, 0, choice, units, MAX_SINCE_NEW, costs)
            total = reward
            while not all_done(scratch, 0):
                following = choose(scratch, 0, weights, units, long, seen)
                reward, _ = act(scratch, 0, following, units, MAX_SINCE_NEW, costs)
                total += reward
            found[choice, future] = -total
    best, best_gain = base, 0.0
    for choice in range(slots + 1):
        if choice == base or not possible[choice]:
            continue
        gains = found[base] - found[choice]
        mean = gains.mean()
        error = gains.std() / np.sqrt(max(1, futures - 1))
        if mean > errors * error and mean > best_gain:
            best, best_gain = choice, mean
    return int(best)


class Lookahead:
    """A look-ahead over a trained score, as `edgeyard.training.a2c.judgement.play` needs it.

    The later arrivals of its futures are drawn from the mix that the score was trained on, anew at
    each decision; the arrivals that really follow are not seen.

    Attributes:
        decisions: How many were made.
        seconds: Processor time of all of them.
    """

    def __init__(
        self,
        settings: ScoreTraining,
        weights: Floats,
        *,
        futures: int = 16,
        errors: float = 1.0,
        seed: int = 0,
    ) -> None:
        """Decide nothing yet.

        Args:
            settings: Of the score.
            weights: Of the score, which is the base.
            futures: Drawn at each decision, 2 or more.
            errors: Standard errors by which a choice must be better than the base's.
            seed: Of all draws.

        Raises:
            ValueError: There are too few futures for a standard error.
        """
        if futures < 2:
            raise ValueError(f"futures is {futures}, expected 2 or more")
        self._settings, self._weights = settings, weights
        self._futures, self._errors, self._seed = futures, errors, seed
        self._scratch = clusters_of(settings, 1)
        self._seen = np.empty((settings.slots, input_count(settings.mix.resources)))
        self._units, self._long = settings.cluster().units, settings.mix.long[0]
        self.decisions, self.seconds = 0, 0.0

    def choose(self, env: ClusterVectorEnv, images: NDArray[np.float32]) -> Integers:
        """Return the actions of all environments."""
        began = time.process_time()
        actions = np.zeros(env.num_envs, dtype=np.int64)
        for place in range(env.num_envs):
            lengths, sizes = self._drawn(place)
            slot = choose_ahead(
                env.clusters.state,
                place,
                self._weights,
                self._units,
                self._long,
                COSTS,
                lengths,
                sizes,
                self._errors,
                self._scratch,
                self._seen,
            )
            actions[place] = 0 if slot == self._settings.slots else slot + 1
        self.decisions += env.num_envs
        self.seconds += time.process_time() - began
        return actions

    def _drawn(self, place: int) -> tuple[Integers, Integers]:
        random = stream(self._seed, "futures", self.decisions, place)
        steps = self._settings.arrival_steps
        # one long sequence, cut into futures
        lengths, sizes = self._settings.mix.arrivals(random, steps * self._futures + 1)
        return (
            lengths[1:].reshape(self._futures, steps),
            sizes[1:].reshape(self._futures, steps, -1),
        )
