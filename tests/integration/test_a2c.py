"""The A2cScheduler paper's agent: networks, returns, training, checkpoints, judgement, command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from edgeyard.errors import InvalidInput
from edgeyard.installing import wheel_name
from edgeyard.simulator.mixes import JobMix
from edgeyard.training import cluster_steps as world
from edgeyard.training.a2c.checkpoints import curve_csv, load_progress, save_progress
from edgeyard.training.a2c.judgement import (
    Sequences,
    baseline,
    figures,
    masks_of,
    mean_slowdown,
    play,
    unseen_sequences,
)
from edgeyard.training.a2c.learning import (
    Batch,
    Learned,
    Samples,
    Weights,
    actor_loss,
    critic_loss,
    learner,
    optimiser,
    returns,
    samples,
)
from edgeyard.training.a2c.networks import (
    allowed_logits,
    estimates,
    initial_actor,
    initial_critic,
)
from edgeyard.training.a2c.settings import SETTINGS, A2cTraining, Critic, NetworkKind, Reward
from edgeyard.training.a2c.trainer import Trainer, observed
from edgeyard.training.cluster_environment import ClusterVectorEnv
from edgeyard.training.cluster_insight import know_all, knowledge_count
from tests.builders.cli import refusal

pytestmark = pytest.mark.slow  # all tests here take some ten seconds together

SHAPE = (8, 12)
"""Rows and columns of the images of batches that tests make."""
ACTIONS = 3


def small(**changes: Any) -> A2cTraining:
    """A cluster of four units, where short jobs wait behind long ones."""
    mix = JobMix(
        rate=0.8, short_share=0.7, short=(1, 1), long=(5, 7), dominant=(2, 4), other=(1, 1)
    )
    chosen: dict[str, Any] = {
        "mix": mix, "units": 4, "slots": 3, "horizon": 8, "backlog": 8, "arrival_steps": 12,
        "envs": 4, "episodes": 8, "network": NetworkKind.DENSE,
    }  # fmt: skip
    return A2cTraining(**{**chosen, **changes})


def batch(actions: list[int], rewards: list[float], **changes: Any) -> Batch:
    """One environment, whose episode ends with the last action; each takes a step of time."""
    steps = len(actions)
    rng = np.random.default_rng(1)
    images = jnp.asarray(rng.random((steps, 1, *SHAPE)), dtype=jnp.float32)
    whole = Batch(
        seen=images,
        given=images,
        masks=jnp.ones((steps, 1, ACTIONS), dtype=jnp.int8),
        actions=jnp.asarray(actions).reshape(-1, 1),
        chances=jnp.full((steps, 1), -jnp.log(ACTIONS)),
        rewards=jnp.asarray(rewards, dtype=jnp.float32).reshape(-1, 1),
        passed=jnp.ones((steps, 1)),
        terminated=jnp.asarray([[step == steps - 1] for step in range(steps)]),
        truncated=jnp.zeros((steps, 1), dtype=bool),
        weights=jnp.ones((steps, 1)),
        last_given=jnp.zeros((1, *SHAPE)),
        last_masks=jnp.ones((1, ACTIONS), dtype=jnp.int8),
    )
    return whole._replace(**changes)


def begun(settings: A2cTraining, shape: tuple[int, ...] = SHAPE) -> Learned:
    """What is learned before the first batch."""
    actor = initial_actor(jax.random.key(1), settings, shape, ACTIONS)
    critic = initial_critic(jax.random.key(2), settings, shape)
    adam = optimiser()
    return Learned(actor=actor, critic=critic, states=(adam.init(actor), adam.init(critic)))


def three_actions(**changes: Any) -> A2cTraining:
    return small(slots=ACTIONS - 1, **changes)


def sums(
    rewards: list[float],
    following: list[float],
    *,
    passed: list[int] | None = None,
    terminated: int | None = None,
    truncated: int | None = None,
    **changes: Any,
) -> list[float]:
    """Returns of one environment; rows that end an episode by number."""
    rows = np.arange(len(rewards))[:, None]
    found = returns(
        jnp.asarray(rewards)[:, None],
        jnp.asarray(following)[:, None],
        jnp.asarray(rows == terminated),
        jnp.asarray(rows == truncated),
        jnp.asarray(passed or [1] * len(rewards), dtype=jnp.float32)[:, None],
        small(**changes),
    )
    return [float(each) for each in found[:, 0]]


class TestReturns:
    def test_sum_the_rewards_and_then_the_estimate(self) -> None:
        found = sums([1.0, 2.0, 4.0], [9.0, 9.0, 8.0], discount=0.5, trace=1.0)
        assert found == pytest.approx([1 + 0.5 * (2 + 0.5 * 8), 2 + 0.5 * 8, 8])

    def test_end_with_the_episode(self) -> None:
        found = sums([1.0, 2.0, 4.0], [9.0, 9.0, 8.0], terminated=1, discount=0.5, trace=1.0)
        assert found == pytest.approx([1 + 0.5 * 2, 2, 4 + 0.5 * 8])

    def test_go_on_with_the_estimate_where_an_episode_was_cut(self) -> None:
        # the row after the cut belongs to the next episode
        found = sums([1.0, 2.0, 4.0], [9.0, 6.0, 8.0], truncated=1, discount=0.5, trace=1.0)
        assert found == pytest.approx([1 + 0.5 * (2 + 0.5 * 6), 2 + 0.5 * 6, 4 + 0.5 * 8])

    def test_are_discounted_by_time_and_not_by_placements(self) -> None:
        placing = sums([0.0, 0.0, 4.0], [0.0] * 3, passed=[0, 0, 1], discount=0.5, trace=0.5)
        assert placing == pytest.approx([4.0, 4.0, 4.0])
        waiting = sums([0.0, 0.0, 4.0], [0.0] * 3, passed=[1, 1, 1], discount=0.5, trace=1.0)
        assert waiting == pytest.approx([1.0, 2.0, 4.0])

    def test_trust_the_critic_as_far_as_the_trace_says(self) -> None:
        found = sums([1.0, 2.0], [10.0, 20.0], trace=0.25)
        assert found == pytest.approx([1 + 0.75 * 10 + 0.25 * (2 + 20), 2 + 20])
        assert sums([1.0, 2.0], [10.0, 20.0], trace=0.0) == pytest.approx([11.0, 22.0])


def played(choose: Any, actor: Any, states: int, follow: Any, rng: np.random.Generator) -> Batch:
    """Play a problem of a few states in 16 environments, for 8 steps.

    Args:
        choose: Returns the ln probabilities of an actor, from what it sees.
        actor: The parameters.
        states: How many there are; a state is seen as an image with one row of ones.
        follow: Returns the reward, the next state, and whether the episode ended with it, from a
            state and an action; an episode that ended goes on in state 0.
        rng: Of the actions.
    """
    envs, steps = 16, 8
    now = rng.integers(states, size=envs)
    images = np.zeros((states, *SHAPE), dtype=np.float32)
    images[np.arange(states), np.arange(states)] = 1.0
    rows: list[list[Any]] = []
    for _ in range(steps):
        masks = np.ones((envs, ACTIONS), dtype=np.int8)
        shares = np.asarray(choose(actor, images[now], masks))
        actions = (shares + rng.gumbel(size=shares.shape)).argmax(axis=1)
        found = [follow(*each) for each in zip(now.tolist(), actions.tolist(), strict=True)]
        rewards, following, ended = (np.array(each) for each in zip(*found, strict=True))
        rows.append([images[now], masks, actions, shares[np.arange(envs), actions], rewards, ended])
        now = np.where(ended, 0, following)
    seen, masks, actions, chances, rewards, ended = (
        np.stack(each) for each in zip(*rows, strict=True)
    )
    ones = np.ones((steps, envs), dtype=np.float32)
    return Batch(
        seen=seen, given=seen, masks=masks, actions=actions, chances=chances,
        rewards=rewards.astype(np.float32), passed=ones, terminated=ended,
        truncated=np.zeros((steps, envs), dtype=np.bool_), weights=ones,
        last_given=images[now], last_masks=masks[0],
    )  # fmt: skip


def after_learning(
    settings: A2cTraining, states: int, follow: Any, batches: int
) -> tuple[list[list[float]], list[float]]:
    """Learn a problem; return by state the chances of the actions, and the critic's estimate."""
    learned, learn = begun(settings), learner(settings)
    weights = Weights(settings.actor_rate, settings.critic_rate, settings.entropy)
    rng = np.random.default_rng(5)

    def shares(actor: Any, images: Any, masks: Any) -> Any:
        return jax.nn.log_softmax(allowed_logits(actor, images, masks, settings))

    choose = jax.jit(shares)
    for number in range(batches):
        some = played(choose, learned.actor, states, follow, rng)
        learned = learn(learned, some, jax.random.key(number), weights)
    images = np.zeros((states, *SHAPE), dtype=np.float32)
    images[np.arange(states), np.arange(states)] = 1.0
    masks = jnp.ones((states, ACTIONS), dtype=jnp.int8)
    logits = allowed_logits(learned.actor, jnp.asarray(images), masks, settings)
    values = estimates(learned.critic, jnp.asarray(images), settings)
    return np.asarray(jax.nn.softmax(logits)).tolist(), np.asarray(values)[:, 0].tolist()


