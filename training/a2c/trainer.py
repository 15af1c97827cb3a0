"""Trains the paper's agent: advantage actor-critic on generations of episodes.

In a generation ``envs`` episodes run at the same time. After each ``n_steps`` actions, or at the
end of the last episode of the generation, actor and critic learn from what happened since. An
episode that has ended waits for the others. All draws depend on the seed, the generation and the
step alone, so that a training that was killed goes on from its checkpoint as if nothing had
happened, and one with ``n_steps`` above the length of all episodes is Monte Carlo.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.training import cluster_steps as world
from edgeyard.training.a2c.judgement import (
    Choose,
    Sequences,
    baseline,
    masks_of,
    mean_slowdown,
    play,
    unseen_sequences,
)
from edgeyard.training.a2c.networks import (
    Batch,
    Params,
    actor_loss,
    allowed_logits,
    critic_loss,
    imitation_loss,
    initial,
    targets,
)
from edgeyard.training.a2c.settings import A2cTraining, Critic, Reward
from edgeyard.training.checkpoint import loaded_checkpoint, save_checkpoint
from edgeyard.training.cluster_environment import ClusterVectorEnv

Images = NDArray[np.float32]
"""Observations: of the network ``compact`` vectors."""
Masks = NDArray[np.int8]

_REWARD_SCALE = {
    Reward.SLOWDOWN: 0.02,
    Reward.WAITING: 0.02,
    Reward.TURNAROUND: 0.005,
    Reward.UTILISATION: 0.05,
}
"""Factor of rewards, with which returns are of the order of 1."""
_MAX_NORM = 1.0
"""Maximum norm of a gradient."""
_IMITATION_RATE = 10.0
"""Factor of the actor's learning rate while it imitates, because its gradients have no noise."""
_PADDING_STEPS = 64
"""Episodes are padded to multiples of this number of steps, because each length is compiled."""
_VALIDATION_SEED = 271828
_VALIDATION_SPANS = 8
"""An actor that leaves jobs waiting for so many times the steps with arrivals is not used; simple
rules need up to five. Without a bound, actors that hardly place anything would take long."""
_VALIDATE_EVERY = 5
"""Generations."""
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A generation on the learning curve.

    Attributes:
        episodes: Episodes so far.
        steps: Actions so far.
        updates: How often the agent has learned so far.
        cpu_s: Processor time of the training so far.
        mean_return: Mean over the generation's episodes of their summed rewards, undiscounted.
        mean_slowdown: Of all jobs of the generation that ended.
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
        actor: Parameters of the policy.
        critic: Those of the estimates.
        best: The actor that was best on the validation sequences.
        states: Of the optimisers of actor and critic.
    """

    curve: list[Point]
    actor: Params
    critic: Params
    best: Params
    states: tuple[Any, Any]

    @property
    def episodes(self) -> int:
        """How many have been done."""
        return self.curve[-1].episodes if self.curve else 0

    @property
    def best_validation(self) -> float:
        """Mean slowdown of the best actor on the validation sequences."""
        found = [each.validation for each in self.curve if each.validation is not None]
        return min(found, default=float("inf"))

    @property
    def result(self) -> Params:
        """The best actor; the last one where none ended all jobs of the validation sequences."""
        return self.best if math.isfinite(self.best_validation) else self.actor


def _optimisers(settings: A2cTraining) -> tuple[Any, ...]:
    """Return those of actor and critic."""
    return tuple(
        optax.chain(optax.clip_by_global_norm(_MAX_NORM), optax.adam(rate))
        for rate in (settings.actor_rate, settings.critic_rate)
    )


@lru_cache(maxsize=8)
def _compiled(settings: A2cTraining) -> tuple[Any, Any, Any, Any]:
    """Return how an actor samples actions, takes the most probable ones, learns, and imitates.

    Args:
        settings: Of which these functions depend on networks, critic, rates and weights alone.
    """
    optimisers = _optimisers(settings)

    def sample(actor: Params, images: jax.Array, masks: jax.Array, key: jax.Array) -> jax.Array:
        return jax.random.categorical(key, allowed_logits(actor, images, masks, settings))

    def greedy(actor: Params, images: jax.Array, masks: jax.Array) -> jax.Array:
        return jnp.argmax(allowed_logits(actor, images, masks, settings), axis=1)

    def learn(
        actor: Params, critic: Params, states: tuple[Any, Any], batch: Batch, left: float
    ) -> tuple[Params, Params, tuple[Any, Any]]:
        wanted = targets(critic, batch, settings)
        slopes = jax.grad(actor_loss)(actor, critic, batch, wanted, settings, left)
        return step(actor, critic, states, (slopes, wanted), batch, (left, left))

    def imitate(
        actor: Params, critic: Params, states: tuple[Any, Any], batch: Batch, left: float
    ) -> tuple[Params, Params, tuple[Any, Any]]:
        wanted = targets(critic, batch, settings)
        slopes = jax.grad(imitation_loss)(actor, batch, settings)
        return step(actor, critic, states, (slopes, wanted), batch, (_IMITATION_RATE * left, left))

    def step(
        actor: Params,
        critic: Params,
        states: tuple[Any, Any],
        learned: tuple[Params, jax.Array],
        batch: Batch,
        factors: tuple[float, float],
    ) -> tuple[Params, Params, tuple[Any, Any]]:
        slopes, wanted = learned
        critic_slopes = jax.grad(critic_loss)(critic, batch, wanted, settings)
        actor_change, actor_state = optimisers[0].update(slopes, states[0], actor)
        critic_change, critic_state = optimisers[1].update(critic_slopes, states[1], critic)
        actor_change = jax.tree.map(lambda change: factors[0] * change, actor_change)
        critic_change = jax.tree.map(lambda change: factors[1] * change, critic_change)
        return (
            optax.apply_updates(actor, actor_change),
            optax.apply_updates(critic, critic_change),
            (actor_state, critic_state),
        )

    return jax.jit(sample), jax.jit(greedy), jax.jit(learn), jax.jit(imitate)


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
        self._sequences = sequences
        self._env = ClusterVectorEnv(settings.envs, **settings.cluster())
        self._shape = self._env.clusters.observations.shape[1:]
        self._key = jax.random.key(settings.seed)
        self._sample, self._greedy, self._learn, self._imitate = _compiled(
            replace(
                settings,
                seed=0,
                episodes=1,
                imitation_episodes=0,
                n_steps=0,
                reward=Reward.SLOWDOWN,
            )
        )
        self.validation = validation or unseen_sequences(
            settings.mix, settings.validation, settings.arrival_steps, _VALIDATION_SEED
        )

    def start(self) -> Progress:
        """Return a training that has not begun."""
        actions = self._env.clusters.actions
        outputs = actions if self.settings.critic is Critic.Q else 1
        keys = jax.random.split(jax.random.fold_in(self._key, 2**31 - 1), 2)
        actor = initial(keys[0], self.settings, self._shape, actions)
        critic = initial(keys[1], self.settings, self._shape, outputs)
        optimisers = _optimisers(self.settings)
        states = optimisers[0].init(actor), optimisers[1].init(critic)
        return Progress(curve=[], actor=actor, critic=critic, best=actor, states=states)

    def chooser(self, actor: Params) -> Choose:
        """Return how an actor chooses in use: the most probable action."""

        def choose(env: ClusterVectorEnv, images: Images) -> NDArray[np.int64]:
            return np.asarray(self._greedy(actor, images, self._masks(env)), dtype=np.int64)

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
        while progress.episodes < self.settings.episodes and not stopped():
            self._generation(progress)
            advanced(min(1.0, progress.episodes / self.settings.episodes))
            if progress.curve[-1].validation is not None:
                saved(progress)
        return progress

    def _generation(self, progress: Progress) -> None:
        settings, env = self.settings, self._env
        before = progress.curve[-1] if progress.curve else None
        number = len(progress.curve)
        began = time.process_time()
        key = jax.random.fold_in(self._key, number)
        teacher = baseline("hold", settings.seed)
        done = before.episodes if before else 0
        imitating = done < settings.imitation_episodes
        images = self._begin(number, 1 if imitating else settings.same_arrivals)
        learn = self._imitate if imitating else self._learn
        left = 1.0 - done / settings.episodes if settings.anneal else 1.0
        running = np.ones(settings.envs, dtype=np.bool_)
        total, slowdowns, jobs, steps, updates, step = 0.0, 0.0, 0, 0, 0, 0
        while running.any():
            rows: list[tuple[NDArray[Any], ...]] = []
            while running.any() and (not settings.n_steps or len(rows) < settings.n_steps):
                masks = self._masks(env)
                if imitating:
                    actions = teacher(env, images)
                else:
                    drawn = jax.random.fold_in(key, step)
                    actions = np.asarray(self._sample(progress.actor, images, masks, drawn))
                time_before = env.clusters.state.counts[:, world.NOW].copy()
                following, rewards, terminated, truncated, _ = env.step(actions)
                if settings.reward is Reward.TURNAROUND:
                    rewards = self._jobs_in_system(time_before)
                ended = terminated | truncated
                rows.append((images, masks, actions, rewards, ended, running.copy(), time_before))
                total += float(rewards[running].sum())
                steps += int(running.sum())
                for place in np.flatnonzero(ended & running).tolist():
                    found = env.clusters.schedule(place)
                    slowdowns += float(found.slowdown.sum())
                    jobs += len(found.end)
                running &= ~ended
                images = following
                step += 1
            progress.actor, progress.critic, progress.states = learn(
                progress.actor, progress.critic, progress.states, self._batch(rows, images), left
            )
            updates += 1
        episodes = done + settings.envs
        validation = None
        if (number + 1) % _VALIDATE_EVERY == 0 or episodes >= settings.episodes:
            validation = self.slowdown(progress.actor, self.validation)
            if validation < progress.best_validation:
                progress.best = progress.actor
        progress.curve.append(
            Point(
                episodes=episodes,
                steps=(before.steps if before else 0) + steps,
                updates=(before.updates if before else 0) + updates,
                cpu_s=(before.cpu_s if before else 0.0) + time.process_time() - began,
                mean_return=total / settings.envs,
                mean_slowdown=slowdowns / jobs if jobs else 1.0,
                validation=validation,
            )
        )

    def _begin(self, number: int, same_arrivals: int) -> Images:
        """Begin the episodes of a generation and return what is observed.

        Args:
            same_arrivals: Episodes that get the same arrivals.
        """
        settings = self.settings
        random = stream(settings.seed, "a2c", number)
        seed = int(random.integers(2**31))
        groups = -(-settings.envs // same_arrivals)
        if self._sequences is not None:
            drawn = random.integers(len(self._sequences.lengths), size=groups)
            lengths, sizes = self._sequences.lengths[drawn], self._sequences.sizes[drawn]
        elif same_arrivals > 1:
            each = [settings.mix.arrivals(random, settings.arrival_steps) for _ in range(groups)]
            lengths = np.stack([found[0] for found in each])
            sizes = np.stack([found[1] for found in each])
        else:
            images, _ = self._env.reset(seed=seed)
            return images
        group = np.arange(settings.envs) // same_arrivals
        images, _ = self._env.reset(
            seed=seed, options={"lengths": lengths[group], "sizes": sizes[group]}
        )
        return images

    @property
    def max_validation_steps(self) -> int:
        """Steps after which jobs that have not ended on the validation sequences disqualify."""
        return _VALIDATION_SPANS * self.settings.arrival_steps

    def slowdown(self, actor: Params, sequences: Sequences) -> float:
        """Return the mean slowdown of the jobs; infinite where some do not end in time."""
        played = play(self.settings, sequences, self.chooser(actor), self.max_validation_steps)
        return mean_slowdown(played) if (played.jobs == played.arrived).all() else float("inf")

    def _jobs_in_system(self, time_before: NDArray[np.int64]) -> NDArray[np.float64]:
        counts = self._env.clusters.state.counts
        present = counts[:, [world.RUNNING, world.VISIBLE, world.BACKLOG]].sum(axis=1)
        return np.where(counts[:, world.NOW] != time_before, -present.astype(np.float64), 0.0)

    def _masks(self, env: ClusterVectorEnv) -> Masks:
        return masks_of(self.settings, env)

    def _batch(self, rows: list[tuple[NDArray[Any], ...]], images: Images) -> Batch:
        """Stack steps and pad them to a length that was compiled before."""
        settings, length = self.settings, len(rows)
        padded = -(-length // _PADDING_STEPS) * _PADDING_STEPS
        if settings.n_steps:
            padded = min(padded, settings.n_steps)
        columns = [np.stack(each) for each in zip(*rows, strict=True)]
        more = padded - length
        columns = [np.concatenate([each, np.repeat(each[-1:], more, axis=0)]) for each in columns]
        seen, masks, actions, rewards, ended, weights, times = columns
        if more:
            weights[length:] = False
            ended[length:] = True
        return Batch(
            images=seen,
            masks=masks,
            actions=actions,
            rewards=(rewards * _REWARD_SCALE[settings.reward]).astype(np.float32),
            ended=ended,
            weights=weights.astype(np.float32),
            times=times,
            last_images=images,
            last_masks=self._masks(self._env),
            places=float(length * settings.envs),
        )


def curve_csv(curve: list[Point]) -> str:
    """Return the learning curve as CSV, a line for each generation."""
    lines = ["episodes,steps,updates,cpu_s,mean_return,mean_slowdown,validation_slowdown"]
    for each in curve:
        validation = "" if each.validation is None else f"{each.validation:.4f}"
        lines.append(
            f"{each.episodes},{each.steps},{each.updates},{each.cpu_s:.2f},"
            f"{each.mean_return:.4f},{each.mean_slowdown:.4f},{validation}"
        )
    return "\n".join(lines) + "\n"


def save_progress(path: Path, progress: Progress, settings: A2cTraining) -> None:
    """Write a checkpoint, which replaces the file as a whole or not at all."""
    header = {
        "format": _FORMAT,
        "settings": _comparable(settings),
        "curve": [asdict(point) for point in progress.curve],
    }
    leaves = jax.tree.leaves(_tree(progress))
    arrays = {f"array_{place}": np.asarray(leaf) for place, leaf in enumerate(leaves)}
    save_checkpoint(path, header, arrays)


def load_progress(path: Path, trainer: Trainer) -> Progress:
    """Read a checkpoint of the same training, which may go on for more episodes than before.

    Raises:
        InvalidInput: It is no checkpoint, or one of another training.
    """
    settings = trainer.settings
    start = trainer.start()
    leaves, structure = jax.tree.flatten(_tree(start))
    with loaded_checkpoint(path) as (header, arrays):
        known = header["format"], header["settings"]
        curve = [Point(**point) for point in header["curve"]]
        same = known == (_FORMAT, _comparable(settings))
        found = [arrays[f"array_{place}"] for place in range(len(leaves))] if same else []
    if not same:
        raise InvalidInput.at(
            "--out",
            f"{path} belongs to a training with {_differences(known[1], settings)}",
            "the same settings, or another folder",
        )
    if [each.shape for each in found] != [np.shape(leaf) for leaf in leaves]:
        raise InvalidInput.at(
            "--out", f"{path} holds arrays of other shapes than this network's", "another folder"
        )
    tree = jax.tree.unflatten(structure, [jnp.asarray(each) for each in found])
    actor, critic, best, states = tree
    return Progress(curve=curve, actor=actor, critic=critic, best=best, states=states)


def _tree(progress: Progress) -> tuple[Any, ...]:
    return progress.actor, progress.critic, progress.best, progress.states


def _comparable(settings: A2cTraining) -> dict[str, Any]:
    """Return what must not differ between the runs of a training, as JSON has it."""
    whole: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    if not settings.anneal:
        del whole["episodes"]
    return whole


def _differences(found: object, settings: A2cTraining) -> str:
    wanted = _comparable(settings)
    if not isinstance(found, dict):
        return "other settings"
    names = [name for name in wanted if name in found and found[name] != wanted[name]]
    if names == ["episodes"]:  # compared with anneal alone
        return f"episodes {found['episodes']}; with anneal it ends there and can't go on"
    return ", ".join(f"{name} {found[name]}" for name in names) or "another format"
