"""Trains the paper's agent: actor-critic on episodes that run at the same time.

Each of ``envs`` environments begins its next episode when one has ended, so that the actions that
the agent learns from come from all phases of episodes. After ``n_steps`` actions in each, actor and
critic learn from them. With ``n_steps = 0`` (Monte Carlo) all episodes begin together, and the
agent learns when each has ended. All draws depend on the seed, the round and the step alone, and a
checkpoint has the state of the environments, so that a training that was killed goes on as if
nothing had happened.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.streams import stream
from edgeyard.training import cluster_steps as world
from edgeyard.training.a2c.judgement import (
    Choose,
    Sequences,
    masks_of,
    mean_slowdown,
    play,
    unseen_sequences,
)
from edgeyard.training.a2c.learning import (
    Batch,
    Learn,
    Learned,
    Weights,
    learner,
    optimiser,
    updates_of,
)
from edgeyard.training.a2c.networks import (
    Params,
    allowed_logits,
    initial_actor,
    initial_critic,
)
from edgeyard.training.a2c.settings import A2cTraining, Critic, NetworkKind, Reward
from edgeyard.training.cluster_environment import ClusterVectorEnv
from edgeyard.training.cluster_insight import know_all, knowledge_count, see_all
from edgeyard.training.cluster_scores import input_count

Images = NDArray[np.float32]
"""Observations: of the network ``compact`` vectors, of ``jobs`` a row of inputs for each slot."""
Masks = NDArray[np.int8]

_REWARD_SCALE = {
    Reward.SLOWDOWN: 0.02,
    Reward.WAITING: 0.02,
    Reward.TURNAROUND: 0.005,
    Reward.UTILISATION: 0.05,
}
"""Factor of rewards, with which returns are of the order of 1."""
_PADDING_STEPS = 64
"""Whole episodes are padded to multiples of this number of steps: each length is compiled."""
_VALIDATION_SEED = 271828
_VALIDATE_EVERY = 10
"""Generations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A generation on the learning curve: at least ``envs`` episodes that have ended.

    Attributes:
        episodes: Episodes so far.
        steps: Actions so far.
        updates: Steps of the optimisers so far.
        cpu_s: Processor time of the training so far.
        mean_return: Mean over the generation's episodes of their summed rewards, undiscounted.
        mean_slowdown: Of all jobs of these episodes that ended.
        validation: Mean slowdown of the most probable actions on the validation sequences; None:
            not measured after this generation.
    """

    episodes: int
    steps: int
    updates: int
    cpu_s: float
    mean_return: float
    mean_slowdown: float
    validation: float | None


@dataclass(kw_only=True)
class Progress:
    """The state of a training.

    Attributes:
        curve: A point for each generation.
        learned: Actor, critic, and the state of their optimisers.
        best: The actor that was best on the validation sequences.
        rounds: How often the agent has learned from a batch.
        world: The environments' state, by name.
    """

    curve: list[Point]
    learned: Learned
    best: Params
    rounds: int = 0
    world: dict[str, NDArray[Any]]

    @property
    def episodes(self) -> int:
        """Episodes so far."""
        return self.curve[-1].episodes if self.curve else 0

    @property
    def best_validation(self) -> float:
        """Slowdown of the best actor on the validation sequences; infinite before the first."""
        found = [point.validation for point in self.curve if point.validation is not None]
        return min(found, default=float("inf"))

    @property
    def result(self) -> Params:
        """The best actor; before the first validation the present one."""
        return self.learned.actor if math.isinf(self.best_validation) else self.best


class _Row(NamedTuple):
    """An action in each environment; see `Batch`."""

    seen: Images
    given: Images
    masks: Masks
    actions: NDArray[np.int64]
    chances: NDArray[np.float32]
    rewards: NDArray[np.float64]
    passed: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    weights: NDArray[np.float32]


@dataclass(kw_only=True)
class _Tally:
    """What happened in a generation so far."""

    episodes: int = 0
    total_return: float = 0.0
    slowdowns: float = 0.0
    jobs: int = 0
    steps: int = 0
    updates: int = 0


@lru_cache(maxsize=32)
def _compiled(settings: A2cTraining) -> tuple[Any, Any, Learn]:
    """Return how to draw actions, choose the most probable ones, and learn.

    Trainings that differ in what this does not read share it: see `Trainer`.
    """

    def draw(
        actor: Params, seen: jax.Array, masks: jax.Array, noise: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        logits = allowed_logits(actor, seen, masks, settings)
        actions = jnp.argmax(logits + noise, axis=1)
        shares = jax.nn.log_softmax(logits)
        return actions, jnp.take_along_axis(shares, actions[:, None], axis=1)[:, 0]

    def greedy(actor: Params, seen: jax.Array, masks: jax.Array) -> jax.Array:
        return jnp.argmax(allowed_logits(actor, seen, masks, settings), axis=1)

    return jax.jit(draw), jax.jit(greedy), learner(settings)


class Trainer:
    """A training's compiled functions and its environments."""

    def __init__(
        self,
        settings: A2cTraining,
        *,
        sequences: Sequences | None = None,
        validation: Sequences | None = None,
    ) -> None:
        """Build the environments.

        Args:
            settings: Of the training.
            sequences: Arrivals to draw episodes from; None: each is drawn from the settings' mix.
            validation: Arrivals on which the best actor is chosen; None: some of the mix.

        Raises:
            ValueError: The mix has jobs that could never run.
        """
        self.settings = settings
        self._env = ClusterVectorEnv(settings.envs, **settings.cluster())
        if sequences is not None:
            self._env.clusters.draw = _drawn_from(sequences)
        self._returns = np.zeros(settings.envs)
        self._key = jax.random.key(settings.seed)
        self._draw, self._greedy, self._learn = _compiled(
            replace(
                settings,
                seed=0,
                episodes=1,
                n_steps=0,
                reward=Reward.SLOWDOWN,
                actor_rate=1.0,
                critic_rate=1.0,
                entropy=0.0,
                anneal=False,
                validation=1,
                mix=replace(settings.mix, rate=1.0),
            )
        )
        self.validation = validation or unseen_sequences(
            settings.mix, settings.validation, settings.arrival_steps, _VALIDATION_SEED
        )

    def start(self) -> Progress:
        """Return a training that has not begun."""
        settings, env = self.settings, self._env
        images, _ = env.reset(seed=settings.seed)
        self._returns[:] = 0.0
        seen = observed(settings, env, images)
        keys = jax.random.split(jax.random.fold_in(self._key, 2**31 - 1), 2)
        actor = initial_actor(keys[0], settings, seen.shape[1:], env.clusters.actions)
        critic = initial_critic(keys[1], settings, self._given(seen).shape[1:])
        adam = optimiser()
        states = adam.init(actor), adam.init(critic)
        learned = Learned(actor=actor, critic=critic, states=states)
        return Progress(curve=[], learned=learned, best=actor, world=self._world())

    def chooser(self, actor: Params) -> Choose:
        """Return how an actor chooses in use: the most probable action."""

        def choose(env: ClusterVectorEnv, images: Images) -> NDArray[np.int64]:
            seen, masks = observed(self.settings, env, images), masks_of(self.settings, env)
            return np.asarray(self._greedy(actor, seen, masks), dtype=np.int64)

        return choose

    def train(
        self,
        progress: Progress,
        saved: Callable[[Progress], None] = lambda progress: None,
        advanced: Callable[[float], None] = lambda share: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Progress:
        """Train until all episodes are done.

        Args:
            progress: `start`, or where an earlier call with the same settings stopped; changed.
            saved: Called after each validation.
            advanced: Called after each generation with the share that is done.
            stopped: Asked before each generation; True: go no further.
        """
        self._env.restore(progress.world)
        self._returns[:] = progress.world["returns"]
        while progress.episodes < self.settings.episodes and not stopped():
            self._generation(progress)
            advanced(min(1.0, progress.episodes / self.settings.episodes))
            if progress.curve[-1].validation is not None:
                progress.world = self._world()
                saved(progress)
        progress.world = self._world()
        return progress

    def _world(self) -> dict[str, NDArray[Any]]:
        return {**self._env.snapshot(), "returns": self._returns.copy()}

    def _generation(self, progress: Progress) -> None:
        """Play and learn until as many episodes have ended as there are environments."""
        settings = self.settings
        before = progress.curve[-1] if progress.curve else None
        number, began = len(progress.curve), time.process_time()
        left = 1.0 - progress.episodes / settings.episodes if settings.anneal else 1.0
        rates = settings.actor_rate, settings.critic_rate, settings.entropy
        weights = Weights(*(left * each for each in rates))
        tally = _Tally()
        while tally.episodes < settings.envs:
            batch = self._batch(progress, tally)
            key = jax.random.fold_in(self._key, progress.rounds)
            progress.learned = self._learn(progress.learned, batch, key, weights)
            progress.rounds += 1
            tally.updates += updates_of(settings, batch.actions.size)
        episodes = (before.episodes if before else 0) + tally.episodes
        validation = None
        if (number + 1) % _VALIDATE_EVERY == 0 or episodes >= settings.episodes:
            validation = self.slowdown(progress.learned.actor, self.validation)
            if validation < progress.best_validation:
                progress.best = progress.learned.actor
        progress.curve.append(
            Point(
                episodes=episodes,
                steps=(before.steps if before else 0) + tally.steps,
                updates=(before.updates if before else 0) + tally.updates,
                cpu_s=(before.cpu_s if before else 0.0) + time.process_time() - began,
                mean_return=tally.total_return / tally.episodes,
                mean_slowdown=tally.slowdowns / tally.jobs if tally.jobs else 1.0,
                validation=validation,
            )
        )

    def slowdown(self, actor: Params, sequences: Sequences) -> float:
        """Return the mean slowdown of the jobs."""
        return mean_slowdown(play(self.settings, sequences, self.chooser(actor)))

    def _batch(self, progress: Progress, tally: _Tally) -> Batch:
        """Play with the present actor; count what has ended."""
        settings, env = self.settings, self._env
        random = stream(settings.seed, "a2c", progress.rounds)
        whole = settings.n_steps == 0
        images = env.reset()[0] if whole else env.observations()
        if whole:
            self._returns[:] = 0.0
        rows: list[_Row] = []
        running = np.ones(settings.envs, dtype=np.bool_)
        seen = observed(settings, env, images)
        given = self._given(seen)
        while running.any() if whole else len(rows) < settings.n_steps:
            row, images = self._row(progress.learned.actor, seen, given, random)
            if whole:
                row = row._replace(weights=row.weights * running)
            rows.append(row)
            self._count(row, tally)
            running &= ~(row.terminated | row.truncated)
            seen = observed(settings, env, images)
            given = self._given(seen)
        masks = masks_of(settings, env)
        padded = -(-len(rows) // _PADDING_STEPS) * _PADDING_STEPS if whole else len(rows)
        nothing = rows[-1]._replace(
            given=given,
            masks=masks,
            weights=np.zeros_like(rows[-1].weights),
            terminated=np.ones(settings.envs, np.bool_),
        )
        rows += [nothing] * (padded - len(rows))
        columns: list[Any] = [np.stack(each) for each in zip(*rows, strict=True)]
        return Batch(*(*columns, given, masks))

    def _row(
        self, actor: Params, seen: Images, given: Images, random: np.random.Generator
    ) -> tuple[_Row, Images]:
        """Take an action in each environment; return it with the observations that follow."""
        settings, env = self.settings, self._env
        weights = (~env.ended).astype(np.float32)
        masks = masks_of(settings, env)
        noise = random.gumbel(size=masks.shape).astype(np.float32)
        drawn, chances = self._draw(actor, seen, masks, noise)
        actions = np.asarray(drawn, dtype=np.int64)
        counts = env.clusters.state.counts
        time_before = counts[:, world.NOW].copy()
        images, rewards, terminated, truncated, _ = env.step(actions)
        passed = counts[:, world.NOW] != time_before
        if settings.reward is Reward.TURNAROUND:
            present = counts[:, [world.RUNNING, world.VISIBLE, world.BACKLOG]].sum(axis=1)
            rewards = np.where(passed, -present.astype(np.float64), 0.0) * weights
        row = _Row(
            seen, given, masks, actions, np.asarray(chances),
            rewards * _REWARD_SCALE[settings.reward], passed.astype(np.float32),
            np.asarray(terminated), np.asarray(truncated), weights,
        )  # fmt: skip
        return row, images

    def _count(self, row: _Row, tally: _Tally) -> None:
        """Count the rewards of a row, and the episodes that it ended."""
        tally.steps += int(row.weights.sum())
        self._returns += row.weights * row.rewards / _REWARD_SCALE[self.settings.reward]
        for place in np.flatnonzero(row.weights * (row.terminated | row.truncated)).tolist():
            found = self._env.clusters.schedule(place)
            tally.episodes += 1
            tally.slowdowns += float(found.slowdown.sum())
            tally.jobs += len(found.end)
            tally.total_return += float(self._returns[place])
            self._returns[place] = 0.0

    def _given(self, seen: Images) -> Images:
        """Return what the critic gets of the present states."""
        settings = self.settings
        if settings.critic is not Critic.INFORMED:
            return seen
        size = knowledge_count(settings.mix.resources)
        knowledge = np.empty((settings.envs, size), dtype=np.float32)
        know_all(self._env.clusters.state, settings.units, knowledge)
        return knowledge


def observed(settings: A2cTraining, env: ClusterVectorEnv, images: Images) -> Images:
    """Return what the actor sees of the present states."""
    if settings.network is not NetworkKind.JOBS:
        return images
    shape = (env.num_envs, settings.slots, input_count(settings.mix.resources))
    inputs = np.empty(shape, dtype=np.float32)
    see_all(env.clusters.state, settings.units, settings.mix.long[0], inputs)
    return inputs


def _drawn_from(
    sequences: Sequences,
) -> Callable[[np.random.Generator, int], tuple[NDArray[np.int64], NDArray[np.int64]]]:
    def draw(random: np.random.Generator, steps: int) -> tuple[NDArray[np.int64], ...]:
        row = random.integers(len(sequences.lengths))
        return sequences.lengths[row], sequences.sizes[row]

    return draw  # type: ignore[return-value]