RECIPES = [
    {},
    {"epochs": 4, "minibatch": 32},
    {"trace": 1.0},
    {"critic": Critic.Q},
]


class TestLearning:
    @pytest.mark.parametrize("recipe", RECIPES)
    def test_finds_the_best_arm_of_a_bandit(self, recipe: dict[str, Any]) -> None:
        settings = three_actions(actor_rate=3e-3, critic_rate=3e-3, **recipe)
        chances, _ = after_learning(
            settings, 1, lambda _, action: ((0.0, 1.0, 0.2)[action], 0, True), 150
        )
        assert chances[0][1] > 0.9

    @pytest.mark.parametrize("recipe", RECIPES)
    def test_gives_up_a_reward_for_a_later_one(self, recipe: dict[str, Any]) -> None:
        """Action 2 in the first state gives 0.3 and ends; action 0 leads to where 1 gives 1."""

        def follow(state: int, action: int) -> tuple[float, int, bool]:
            if state == 0:
                return (0.3 if action == 2 else 0.0), 1, action != 0
            return float(action == 1), 0, True

        settings = three_actions(actor_rate=3e-3, critic_rate=3e-3, **recipe)
        chances, _ = after_learning(settings, 2, follow, 250)
        assert chances[0][0] > 0.8
        assert chances[1][1] > 0.9

    @pytest.mark.parametrize("trace", [0.0, 0.5, 1.0])
    def test_estimates_the_known_values_of_a_chain(self, trace: float) -> None:
        """Each action leads to the next of four states; the last gives 1: values 0.8 ** steps."""
        settings = three_actions(discount=0.8, trace=trace, critic_rate=3e-3, epochs=4)
        _, values = after_learning(
            settings, 4, lambda state, _: (float(state == 3), state + 1, state == 3), 150
        )
        assert values == pytest.approx([0.8**3, 0.8**2, 0.8, 1.0], abs=0.06)


