"""The networks of actor and critic, their losses and the returns they learn from, in JAX.

Source: A2cScheduler paper (two networks with parameters of their own, multi-step temporal
difference, advantage); Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning", ICML
2016, for what the paper leaves open.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from edgeyard.training.a2c.settings import A2cTraining, Critic, NetworkKind

Params = dict[str, jax.Array]

FILTERS = (16, 32)
HIDDEN = 64
"""Units of the dense layer of the network ``dense``."""
COMPACT_HIDDEN = 64
"""Units of both dense layers of the network ``compact``."""
_USUAL_JOBS = 20.0
"""Counts of jobs are divided by it: inputs are then of the order of 1."""
_SMALL = 1e-6
_LAST_SCALE = 0.01
"""Scale of the first weights of the last layer, so that an agent begins with equal chances."""
_FORBIDDEN = -1e9


class Batch(NamedTuple):
    """What some environments did in some steps; shapes begin with (steps, envs).

    Attributes:
        images: (steps, envs, rows, columns), or (steps, envs, numbers) of the network ``compact``.
        masks: (steps, envs, actions): 1 where an action is allowed.
        actions: Chosen ones.
        rewards: Scaled.
        ended: Whether the episode ended with this step.
        weights: 1, and 0 for steps after the end of the episode.
        times: Steps of time that had passed before the action.
        last_images: (envs, rows, columns) or (envs, numbers), after the last step.
        last_masks: (envs, actions).
        places: Steps times environments, before the batch was padded.
    """

    images: jax.Array
    masks: jax.Array
    actions: jax.Array
    rewards: jax.Array
    ended: jax.Array
    weights: jax.Array
    times: jax.Array
    last_images: jax.Array
    last_masks: jax.Array
    places: float


def initial(key: jax.Array, settings: A2cTraining, shape: tuple[int, ...], outputs: int) -> Params:
    """Draw the first parameters (He et al., 2015).

    Args:
        key: Of the draws.
        settings: The network.
        shape: Of an observation.
        outputs: Of the last layer.
    """
    keys = jax.random.split(key, 3)
    params: Params = {}
    if settings.network is NetworkKind.DENSE:
        params["hidden"] = _normal(keys[0], (shape[0] * shape[1], HIDDEN))
        params["hidden_bias"] = jnp.zeros(HIDDEN)
        features = HIDDEN
    elif settings.network is NetworkKind.COMPACT:
        features = shape[0]
        for place in range(2):
            params[f"hidden_{place}"] = _normal(keys[place], (features, COMPACT_HIDDEN))
            params[f"hidden_{place}_bias"] = jnp.zeros(COMPACT_HIDDEN)
            features = COMPACT_HIDDEN
    else:
        before = 1
        for place, filters in enumerate(FILTERS):
            params[f"filters_{place}"] = _normal(keys[place], (3, 3, before, filters))
            params[f"filters_{place}_bias"] = jnp.zeros(filters)
            before = filters
        images = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
        found = jax.eval_shape(lambda each: _features(params, each, settings), images)
        features = found.shape[1]
    params["last"] = _LAST_SCALE * _normal(keys[2], (features, outputs))
    params["last_bias"] = jnp.zeros(outputs)
    return params


def _normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    inputs = 1
    for size in shape[:-1]:
        inputs *= size
    return jax.random.normal(key, shape) * (2.0 / inputs) ** 0.5


def _features(params: Params, images: jax.Array, settings: A2cTraining) -> jax.Array:
    if settings.network is NetworkKind.DENSE:
        flat = images.reshape(images.shape[0], -1)
        return jax.nn.relu(flat @ params["hidden"] + params["hidden_bias"])
    if settings.network is NetworkKind.COMPACT:
        found = images * _compact_scale(settings)
        for place in range(2):
            found = found @ params[f"hidden_{place}"] + params[f"hidden_{place}_bias"]
            found = jax.nn.relu(found)
        return found
    pooled = settings.network is NetworkKind.MAXPOOL
    stride = 1 if pooled else settings.stride
    found = images[..., None]
    for place in range(len(FILTERS)):
        found = lax.conv_general_dilated(
            found,
            params[f"filters_{place}"],
            (stride, stride),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        found = jax.nn.relu(found + params[f"filters_{place}_bias"])
        if pooled:
            window = (1, 2, 2, 1)
            found = lax.reduce_window(found, -jnp.inf, lax.max, window, window, "SAME")
    return found.reshape(found.shape[0], -1)


def _compact_scale(settings: A2cTraining) -> jax.Array:
    """Return what the compact observation is multiplied with, in its order."""
    resources = settings.mix.resources
    slot = [1.0 / settings.horizon, *[1.0 / settings.units] * resources]
    return jnp.array(
        [1.0 / _USUAL_JOBS] * settings.horizon
        + [1.0 / settings.units] * (resources * settings.horizon)
        + slot * settings.slots
        + [1.0 / _USUAL_JOBS]
    )


def evaluate(params: Params, images: jax.Array, settings: A2cTraining) -> jax.Array:
    """Return a network's outputs: shape (images, outputs)."""
    return _features(params, images, settings) @ params["last"] + params["last_bias"]


