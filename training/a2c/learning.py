"""What actor and critic learn from a batch of actions: returns, losses and steps of optimisers.

Sources: A2cScheduler paper (multi-step temporal difference, advantage); Mnih et al., "Asynchronous
Methods for Deep Reinforcement Learning", ICML 2016; Schulman et al., "High-dimensional continuous
control using generalized advantage estimation", ICLR 2016, and "Proximal policy optimization
algorithms", 2017. With one epoch over the whole batch the clipped loss has the gradient of
advantage actor-critic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from edgeyard.training.a2c.networks import Params, allowed_logits, estimates
from edgeyard.training.a2c.settings import A2cTraining, Critic

_MAX_NORM = 1.0
"""Maximum norm of a gradient."""
_SMALL = 1e-6


class Batch(NamedTuple):
    """What some environments did in some steps; shapes begin with (steps, envs).

    Attributes:
        seen: Observations, of which an action was chosen.
        given: What the critic gets of the same states; of an uninformed one that is ``seen``.
        masks: (steps, envs, actions): 1 where an action is allowed.
        actions: Chosen ones.
        chances: ln of the probabilities with which they were chosen.
        rewards: Scaled.
        passed: Steps of time that passed, 0 or 1.
        terminated: Whether the episode ended with this step.
        truncated: Whether it was cut after it; the row that follows has the state in which it was.
        weights: 1, and 0 for rows in which nothing was chosen.
        last_given: (envs, ...): what the critic gets after the last step.
        last_masks: (envs, actions).
    """

    seen: jax.Array
    given: jax.Array
    masks: jax.Array
    actions: jax.Array
    chances: jax.Array
    rewards: jax.Array
    passed: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    weights: jax.Array
    last_given: jax.Array
    last_masks: jax.Array


class Samples(NamedTuple):
    """Actions to learn from, in one axis: see `Batch`.

    Attributes:
        wanted: Returns, which the critic learns to estimate.
        advantages: Returns less what the critic expected.
    """

    seen: jax.Array
    given: jax.Array
    masks: jax.Array
    actions: jax.Array
    chances: jax.Array
    weights: jax.Array
    wanted: jax.Array
    advantages: jax.Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Parameters and the optimisers' states."""

    actor: Params
    critic: Params
    states: tuple[Any, Any]


jax.tree_util.register_dataclass(Learned, ["actor", "critic", "states"], [])