def test_an_action_counts_no_more_once_its_chance_has_changed_by_the_clip() -> None:
    settings = three_actions()
    actor = begun(settings).actor
    for advantage, change, moves in (
        (1.0, 0.5, False), (1.0, -0.5, True), (-1.0, -0.5, False), (-1.0, 0.5, True),
    ):  # fmt: skip
        some = Samples(
            seen=jnp.ones((1, *SHAPE)), given=jnp.ones((1, *SHAPE)),
            masks=jnp.ones((1, ACTIONS), dtype=jnp.int8), actions=jnp.asarray([1]),
            chances=jnp.asarray([-jnp.log(ACTIONS) - change]), weights=jnp.ones(1),
            wanted=jnp.zeros(1), advantages=jnp.asarray([advantage]),
        )  # fmt: skip
        slopes = jax.grad(actor_loss)(actor, some, settings, 0.0)
        assert bool(np.any(np.asarray(slopes["last_bias"]) != 0.0)) == moves


def test_a_q_critic_bootstraps_with_the_best_allowed_action() -> None:
    settings = three_actions(critic=Critic.Q, discount=0.5)
    learned = begun(settings)
    learned.critic["last"] = jnp.zeros_like(learned.critic["last"])
    learned.critic["last_bias"] = jnp.asarray([1.0, 5.0, 3.0])
    never = jnp.asarray([[False]])
    open_end = batch([0], [10.0], terminated=never, last_masks=jnp.asarray([[1, 0, 1]]))
    found = samples(learned, open_end, settings)
    assert found.wanted.tolist() == [10 + 0.5 * 3]
    # the action's own estimate is what is wrong: (11.5 - 1) ** 2 / 2
    assert float(critic_loss(learned.critic, found, settings)) == pytest.approx(10.5**2 / 2)
    # with equal chances the state is worth the mean of its actions
    assert found.advantages.tolist() == pytest.approx([11.5 - (1 + 5 + 3) / 3], abs=0.1)