def allowed_logits(
    actor: Params, images: jax.Array, masks: jax.Array, settings: A2cTraining
) -> jax.Array:
    """Return unnormalised ln probabilities of the actions, shape (images, actions)."""
    return jnp.where(masks > 0, evaluate(actor, images, settings), _FORBIDDEN)


def returns(
    rewards: jax.Array, ended: jax.Array, bootstrap: jax.Array, discount: float
) -> jax.Array:
    """Return discounted sums of rewards up to the end of the episode or of the batch.

    ``G_t = r_t + discount * G_(t+1)``, with ``bootstrap`` after the last step and 0 after an end.

    Args:
        rewards: Shape (steps, envs).
        ended: The same shape.
        bootstrap: Shape (envs,): estimates for the states after the last step.
        discount: For each action.
    """

    def back(after: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, end = step
        found = reward + discount * jnp.where(end, 0.0, after)
        return found, found

    return lax.scan(back, bootstrap, (rewards, ended), reverse=True)[1]


def targets(critic: Params, batch: Batch, settings: A2cTraining) -> jax.Array:
    """Return the multi-step returns that actor and critic learn from: shape (steps, envs)."""
    estimates = evaluate(critic, batch.last_images, settings)
    if settings.critic is Critic.Q:
        bootstrap = jnp.where(batch.last_masks > 0, estimates, -jnp.inf).max(axis=1)
    else:
        bootstrap = estimates[:, 0]
    return returns(batch.rewards, batch.ended, bootstrap, settings.discount)


def critic_loss(
    critic: Params, batch: Batch, wanted: jax.Array, settings: A2cTraining
) -> jax.Array:
    """Return half of the mean squared difference of estimates and targets.

    The mean is over all places of the batch, also those of episodes that have ended: the last
    steps of the longest episode, in which the others wait, then count no more than any others.
    """
    estimates = evaluate(critic, _flat(batch.images), settings)
    if settings.critic is Critic.Q:
        chosen = batch.actions.reshape(-1, 1)
        found = jnp.take_along_axis(estimates, chosen, axis=1)[:, 0]
    else:
        found = estimates[:, 0]
    errors = batch.weights.reshape(-1) * (wanted.reshape(-1) - found) ** 2
    return 0.5 * errors.sum() / batch.places


def actor_loss(
    actor: Params,
    critic: Params,
    batch: Batch,
    wanted: jax.Array,
    settings: A2cTraining,
    left: float | jax.Array = 1.0,
) -> jax.Array:
    """Return the policy gradient's loss: minus the mean of advantage times ln probability.

    The advantage is the return less the critic's value of the state (of a Q critic the mean over
    the actions' probabilities). The mean is that of `critic_loss`. Less the entropy.

    Args:
        actor: Parameters of the policy.
        critic: Those of the estimates.
        batch: What happened.
        wanted: `targets`.
        settings: The weights.
        left: Factor of the entropy's weight.
    """
    images, masks = _flat(batch.images), _flat(batch.masks)
    shares = jax.nn.log_softmax(allowed_logits(actor, images, masks, settings))
    probabilities = jnp.exp(shares)
    estimates = evaluate(critic, images, settings)
    if settings.critic is Critic.Q:
        value = (lax.stop_gradient(probabilities) * estimates).sum(axis=1)
    else:
        value = estimates[:, 0]
    advantage = lax.stop_gradient(wanted.reshape(-1) - value)
    weights = batch.weights.reshape(-1)
    if settings.same_arrivals > 1:
        advantage = advantage - _mean_of_alike(advantage, weights, batch.times, settings)
    if settings.normalise:
        mean_square = (weights * advantage**2).sum() / jnp.maximum(weights.sum(), 1.0)
        advantage = advantage / (jnp.sqrt(mean_square) + _SMALL)
    chosen = jnp.take_along_axis(shares, batch.actions.reshape(-1, 1), axis=1)[:, 0]
    entropy = -(probabilities * shares).sum(axis=1)
    gains = chosen * advantage + left * settings.entropy * entropy
    return -(weights * gains).sum() / batch.places


def imitation_loss(actor: Params, batch: Batch, settings: A2cTraining) -> jax.Array:
    """Return the mean of minus ln probability of what a teacher chose, as in `critic_loss`."""
    logits = allowed_logits(actor, _flat(batch.images), _flat(batch.masks), settings)
    shares = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(shares, batch.actions.reshape(-1, 1), axis=1)[:, 0]
    return -(batch.weights.reshape(-1) * chosen).sum() / batch.places


def _mean_of_alike(
    advantage: jax.Array, weights: jax.Array, times: jax.Array, settings: A2cTraining
) -> jax.Array:
    """Return the mean advantage of the environments with the same arrivals at the same time."""
    group = jnp.arange(settings.envs) // settings.same_arrivals
    limit = settings.max_steps + 2
    places = (group * limit + jnp.minimum(times, limit - 1)).reshape(-1)
    count = -(-settings.envs // settings.same_arrivals) * limit
    sums = jax.ops.segment_sum(weights * advantage, places, count)
    counts = jax.ops.segment_sum(weights, places, count)
    return (sums / jnp.maximum(counts, 1.0))[places]


def _flat(array: jax.Array) -> jax.Array:
    """Join the axes of steps and environments."""
    return array.reshape(-1, *array.shape[2:])