def returns(
    rewards: jax.Array,
    following: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    passed: jax.Array,
    settings: A2cTraining,
) -> jax.Array:
    """Return the sums of rewards that the agent learns from, shape (steps, envs).

    ``G_t = r_t + d ((1 - l) B_(t+1) + l G_(t+1))`` with B of the critic; the discount d and the
    trace l are those of a step of time, and 1 where none passed. After the last row of the batch,
    and where an episode was cut, G is B; after its end it is 0.

    Args:
        rewards: Of each step.
        following: B of the state that follows each step, the same shape.
        terminated: Whether the episode ended with the step.
        truncated: Whether it was cut after it.
        passed: Steps of time.
        settings: Of discount and trace.
    """
    discounts = settings.discount**passed
    traces = jnp.where(truncated, 0.0, settings.trace**passed)

    def back(after: jax.Array, row: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        reward, estimate, end, discount, trace = row
        rest = jnp.where(end, 0.0, (1.0 - trace) * estimate + trace * after)
        found = reward + discount * rest
        return found, found

    rows = (rewards, following, terminated, discounts, traces)
    return lax.scan(back, following[-1], rows, reverse=True)[1]


def samples(learned: Learned, batch: Batch, settings: A2cTraining) -> Samples:
    """Return what is learned from a batch: returns and advantages, by the present critic."""
    steps, envs = batch.actions.shape
    given = jnp.concatenate([batch.given, batch.last_given[None]])
    masks = jnp.concatenate([batch.masks, batch.last_masks[None]])
    found = estimates(learned.critic, _flat(given), settings).reshape(steps + 1, envs, -1)
    if settings.critic is Critic.Q:
        logits = allowed_logits(learned.actor, _flat(batch.seen), _flat(batch.masks), settings)
        shares = jax.nn.softmax(logits).reshape(steps, envs, -1)
        expected = (shares * found[:-1]).sum(axis=2)
        best = jnp.where(masks > 0, found, -jnp.inf).max(axis=2)
    else:
        expected, best = found[:-1, :, 0], found[..., 0]
    wanted = returns(
        batch.rewards, best[1:], batch.terminated, batch.truncated, batch.passed, settings
    )
    advantages = wanted - expected
    if settings.normalise:
        count = jnp.maximum(batch.weights.sum(), 1.0)
        mean = (batch.weights * advantages).sum() / count
        square = (batch.weights * (advantages - mean) ** 2).sum() / count
        advantages = (advantages - mean) / (jnp.sqrt(square) + _SMALL)
    return Samples(
        *(
            _flat(each)
            for each in (
                batch.seen, batch.given, batch.masks, batch.actions, batch.chances, batch.weights,
                wanted, advantages,
            )
        )
    )  # fmt: skip


def critic_loss(critic: Params, some: Samples, settings: A2cTraining) -> jax.Array:
    """Return half of the mean squared difference of estimates and returns."""
    found = estimates(critic, some.given, settings)
    chosen = (
        some.actions[:, None]
        if settings.critic is Critic.Q
        else jnp.zeros_like(some.actions)[:, None]
    )
    errors = some.wanted - jnp.take_along_axis(found, chosen, axis=1)[:, 0]
    return 0.5 * _mean(errors**2, some.weights)


def actor_loss(actor: Params, some: Samples, settings: A2cTraining, entropy: float) -> jax.Array:
    """Return the clipped loss of the policy, less the entropy.

    Args:
        actor: Parameters of the policy.
        some: What to learn from.
        settings: Network and clip.
        entropy: Weight of the entropy.
    """
    shares = jax.nn.log_softmax(allowed_logits(actor, some.seen, some.masks, settings))
    chosen = jnp.take_along_axis(shares, some.actions[:, None], axis=1)[:, 0]
    ratio = jnp.exp(chosen - some.chances)
    clipped = jnp.clip(ratio, 1.0 - settings.clip, 1.0 + settings.clip)
    gains = jnp.minimum(ratio * some.advantages, clipped * some.advantages)
    spread = -(jnp.exp(shares) * shares).sum(axis=1)
    return -_mean(gains + entropy * spread, some.weights)


def _mean(values: jax.Array, weights: jax.Array) -> jax.Array:
    return (weights * values).sum() / jnp.maximum(weights.sum(), 1.0)


def optimiser() -> optax.GradientTransformation:
    """Return Adam on gradients of bounded norm, which states the direction of a step."""
    return optax.chain(optax.clip_by_global_norm(_MAX_NORM), optax.scale_by_adam())


class Weights(NamedTuple):
    """Numbers that a training may change while it learns.

    Attributes:
        actor_rate: Step of the actor's optimiser.
        critic_rate: Step of the critic's.
        entropy: Weight of the entropy of the actions.
    """

    actor_rate: float
    critic_rate: float
    entropy: float


Learn = Callable[[Learned, Batch, jax.Array, Weights], Learned]


def learner(settings: A2cTraining) -> Learn:
    """Return the compiled function that learns from a batch.

    It takes what was learned so far, the batch, a key of its draws, and weights; and returns what
    is learned then.
    """
    adam = optimiser()

    def step(carry: tuple[Learned, Samples, Weights], rows: jax.Array) -> tuple[Any, None]:
        now, whole, weights = carry
        some = jax.tree.map(lambda each: each[rows], whole) if settings.minibatch else whole
        slopes = jax.grad(actor_loss)(now.actor, some, settings, weights.entropy)
        critic_slopes = jax.grad(critic_loss)(now.critic, some, settings)
        change, state = adam.update(slopes, now.states[0])
        critic_change, critic_state = adam.update(critic_slopes, now.states[1])
        after = Learned(
            actor=_moved(now.actor, change, weights.actor_rate),
            critic=_moved(now.critic, critic_change, weights.critic_rate),
            states=(state, critic_state),
        )
        return (after, whole, weights), None

    def learn(now: Learned, batch: Batch, key: jax.Array, weights: Weights) -> Learned:
        whole = samples(now, batch, settings)
        count = len(whole.actions)
        size = min(settings.minibatch or count, count)
        orders = [
            jax.random.permutation(each, count)[: count // size * size].reshape(-1, size)
            for each in jax.random.split(key, settings.epochs)
        ]
        carry = (now, whole, weights)
        (after, _, _), _ = lax.scan(step, carry, jnp.concatenate(orders))
        found: Learned = after
        return found

    compiled: Learn = jax.jit(learn)
    return compiled


def _moved(params: Params, change: Any, rate: float) -> Params:
    moved: Params = jax.tree.map(lambda value, step: value - rate * step, params, change)
    return moved


def updates_of(settings: A2cTraining, actions: int) -> int:
    """Return how many steps the optimisers take on a batch of so many actions."""
    size = min(settings.minibatch or actions, actions)
    return settings.epochs * (actions // size)


def _flat(array: jax.Array) -> jax.Array:
    """Join the axes of steps and environments."""
    return array.reshape(-1, *array.shape[2:])