def test_the_papers_network_has_16_and_32_filters_of_3x3_and_a_dense_end() -> None:
    settings = A2cTraining(stride=1)
    params = initial_actor(jax.random.key(0), settings, SHAPE, ACTIONS)
    assert params["filters_0"].shape == (3, 3, 1, 16)
    assert params["filters_1"].shape == (3, 3, 16, 32)
    assert params["last"].shape == (SHAPE[0] * SHAPE[1] * 32, ACTIONS)
    masks = jnp.ones((2, ACTIONS), dtype=jnp.int8)
    assert allowed_logits(params, jnp.ones((2, *SHAPE)), masks, settings).shape == (2, ACTIONS)


@pytest.mark.parametrize(
    ("changes", "features"),
    [
        ({"stride": 2}, 2 * 3 * 32),
        ({"network": NetworkKind.MAXPOOL}, 2 * 3 * 32),
        ({"network": NetworkKind.DENSE}, 64),
    ],
)
def test_other_networks_have_their_features(changes: dict[str, Any], features: int) -> None:
    settings = A2cTraining(**changes)
    params = initial_actor(jax.random.key(0), settings, SHAPE, ACTIONS)
    assert params["last"].shape == (features, ACTIONS)
    masks = jnp.ones((2, ACTIONS), dtype=jnp.int8)
    assert allowed_logits(params, jnp.ones((2, *SHAPE)), masks, settings).shape == (2, ACTIONS)


def test_a_network_that_scores_jobs_treats_all_slots_alike() -> None:
    settings = A2cTraining(network=NetworkKind.JOBS)
    params = initial_actor(jax.random.key(0), settings, (5, 21), 6)
    seen = np.random.default_rng(1).random((1, 5, 21)).astype(np.float32)
    masks = jnp.ones((1, 6), dtype=jnp.int8)
    order = [3, 0, 4, 1, 2]
    first = np.asarray(allowed_logits(params, jnp.asarray(seen), masks, settings))[0]
    other = np.asarray(allowed_logits(params, jnp.asarray(seen[:, order]), masks, settings))[0]
    assert other[1:] == pytest.approx(first[1:][order], abs=1e-5)
    assert other[0] == pytest.approx(first[0], abs=1e-5)


def test_only_an_informed_critic_knows_what_is_still_to_come() -> None:
    settings = small(network=NetworkKind.JOBS, critic=Critic.INFORMED)
    env = ClusterVectorEnv(2, **settings.cluster())
    lengths, sizes = np.zeros((2, 12), dtype=np.int64), np.zeros((2, 12, 2), dtype=np.int64)
    lengths[:, 1], sizes[:, 1] = 5, (2, 1)
    lengths[0, 4], sizes[0, 4] = 7, (4, 1)  # comes in the first environment alone
    images, _ = env.reset(seed=0, options={"lengths": lengths, "sizes": sizes})
    env.step(np.zeros(2, dtype=np.int64))
    seen = observed(settings, env, images)
    assert seen.any()
    assert np.array_equal(seen[0], seen[1])
    knowledge = np.empty((2, knowledge_count(2)), dtype=np.float32)
    know_all(env.clusters.state, settings.units, knowledge)
    assert np.isfinite(knowledge).all()
    differs = np.flatnonzero(knowledge[0] != knowledge[1])
    # count, 1/T and work of the span that begins one step later
    assert (knowledge[0] - knowledge[1])[differs] == pytest.approx(
        [0.1, 1 / 70, 7 * 4 / 80, 7 * 1 / 80]
    )


@pytest.mark.parametrize("critic", [Critic.V, Critic.Q])
@pytest.mark.parametrize(("reward", "sign"), [(5.0, 1.0), (-5.0, -1.0)])
def test_an_advantage_raises_the_probability_of_the_action_and_a_disadvantage_lowers_it(
    critic: Critic, reward: float, sign: float
) -> None:
    settings = three_actions(critic=critic)
    learned = begun(settings)
    one = batch([1], [reward])

    def probability(params: Any) -> float:
        logits = allowed_logits(params, one.seen[0], one.masks[0], settings)
        return float(jax.nn.softmax(logits)[0, 1])

    found = samples(learned, one, settings)
    slopes = jax.grad(actor_loss)(learned.actor, found, settings, 0.0)
    after = jax.tree.map(lambda value, slope: value - 0.01 * slope, learned.actor, slopes)
    assert sign * (probability(after) - probability(learned.actor)) > 0.0


