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
from edgeyard.training.a2c.judgement import (
    baseline,
    figures,
    masks_of,
    mean_slowdown,
    play,
    unseen_sequences,
)
from edgeyard.training.a2c.networks import (
    Batch,
    actor_loss,
    allowed_logits,
    critic_loss,
    evaluate,
    initial,
    returns,
    targets,
)
from edgeyard.training.a2c.settings import SETTINGS, A2cTraining, Critic, NetworkKind, Reward
from edgeyard.training.a2c.trainer import (
    Trainer,
    curve_csv,
    load_progress,
    save_progress,
)
from edgeyard.training.cluster_environment import ClusterVectorEnv
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
    """One environment, whose episode ends with the last action."""
    steps = len(actions)
    rng = np.random.default_rng(1)
    whole = Batch(
        images=jnp.asarray(rng.random((steps, 1, *SHAPE)), dtype=jnp.float32),
        masks=jnp.ones((steps, 1, ACTIONS), dtype=jnp.int8),
        actions=jnp.asarray(actions).reshape(-1, 1),
        rewards=jnp.asarray(rewards, dtype=jnp.float32).reshape(-1, 1),
        ended=jnp.asarray([[step == steps - 1] for step in range(steps)]),
        weights=jnp.ones((steps, 1)),
        times=jnp.arange(steps).reshape(-1, 1),
        last_images=jnp.zeros((1, *SHAPE)),
        last_masks=jnp.ones((1, ACTIONS), dtype=jnp.int8),
        places=float(steps),
    )
    return whole._replace(**changes)


def networks(settings: A2cTraining) -> tuple[dict[str, Any], dict[str, Any]]:
    outputs = ACTIONS if settings.critic is Critic.Q else 1
    actor = initial(jax.random.key(1), settings, SHAPE, ACTIONS)
    return actor, initial(jax.random.key(2), settings, SHAPE, outputs)


