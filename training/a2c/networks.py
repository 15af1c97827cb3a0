"""The networks of actor and critic, in JAX: two, with parameters of their own, as in the paper."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from edgeyard.training.a2c.settings import A2cTraining, Critic, NetworkKind

Params = dict[str, jax.Array]

FILTERS = (16, 32)
HIDDEN = 64
"""Units of each dense layer."""
JOBS_HIDDEN = 32
"""Units of both layers that score a job, and of both that score waiting."""
_USUAL_JOBS = 20.0
"""Counts of jobs are divided by it: inputs are then of the order of 1."""
_LAST_SCALE = 0.01
"""Scale of the first weights of the last layer, so that an agent begins with equal chances."""
_FORBIDDEN = -1e9


def initial_actor(
    key: jax.Array, settings: A2cTraining, shape: tuple[int, ...], actions: int
) -> Params:
    """Draw the first parameters of a policy (He et al., 2015).

    Args:
        key: Of the draws.
        settings: The network.
        shape: Of an observation.
        actions: How many there are.
    """
    if settings.network is not NetworkKind.JOBS:
        return _initial(key, settings, settings.network, shape, actions)
    params: Params = {}
    for name in ("job", "wait"):
        key, own = jax.random.split(key)
        found = _initial_layers(own, (shape[-1], JOBS_HIDDEN, JOBS_HIDDEN, 1))
        params |= {f"{name}_{each}": array for each, array in found.items()}
    return params


def initial_critic(key: jax.Array, settings: A2cTraining, shape: tuple[int, ...]) -> Params:
    """Draw the first parameters of a critic.

    Args:
        key: Of the draws.
        settings: The network.
        shape: Of what it is given.
    """
    outputs = settings.slots + 1 if settings.critic is Critic.Q else 1
    if settings.critic is Critic.INFORMED or settings.network is NetworkKind.JOBS:
        return _initial_layers(key, (math.prod(shape), HIDDEN, HIDDEN, outputs))
    return _initial(key, settings, settings.network, shape, outputs)


def _initial(
    key: jax.Array,
    settings: A2cTraining,
    kind: NetworkKind,
    shape: tuple[int, ...],
    outputs: int,
) -> Params:
    if kind is NetworkKind.DENSE:
        return _initial_layers(key, (math.prod(shape), HIDDEN, outputs))
    if kind is NetworkKind.COMPACT:
        return _initial_layers(key, (math.prod(shape), HIDDEN, HIDDEN, outputs))
    params: Params = {}
    before = 1
    for place, filters in enumerate(FILTERS):
        key, own = jax.random.split(key)
        params[f"filters_{place}"] = _normal(own, (3, 3, before, filters))
        params[f"filters_{place}_bias"] = jnp.zeros(filters)
        before = filters
    images = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    found = jax.eval_shape(lambda each: _convolved(params, each, settings), images)
    return params | _initial_layers(key, (found.shape[1], outputs))


def _initial_layers(key: jax.Array, sizes: tuple[int, ...]) -> Params:
    params: Params = {}
    keys = jax.random.split(key, len(sizes) - 1)
    last = len(sizes) - 2
    for place, own in enumerate(keys):
        name = "last" if place == last else f"hidden_{place}"
        drawn = _normal(own, sizes[place : place + 2])
        params[name] = _LAST_SCALE * drawn if place == last else drawn
        params[f"{name}_bias"] = jnp.zeros(sizes[place + 1])
    return params


def _normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jax.random.normal(key, shape) * (2.0 / math.prod(shape[:-1])) ** 0.5


def _layers(params: Params, inputs: jax.Array, prefix: str = "") -> jax.Array:
    """Return the outputs of dense layers; the last axis is that of inputs."""
    found, place = inputs, 0
    while (name := f"{prefix}hidden_{place}") in params:
        found = jax.nn.relu(found @ params[name] + params[f"{name}_bias"])
        place += 1
    return found @ params[f"{prefix}last"] + params[f"{prefix}last_bias"]


def _convolved(params: Params, images: jax.Array, settings: A2cTraining) -> jax.Array:
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


def _outputs(params: Params, seen: jax.Array, settings: A2cTraining) -> jax.Array:
    kind = settings.network
    if kind is NetworkKind.COMPACT:
        return _layers(params, seen * _compact_scale(settings))
    if kind in (NetworkKind.CNN, NetworkKind.MAXPOOL):
        return _layers(params, _convolved(params, seen, settings))
    return _layers(params, seen.reshape(seen.shape[0], -1))


def allowed_logits(
    actor: Params, seen: jax.Array, masks: jax.Array, settings: A2cTraining
) -> jax.Array:
    """Return unnormalised ln probabilities of the actions, shape (observations, actions).

    With the network ``jobs`` each job has the output of the same layers, from its own inputs;
    waiting has that of others, from the mean of the jobs' inputs.
    """
    if settings.network is NetworkKind.JOBS:
        jobs = _layers(actor, seen, "job_")[..., 0]
        wait = _layers(actor, seen.mean(axis=1), "wait_")
        logits = jnp.concatenate([wait, jobs], axis=1)
    else:
        logits = _outputs(actor, seen, settings)
    return jnp.where(masks > 0, logits, _FORBIDDEN)


def estimates(critic: Params, given: jax.Array, settings: A2cTraining) -> jax.Array:
    """Return a critic's outputs: shape (states, 1), or (states, actions) of a Q critic."""
    if settings.critic is Critic.INFORMED:
        return _layers(critic, given)
    return _outputs(critic, given, settings)