def test_rows_in_which_nothing_was_chosen_have_no_gradient() -> None:
    settings = three_actions()
    learned = begun(settings)
    short = batch([1, 0], [-1.0, -2.0])
    padded = batch([1, 0, 2, 2], [-1.0, -2.0, -9.0, -9.0])
    padded = padded._replace(
        seen=padded.seen.at[:2].set(short.seen),
        given=padded.given.at[:2].set(short.given),
        weights=jnp.asarray([[1.0], [1.0], [0.0], [0.0]]),
        terminated=jnp.asarray([[False], [True], [True], [True]]),
    )

    def losses(some: Batch) -> list[float]:
        found = samples(learned, some, settings)
        return [
            float(actor_loss(learned.actor, found, settings, 0.01)),
            float(critic_loss(learned.critic, found, settings)),
        ]

    assert losses(padded) == pytest.approx(losses(short))


def same(first: Any, second: Any) -> bool:
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def test_whole_episodes_are_learned_from_at_once_and_steps_of_them_often() -> None:
    trainer = Trainer(small(n_steps=0, episodes=12))
    whole = trainer.train(trainer.start())
    assert [point.episodes for point in whole.curve] == [4, 8, 12]
    assert [point.updates for point in whole.curve] == [1, 2, 3]
    trainer = Trainer(small(n_steps=5, episodes=12))
    parts = trainer.train(trainer.start())
    assert parts.curve[-1].updates == parts.rounds > 2 * whole.rounds


def test_what_follows_a_cut_episode_is_estimated_of_the_state_in_which_it_was_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("edgeyard.training.a2c.settings._MAX_SPANS", 1)
    monkeypatch.setattr("edgeyard.training.a2c.settings._MIN_MAX_STEPS", 1)
    batches: list[Batch] = []

    def kept(settings: A2cTraining) -> Any:
        learn = learner(settings)

        def noted(now: Any, batch: Batch, *others: Any) -> Any:
            batches.append(batch)
            return learn(now, batch, *others)

        return noted

    monkeypatch.setattr("edgeyard.training.a2c.trainer.learner", kept)
    trainer = Trainer(small(n_steps=0, envs=1, episodes=1, network=NetworkKind.COMPACT))
    trainer.train(trainer.start())
    (whole,) = batches
    (cut,) = np.flatnonzero(whole.truncated[:, 0] * whole.weights[:, 0])
    assert cut + 1 < len(whole.given)  # rows were added, so that lengths differ less
    assert np.array_equal(whole.given[cut + 1], whole.last_given)
    assert np.array_equal(whole.masks[cut + 1], whole.last_masks)


def test_a_batch_has_actions_of_all_phases_of_episodes() -> None:
    settings = small(envs=32, n_steps=10, episodes=200)
    trainer = Trainer(settings)
    now = trainer.train(trainer.start()).world["counts"][:, world.NOW]
    arriving = now < settings.arrival_steps
    assert 8 <= arriving.sum() <= 28
    assert len(set(now.tolist())) > 8


def test_a_training_that_goes_on_from_its_checkpoint_ends_as_one_that_was_not_stopped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.npz"
    first = Trainer(small(episodes=8))
    save_progress(path, first.train(first.start()), first.settings)
    trainer = Trainer(small(episodes=16))
    before = load_progress(path, trainer)
    done = before.episodes
    assert done >= 8
    gone_on = trainer.train(before)
    whole = Trainer(small(episodes=16))
    through = whole.train(whole.start())
    assert gone_on.episodes == through.episodes > done
    assert same(gone_on.learned, through.learned)
    assert same(gone_on.world, through.world)
    lines = curve_csv(gone_on.curve).splitlines()
    assert len(lines) == 1 + len(through.curve)
    assert lines[0].startswith("episodes,steps,updates,cpu_s,mean_return,mean_slowdown")


def test_rewards_are_what_their_names_say() -> None:
    # all jobs run for one step, so that a slowdown is a turnaround; nothing is learned before the
    # end of the generation, so that all see the same actions
    mix = JobMix(rate=0.8, short=(1, 1), long=(1, 1), dominant=(2, 4), other=(1, 1))
    found = {}
    for reward in Reward:
        trainer = Trainer(small(reward=reward, mix=mix, episodes=4, n_steps=0))
        found[reward] = trainer.train(trainer.start()).curve[0].mean_return
    assert found[Reward.TURNAROUND] == pytest.approx(found[Reward.SLOWDOWN])
    assert found[Reward.SLOWDOWN] < found[Reward.WAITING] < 0.0
    assert -50.0 < found[Reward.UTILISATION] < 0.0  # at most 1 in each step with a job