def test_returns_sum_n_rewards_and_then_the_estimate() -> None:
    rewards = jnp.asarray([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    ended = jnp.asarray([[False, False], [False, True], [False, False]])
    found = returns(rewards, ended, jnp.asarray([8.0, 8.0]), 0.5)
    # from the end: 4 + 8/2; the second environment's episode ended with its second step
    assert found[:, 0].tolist() == [1 + 0.5 * (2 + 0.5 * 8), 2 + 0.5 * 8, 8]
    assert found[:, 1].tolist() == [1 + 0.5 * 2, 2, 8]


def test_a_q_critic_bootstraps_with_the_best_allowed_action() -> None:
    settings = small(critic=Critic.Q, discount=0.5)
    _, critic = networks(settings)
    critic["last"] = jnp.zeros_like(critic["last"])
    critic["last_bias"] = jnp.asarray([1.0, 5.0, 3.0])
    open_end = batch([0], [10.0], ended=jnp.asarray([[False]]), last_masks=jnp.asarray([[1, 0, 1]]))
    assert targets(critic, open_end, settings).tolist() == [[10 + 0.5 * 3]]
    # the action's own estimate is what is wrong: (11.5 - 1) ** 2 / 2
    wanted = targets(critic, open_end, settings)
    assert float(critic_loss(critic, open_end, wanted, settings)) == pytest.approx(10.5**2 / 2)


def test_the_papers_network_has_16_and_32_filters_of_3x3_and_a_dense_end() -> None:
    settings = A2cTraining(stride=1)
    params = initial(jax.random.key(0), settings, SHAPE, ACTIONS)
    assert params["filters_0"].shape == (3, 3, 1, 16)
    assert params["filters_1"].shape == (3, 3, 16, 32)
    assert params["last"].shape == (SHAPE[0] * SHAPE[1] * 32, ACTIONS)
    images = jnp.ones((2, *SHAPE))
    assert evaluate(params, images, settings).shape == (2, ACTIONS)


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
    params = initial(jax.random.key(0), settings, SHAPE, ACTIONS)
    assert params["last"].shape == (features, ACTIONS)
    assert evaluate(params, jnp.ones((2, *SHAPE)), settings).shape == (2, ACTIONS)


@pytest.mark.parametrize("critic", list(Critic))
@pytest.mark.parametrize(("reward", "sign"), [(5.0, 1.0), (-5.0, -1.0)])
def test_an_advantage_raises_the_probability_of_the_action_and_a_disadvantage_lowers_it(
    critic: Critic, reward: float, sign: float
) -> None:
    settings = small(critic=critic, entropy=0.0)
    actor, estimates = networks(settings)
    one = batch([1], [reward])
    wanted = targets(estimates, one, settings)

    def probability(params: Any) -> float:
        logits = allowed_logits(params, one.images[0], one.masks[0], settings)
        return float(jax.nn.softmax(logits)[0, 1])

    slopes = jax.grad(actor_loss)(actor, estimates, one, wanted, settings)
    after = jax.tree.map(lambda value, slope: value - 0.01 * slope, actor, slopes)
    assert sign * (probability(after) - probability(actor)) > 0.0


def test_actor_and_critic_share_no_parameters() -> None:
    for critic in Critic:
        settings = small(critic=critic)
        actor, estimates = networks(settings)
        some = batch([1, 0], [-1.0, -2.0])
        wanted = targets(estimates, some, settings)
        slopes = jax.grad(actor_loss, argnums=1)(actor, estimates, some, wanted, settings)
        assert not any(np.any(np.asarray(each)) for each in jax.tree.leaves(slopes))


def test_steps_after_the_end_of_an_episode_have_no_gradient() -> None:
    settings = small()
    actor, critic = networks(settings)
    short = batch([1, 0], [-1.0, -2.0])
    padded = batch([1, 0, 2, 2], [-1.0, -2.0, -9.0, -9.0])
    padded = padded._replace(
        images=padded.images.at[:2].set(short.images),
        weights=jnp.asarray([[1.0], [1.0], [0.0], [0.0]]),
        ended=jnp.asarray([[False], [True], [True], [True]]),
        places=2.0,
    )

    def losses(some: Batch) -> list[float]:
        wanted = targets(critic, some, settings)
        return [
            float(actor_loss(actor, critic, some, wanted, settings)),
            float(critic_loss(critic, some, wanted, settings)),
        ]

    assert losses(padded) == pytest.approx(losses(short))


def same(first: Any, second: Any) -> bool:
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def test_n_steps_above_the_length_of_all_episodes_are_monte_carlo() -> None:
    found = []
    for n_steps in (0, 1000, 5):
        trainer = Trainer(small(n_steps=n_steps))
        found.append(trainer.train(trainer.start()))
    assert same((found[0].actor, found[0].critic), (found[1].actor, found[1].critic))
    assert found[0].curve[-1].updates == 2  # one for each generation
    assert not same(found[0].actor, found[2].actor)
    assert found[2].curve[-1].updates > 6


def test_a_training_that_goes_on_from_its_checkpoint_ends_as_one_that_was_not_stopped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.npz"
    first = Trainer(small(episodes=8))
    save_progress(path, first.train(first.start()), first.settings)
    trainer = Trainer(small(episodes=16))
    before = load_progress(path, trainer)
    assert before.episodes == 8
    gone_on = trainer.train(before)
    whole = Trainer(small(episodes=16))
    through = whole.train(whole.start())
    assert gone_on.episodes == through.episodes == 16
    assert same((gone_on.actor, gone_on.critic), (through.actor, through.critic))
    lines = curve_csv(gone_on.curve).splitlines()
    assert len(lines) == 1 + 4
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
    actor = trainer.start().actor
    # the third slot is the agent's favourite
    actor["last_bias"] = jnp.asarray([0.0, 1.0, 2.0, 50.0])
    chosen: list[bool] = []
    choose = trainer.chooser(actor)

    def watched(env: Any, images: Any) -> Any:
        actions = choose(env, images)
        allowed = env.action_masks()
        chosen.extend(bool(allowed[row, action]) for row, action in enumerate(actions))
        return actions

    play(settings, unseen_sequences(settings.mix, 5, 12), watched, 60)
    assert all(chosen) == masked


def test_an_actor_that_places_nothing_is_worse_than_any_other() -> None:
    trainer = Trainer(small())
    actor = trainer.start().actor
    actor["last_bias"] = jnp.asarray([99.0, 0.0, 0.0, 0.0])
    assert trainer.slowdown(actor, trainer.validation) == float("inf")


@pytest.mark.parametrize("rule", ["sjf", "hold", "tetris", "random"])
def test_rules_end_all_jobs_of_the_validation_sequences_in_time(rule: str) -> None:
    trainer = Trainer(A2cTraining(mix=JobMix(rate=0.9), network=NetworkKind.COMPACT, validation=50))
    chooser = baseline(rule, 1)
    played = play(trainer.settings, trainer.validation, chooser, trainer.max_validation_steps)
    assert (played.jobs == played.arrived).all()


def test_without_a_validated_actor_the_last_one_is_the_result() -> None:
    trainer = Trainer(small(episodes=4))
    progress = trainer.train(trainer.start())
    progress.best = trainer.start().actor
    for validation, result in ((float("inf"), progress.actor), (9.0, progress.best)):
        progress.curve[-1] = replace(progress.curve[-1], validation=validation)
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
    assert row.unfinished == 0
    # placing within the horizon whatever fits is better than starting the shortest that fits now
    place = figures("place", play(settings, sequences, baseline("place", 0)), sjf)
    assert place.slowdown_to_sjf.high < 0.0
    assert place.unfinished == 0


def test_an_agent_that_places_nothing_has_no_figures() -> None:
    settings = small()
    sequences = unseen_sequences(settings.mix, 5, settings.arrival_steps)
    sjf = play(settings, sequences, baseline("sjf", 0))
    idle = play(settings, sequences, lambda env, _: np.zeros(env.num_envs, np.int64), 60)
    found = figures("a2c", idle, sjf)
    assert found.jobs == 0
    assert found.unfinished == sjf.jobs.sum()
    document = found.document
    assert document["slowdown"] is document["slowdown_to_sjf"] is document["wait"] is None
    assert figures("sjf", sjf, sjf).document["slowdown"] is not None


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


def test_the_agent_learns_to_be_far_better_than_random_choices() -> None:
    settings = small(episodes=320, envs=8, network=NetworkKind.CNN, actor_rate=0.003)
    trainer = Trainer(settings)
    progress = trainer.train(trainer.start())
    sequences = unseen_sequences(settings.mix, 100, settings.arrival_steps)
    random = play(settings, sequences, baseline("random", 0))
    agent = figures("a2c", play(settings, sequences, trainer.chooser(progress.best)), random)
    # ``figures`` compares with its last argument, here random choices
    error = (agent.slowdown_to_sjf.high - agent.slowdown_to_sjf.low) / (2 * 1.96)
    assert agent.unfinished == 0
    assert agent.slowdown_to_sjf.mean < -6 * error


def test_three_resources_and_other_queue_sizes_take_the_same_code() -> None:
    mix = JobMix(rate=0.5, resources=3, short=(1, 2), long=(3, 4), dominant=(2, 4), other=(1, 2))
    trainer = Trainer(small(mix=mix, slots=7, network=NetworkKind.CNN, episodes=4))
    progress = trainer.train(trainer.start())
    assert progress.actor["last"].shape[1] == 8
    assert progress.episodes == 4


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
        ("envs = 3\nsame_arrivals = 2", "envs: is 3: the last group of same_arrivals = 2"),
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
        (["--seed", "-1"], "seed: is -1"),
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
    header = json.dumps({"format": 1, "settings": {}, "curve": 3})
    np.savez(path, header=np.array(header))
    with pytest.raises(InvalidInput, match="is not a checkpoint of a training"):
        load_progress(path, trainer)


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("trainer", "networks"):
        monkeypatch.delitem(sys.modules, f"edgeyard.training.a2c.{name}")
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
    assert found["episodes"] == done + 10
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


def test_imitation_makes_the_actor_act_like_the_teacher() -> None:
    settings = small(
        network=NetworkKind.COMPACT, episodes=480, imitation_episodes=480, envs=16, actor_rate=1e-3,
        place_when_idle=True,
    )  # fmt: skip
    trainer = Trainer(settings)
    before = trainer.start()
    sequences = trainer.validation
    teacher = baseline("hold", 0)
    agreed = []
    for actor in (before.actor, trainer.train(trainer.start()).actor):
        choose = trainer.chooser(actor)
        same: list[bool] = []

        def watched(env: Any, images: Any) -> Any:
            wanted = teacher(env, images)
            same.extend((choose(env, images) == wanted).tolist())  # noqa: B023
            return wanted

        play(settings, sequences, watched)
        agreed.append(np.mean(same))
    assert agreed[1] > 0.9 > agreed[0]


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


def test_what_the_arrivals_caused_cancels_out_among_environments_with_the_same_ones() -> None:
    settings = small(envs=4, same_arrivals=2, network=NetworkKind.COMPACT)
    env = ClusterVectorEnv(4, **settings.cluster())
    images, _ = env.reset(seed=1)
    key = jax.random.key(0)
    actor = initial(key, settings, images.shape[1:], 4)
    critic = initial(key, settings, images.shape[1:], 1)

    def gradient(wanted: list[float]) -> Any:
        found = Batch(
            images=jnp.asarray(images)[None], masks=jnp.ones((1, 4, 4), dtype=jnp.int8),
            actions=jnp.array([[0, 1, 0, 1]]), rewards=jnp.zeros((1, 4)),
            ended=jnp.ones((1, 4), dtype=bool), weights=jnp.ones((1, 4)),
            times=jnp.zeros((1, 4), dtype=int), last_images=jnp.asarray(images),
            last_masks=jnp.ones((4, 4), dtype=jnp.int8), places=4.0,
        )  # fmt: skip
        slopes = jax.grad(actor_loss)(actor, critic, found, jnp.array([wanted]), settings)
        return slopes["last_bias"]

    first = gradient([1.0, 3.0, 5.0, 5.0])
    # 100 more in both environments of the first group, 7 less in both of the second
    assert np.allclose(first, gradient([101.0, 103.0, -2.0, -2.0]), atol=1e-5)
    assert not np.allclose(first, gradient([3.0, 1.0, 5.0, 5.0]), atol=1e-3)


def test_episodes_come_from_the_given_sequences() -> None:
    settings = small(envs=2, episodes=2)
    one = unseen_sequences(settings.mix, 1, settings.arrival_steps, 5)
    trainer = Trainer(settings, sequences=one, validation=one)
    jobs = int((one.lengths > 0).sum())
    progress = trainer.train(trainer.start())
    assert progress.curve[-1].steps >= 2 * jobs
    assert trainer.validation is one
    assert (trainer._env.clusters.state.lengths == one.lengths).any(axis=1).all()