@pytest.mark.parametrize("masked", [True, False])
def test_a_mask_keeps_the_agent_from_what_cannot_be_placed(masked: bool) -> None:
    settings = small(masked=masked)
    trainer = Trainer(settings)
    actor = trainer.start().learned.actor
    # the third slot is the agent's favourite
    actor["last_bias"] = jnp.asarray([0.0, 1.0, 2.0, 50.0])
    chosen: list[bool] = []
    choose = trainer.chooser(actor)

    def watched(env: Any, images: Any) -> Any:
        actions = choose(env, images)
        allowed = env.action_masks()
        chosen.extend(bool(allowed[row, action]) for row, action in enumerate(actions))
        return actions

    play(settings, unseen_sequences(settings.mix, 5, 12), watched)
    assert all(chosen) == masked


@pytest.mark.parametrize("rule", ["sjf", "hold", "tetris", "random"])
def test_rules_place_all_jobs_of_the_validation_sequences_in_time(rule: str) -> None:
    trainer = Trainer(A2cTraining(mix=JobMix(rate=0.9), network=NetworkKind.COMPACT, validation=50))
    found = play(trainer.settings, trainer.validation, baseline(rule, 1))
    assert (found.jobs == found.arrived).all()
    assert found.unplaced.sum() == 0


def test_before_a_validation_the_present_actor_is_the_result() -> None:
    trainer = Trainer(small(episodes=4))
    progress = trainer.train(trainer.start())
    progress.best = trainer.start().best
    for validation, result in ((None, progress.learned.actor), (9.0, progress.best)):
        progress.curve = [replace(progress.curve[-1], validation=validation)]
        assert progress.result is result


def test_rules_reach_the_figures_of_deeprms_environment_on_its_unseen_sequences() -> None:
    settings = A2cTraining()
    sequences = unseen_sequences(settings.mix, 100, settings.arrival_steps)
    sjf = play(settings, sequences, baseline("sjf", 0))
    tetris = play(settings, sequences, baseline("tetris", 0))
    assert mean_slowdown(sjf) == pytest.approx(7.383, abs=0.0005)
    row = figures("tetris", tetris, sjf)
    assert row.slowdown.mean == pytest.approx(13.743, abs=0.0005)
    assert row.slowdown.low < row.slowdown.mean < row.slowdown.high
    assert row.slowdown_to_sjf.mean == pytest.approx(13.743 - 7.383, abs=0.001)
    assert row.slowdown_to_sjf.low > 0.0
    assert row.wait.mean < row.turnaround.mean
    assert row.unplaced == 0
    # placing within the horizon whatever fits is better than starting the shortest that fits now
    place = figures("place", play(settings, sequences, baseline("place", 0)), sjf)
    assert place.slowdown_to_sjf.high < 0.0
    assert place.unplaced == 0


def test_jobs_that_an_agent_never_places_end_late_and_count() -> None:
    settings = small()
    sequences = unseen_sequences(settings.mix, 5, settings.arrival_steps)
    sjf = play(settings, sequences, baseline("sjf", 0))
    idle = play(settings, sequences, lambda env, _: np.zeros(env.num_envs, np.int64))
    assert (idle.jobs == sjf.jobs).all()
    assert (idle.unplaced == idle.jobs).all()
    found = figures("a2c", idle, sjf)
    assert found.unplaced == sjf.jobs.sum()
    # each waits from its arrival to 8 times the 12 steps with arrivals, or longer
    assert found.wait.mean > 8 * 12 - 12


def test_sequences_without_a_job_have_no_figures() -> None:
    settings = small()
    nothing = Sequences(np.zeros((3, 12), np.int64), np.zeros((3, 12, 2), np.int64))
    sjf = play(settings, nothing, baseline("sjf", 0))
    document = figures("a2c", sjf, sjf).document
    assert document["slowdown"] is document["slowdown_to_sjf"] is document["wait"] is None
    assert mean_slowdown(sjf) == 1.0


def test_long_episodes_are_not_cut() -> None:
    settings = A2cTraining(arrival_steps=1_200, mix=JobMix(rate=0.3))
    sequences = unseen_sequences(settings.mix, 1, 1_200)
    played = play(settings, sequences, baseline("place", 0))
    assert played.jobs.sum() > 0.95 * played.arrived.sum()  # a sixth arrives after 1,000 steps
    assert A2cTraining().cluster()["max_steps"] == 1_000


def test_a_plot_without_matplotlib_is_refused_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr("sys.argv", ["edgeyard"])
    found = refusal(run("--out", str(tmp_path / "out"), "--plot", str(tmp_path / "c.png")))
    assert "a plot needs matplotlib" in found
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"network": NetworkKind.CNN, "actor_rate": 0.003},
        {
            "network": NetworkKind.JOBS, "critic": Critic.INFORMED, "epochs": 4,
            "minibatch": 64, "actor_rate": 0.003,
        },
    ],
    ids=lambda changes: str(changes["network"]),
)  # fmt: skip
def test_the_agent_learns_to_be_far_better_than_random_choices(changes: dict[str, Any]) -> None:
    settings = small(episodes=320, envs=8, **changes)
    trainer = Trainer(settings)
    progress = trainer.train(trainer.start())
    sequences = unseen_sequences(settings.mix, 100, settings.arrival_steps)
    random = play(settings, sequences, baseline("random", 0))
    agent = figures("a2c", play(settings, sequences, trainer.chooser(progress.best)), random)
    # ``figures`` compares with its last argument, here random choices
    error = (agent.slowdown_to_sjf.high - agent.slowdown_to_sjf.low) / (2 * 1.96)
    assert agent.unplaced == 0
    assert agent.slowdown_to_sjf.mean < -6 * error


def test_three_resources_and_other_queue_sizes_take_the_same_code() -> None:
    mix = JobMix(rate=0.5, resources=3, short=(1, 2), long=(3, 4), dominant=(2, 4), other=(1, 2))
    trainer = Trainer(small(mix=mix, slots=7, network=NetworkKind.CNN, episodes=4))
    progress = trainer.train(trainer.start())
    assert progress.best["last"].shape[1] == 8
    assert progress.episodes >= 4


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["learn", "a2c", *words])


QUICK = 'network = "dense"\nenvs = 2\narrival_steps = 10\nseed = 3\n'


def settings_file(folder: Path, text: str) -> str:
    path = folder / "settings.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate = 0", "rate: is 0.0"),
        ("rate = 1.5", "rate: is 1.5"),
        ("rate = nan", "rate: is nan"),
        ('rate = "high"', "rate: Expected `float`"),
        ("resources = 0", "resources: is 0"),
        ("resources = 11", "resources: is 11"),
        ("seed = -1", "seed: is -1"),
        ("episodes = 0", "episodes: is 0"),
        ("n_steps = -1", "n_steps: is -1"),
        ('network = "dense"\nstride = 1', "stride: has no effect without convolutions"),
        ('network = "big"', "network: Invalid enum value 'big'"),
        ("place_when_idle = true\nmasked = false", "place_when_idle: has no effect"),
        ("trace = -0.1", "trace: is -0.1"),
        ("clip = 0", "clip: is 0.0"),
        ("epochs = 0", "epochs: is 0"),
        ("minibatch = -1", "minibatch: is -1"),
        ("stride = 3", "stride: is 3"),
        ("discount = 0", "discount: is 0.0"),
        ("discount = nan", "discount: is nan"),
        ("actor_rate = -1", "actor_rate: is -1.0"),
        ("entropy = -0.1", "entropy: is -0.1"),
        ("slots = 0", "slots: is 0"),
        ("envs = 5000", "envs: is 5000"),
        ("speed = 1", "speed: is unknown (accepted: rate, resources, seed, "),
        ("rate 1", "SETTINGS: "),
    ],
)
def test_bad_settings_are_named_before_anything_is_written(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refusal(run(settings_file(tmp_path, text)))
    assert [each.name for each in tmp_path.iterdir()] == ["settings.toml"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.toml"], "SETTINGS: nowhere.toml: "),
        (["--seed", "-1"], "edgeyard: --seed: is -1"),
        (["--episodes", "0"], "edgeyard: --episodes: is 0"),
        (["--plot", "nowhere/x.png"], "--plot: there is no folder"),
    ],
)
def test_bad_options_are_named_before_anything_is_written(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refusal(run(*words))
    assert not list(tmp_path.iterdir())


def test_the_how_to_explains_each_setting() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/environments.md").read_text("utf-8")
    section = page.partition("## Train the paper's agent")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(name for row in rows for name in re.findall("`(.+?)`", row)) == sorted(SETTINGS)


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "--out: " in refusal(run("--out", str(tmp_path / "file")))


def test_checkpoints_of_other_trainings_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    trainer = Trainer(small(episodes=4))
    save_progress(path, trainer.start(), trainer.settings)
    with pytest.raises(InvalidInput, match=r"--out: .*a training with seed 0, reward slowdown"):
        load_progress(path, Trainer(small(seed=5, reward=Reward.WAITING)))
    annealed = Trainer(small(episodes=4, anneal=True))
    save_progress(tmp_path / "annealed.npz", annealed.start(), annealed.settings)
    with pytest.raises(InvalidInput, match=r"episodes 4; with anneal it ends there and can't"):
        load_progress(tmp_path / "annealed.npz", Trainer(small(episodes=8, anneal=True)))
    plain = Trainer(small(episodes=4))
    save_progress(tmp_path / "plain.npz", plain.start(), plain.settings)
    with pytest.raises(InvalidInput, match=r"a training with anneal False \(accepted"):
        load_progress(tmp_path / "plain.npz", Trainer(small(episodes=4, anneal=True)))
    whole = path.read_bytes()
    for content in (b"", b"nothing", whole[: len(whole) // 2], whole[:-40]):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match="is not a checkpoint of a training"):
            load_progress(path, trainer)
    header = json.dumps({"format": 2, "settings": {}, "curve": 3, "rounds": 0})
    np.savez(path, header=np.array(header))
    with pytest.raises(InvalidInput, match="is not a checkpoint of a training"):
        load_progress(path, trainer)


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("trainer", "networks", "learning", "checkpoints"):
        monkeypatch.delitem(sys.modules, f"edgeyard.training.a2c.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setattr("sys.argv", ["edgeyard"])
    found = refusal(run("--out", str(tmp_path / "out")))
    assert f"needs jax, which is not installed: pip install '{wheel_name()}[training]'" in found
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(900)
def test_the_command_goes_on_after_a_kill_to_the_weights_of_an_uninterrupted_training(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    quick = settings_file(tmp_path, QUICK)
    command = [sys.executable, "-m", "edgeyard", "learn", "a2c", quick]
    killed = subprocess.Popen(
        [*command, "--episodes", "1000000", "--out", str(out)],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 120
        while not (out / "checkpoint.npz").exists() and time.monotonic() < until:
            assert killed.poll() is None
            time.sleep(0.05)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    with np.load(out / "checkpoint.npz") as file:
        done = json.loads(str(file["header"]))["curve"][-1]["episodes"]
    assert done >= 10
    more = ["--episodes", str(done + 10)]
    again = run(quick, *more, "--out", str(out), "--json", "--plot", str(tmp_path / "c.png"))
    assert again.exit_code == 0, again.stderr
    assert f"going on from episode {done}" in again.stderr
    found = json.loads(again.stdout)
    assert found["episodes"] >= done + 10
    policies = [row["policy"] for row in found["judged"]]
    assert policies == ["a2c", "sjf", "tetris", "random", "place", "hold"]
    assert json.loads((out / "judged.json").read_text()) == found
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    through = run(quick, *more, "--out", str(tmp_path / "through"))
    assert through.exit_code == 0, through.stderr
    assert "SLOWDOWN" in through.stdout
    with (
        np.load(out / "checkpoint.npz") as one,
        np.load(tmp_path / "through" / "checkpoint.npz") as other,
    ):
        names = [name for name in one.files if name != "header"]
        assert all(np.array_equal(one[name], other[name]) for name in names)
    refused = refusal(run(settings_file(tmp_path, f"{QUICK}rate = 0.5"), *more, "--out", str(out)))
    assert "belongs to a training with mix" in refused


def test_a_guarded_agent_does_not_wait_while_the_cluster_is_idle() -> None:
    lengths, sizes = np.zeros((2, 12), dtype=np.int64), np.zeros((2, 12, 2), dtype=np.int64)
    lengths[0, 1], sizes[0, 1] = 5, (2, 1)  # the second environment has no job
    for placing in (False, True):
        settings = small(place_when_idle=placing)
        env = ClusterVectorEnv(2, **settings.cluster())
        env.reset(seed=0, options={"lengths": lengths, "sizes": sizes})
        env.step(np.zeros(2, dtype=np.int64))  # the job arrives
        masks = masks_of(settings, env)
        assert masks[0].tolist() == [0 if placing else 1, 1, 0, 0]
        assert masks[1].tolist() == [1, 0, 0, 0]
        env.step(np.array([1, 0]))
        assert masks_of(settings, env)[0, 0] == 1  # it is placed: waiting is allowed


def test_episodes_come_from_the_given_sequences() -> None:
    settings = small(envs=2, episodes=6)
    one = unseen_sequences(settings.mix, 1, settings.arrival_steps, 5)
    trainer = Trainer(settings, sequences=one, validation=one)
    progress = trainer.train(trainer.start())
    assert trainer.validation is one
    assert (progress.world["lengths"] == one.lengths).all()
