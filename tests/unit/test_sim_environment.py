"""``edgeyard/Cluster-v0``: Gymnasium's contract, the paper's rules, and DeepRM's published mix."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

from edgeyard.simulator.mixes import JobMix, poisson_arrivals
from edgeyard.training.cluster_environment import ClusterEnv, ClusterVectorEnv

Integers = NDArray[np.int64]
Arrivals = tuple[Integers, Integers]


def arrivals(*jobs: tuple[int, int, int, int], steps: int = 6) -> dict[str, Any]:
    """Options of a reset: (step, length, need of the first resource, of the second) each."""
    lengths = np.zeros(steps, dtype=np.int64)
    sizes = np.zeros((steps, 2), dtype=np.int64)
    for step, length, first, second in jobs:
        lengths[step] = length
        sizes[step] = (first, second)
    return {"lengths": lengths, "sizes": sizes}


def small(**options: Any) -> ClusterEnv:
    """Two units, two slots, a horizon of four steps."""
    mix = JobMix(short=(1, 2), long=(2, 3), dominant=(1, 2), other=(1, 1))
    chosen = {"mix": mix, "units": 2, "slots": 2, "backlog": 4, "horizon": 4, "arrival_steps": 6}
    return ClusterEnv(**{**chosen, **options})


def play(env: ClusterEnv, baseline: str) -> dict[str, Any]:
    """Run the episode to its end and return its last info."""
    while True:
        *_, terminated, truncated, info = env.step(np.int64(env.choose(baseline)))
        if terminated or truncated:
            return info


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nodes": 3, "mix": {"rate": 0.9, "resources": 3}, "slots": 10, "backlog": 7},
        {"end": "no_new_job"},
        {"observation": "compact", "nodes": 2},
    ],
)
def test_gymnasiums_checker_finds_nothing(options: dict[str, Any]) -> None:
    check_env(gymnasium.make("edgeyard/Cluster-v0", **options).unwrapped)


def test_the_image_shows_cluster_queue_and_backlog() -> None:
    env = small()
    image, _ = env.reset(options=arrivals((1, 2, 1, 2), (2, 1, 2, 1), (3, 3, 1, 1)))
    assert image.shape == (4, 2 * (2 + 2 * 2) + 1 + 1)
    assert not image.any()
    for _ in range(3):
        image, *_ = env.step(np.int64(0))
    # first resource: nothing in use; slot 1 needs 1 unit for 2 steps, slot 2 needs 2 for 1
    assert image[:, :6].tolist() == [
        [0, 0, 1, 0, 1, 1],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    assert image[:, 12].tolist() == [1, 0, 0, 0]  # the third waits in the backlog
    image, *_ = env.step(np.int64(1))
    assert image[:, :4].tolist() == [[1, 0, 1, 0], [1, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert not image[:, 12].any()


def test_the_compact_observation_counts_jobs_units_and_needs() -> None:
    env = small(observation="compact")
    options = arrivals((1, 2, 1, 2), (2, 1, 2, 1), (3, 3, 1, 1))
    env.reset(options=options)
    for _ in range(3):
        env.step(np.int64(0))
    seen, *_ = env.step(np.int64(1))  # the first runs for two steps; the third becomes visible
    assert seen.tolist() == [
        *[1, 1, 0, 0],  # jobs that still run, by step
        *[1, 1, 2, 2],  # free units of the first resource, by step
        *[0, 0, 2, 2],  # of the second
        *[3, 1, 1],  # slot 1: run time, needs
        *[1, 2, 1],  # slot 2
        0,  # nothing in the backlog
    ]
    image = small()
    image.reset(options=options)
    for action in (0, 0, 0, 1):
        image.step(np.int64(action))
    assert env.render() == image.render()
    with pytest.raises(ValueError, match="expected 'image' or 'compact'"):
        small(observation="pixels")


def test_the_reward_is_minus_one_over_the_run_time_of_each_job_in_the_system() -> None:
    env = small()
    env.reset(options=arrivals((1, 2, 1, 1), (2, 1, 1, 1)))
    rewards = [float(env.step(np.int64(action))[1]) for action in (0, 0, 1, 2, 0, 0)]
    # arrival of T=2; then also T=1; two placements without reward; one ends; both have
    assert rewards == [-0.5, -1.5, 0, 0, -0.5, 0]
    assert env.clusters.schedule(0).start.tolist() == [2, 2]


def test_minus_the_sum_of_rewards_is_the_sum_of_slowdowns() -> None:
    env = ClusterEnv()
    env.reset(seed=1)
    total, ended = 0.0, False
    while not ended:
        _, reward, ended, _, info = env.step(np.int64(env.choose("sjf")))
        total -= reward
    assert total == pytest.approx(info["mean_slowdown"] * info["jobs"])


def test_factors_of_the_reward_go_by_where_a_job_is() -> None:
    env = small(placed_penalty=-1.0, visible_penalty=-10.0, backlog_penalty=-100.0)
    env.reset(options=arrivals((1, 1, 1, 1), (2, 1, 1, 1), (3, 1, 1, 1)))
    rewards = [float(env.step(np.int64(0))[1]) for _ in range(3)]
    assert rewards == [-10, -20, -120]


def utilisation(**options: Any) -> ClusterEnv:
    options |= {"placed_penalty": 0.0, "visible_penalty": 0.0, "backlog_penalty": 0.0}
    return ClusterEnv(idle_penalty=-1.0, **options)


def test_the_penalty_of_idle_units_counts_steps_with_jobs() -> None:
    env = small(placed_penalty=0.0, visible_penalty=0.0, backlog_penalty=0.0, idle_penalty=-1.0)
    # one node with two units of two resources; rows of an arrival: step, run time, needs
    env.reset(options=arrivals((1, 2, 1, 2), (3, 1, 1, 1)))
    rewards = [float(env.step(np.int64(action))[1]) for action in (0, 1, 0, 0, 0, 1, 0)]
    # step 0 has no job; the first uses 3 of 4 units in the steps 1 and 2; the second waits for a
    # step and uses 2 of 4 in the next one
    assert rewards == [0, 0, -0.25, -0.25, -1, 0, -0.5]


def test_the_sum_of_idle_shares_is_the_busy_time_less_the_work() -> None:
    env = utilisation(nodes=2, mix={"rate": 1.0})
    env.reset(seed=1)
    total, ended = 0.0, False
    while not ended:
        _, reward, ended, _, _ = env.step(np.int64(env.choose("sjf")))
        total += reward
    state, schedule = env.clusters.state, env.clusters.schedule(0)
    steps: set[int] = set()  # in which a job is in the system
    for submit, end in zip(schedule.submit.tolist(), schedule.end.tolist(), strict=True):
        steps.update(range(int(submit), int(end)))
    work = float((state.lengths[0, :, None] * state.sizes[0]).sum()) / (2 * 10 * 2)
    assert len(steps) > 50
    assert total == pytest.approx(-(len(steps) - work))


def test_a_job_that_fits_nowhere_or_an_empty_slot_lets_time_pass() -> None:
    env = small()
    env.reset(options=arrivals((1, 3, 2, 2), (2, 3, 2, 2)))
    env.step(np.int64(0))
    env.step(np.int64(0))
    assert env.action_masks().tolist() == [1, 1, 1]
    env.step(np.int64(1))
    assert env.action_masks().tolist() == [1, 0, 0]  # the horizon is full, the slot empty
    env.step(np.int64(2))
    assert env.clusters.schedule(0).end.size == 0
    assert env.clusters.state.counts[0, 0] == 3


def test_two_nodes_run_what_one_can_not() -> None:
    for nodes, slowdown in ((1, (1 + 5 / 3) / 2), (2, 1.0)):
        env = small(nodes=nodes, horizon=8)
        env.reset(options=arrivals((1, 3, 2, 2), (2, 3, 2, 2)))
        assert play(env, "sjf")["mean_slowdown"] == pytest.approx(slowdown)


def test_an_episode_is_a_function_of_its_seed() -> None:
    env = ClusterEnv()
    infos = []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        infos.append(play(env, "tetris"))
    assert infos[0] == infos[1] != infos[2]


def test_an_endless_choice_is_truncated() -> None:
    env = small(max_steps=9)
    env.reset(options=arrivals((1, 1, 1, 1)))
    ends = [env.step(np.int64(0))[2:4] for _ in range(10)]
    assert ends == [(False, False)] * 9 + [(False, True)]


def test_lost_jobs_are_counted() -> None:
    env = small(backlog=1, max_steps=20)
    env.reset(options=arrivals(*((step, 1, 1, 1) for step in range(1, 6))))
    for _ in range(7):
        env.step(np.int64(0))
    assert play(env, "sjf") == {
        "jobs": 3, "lost": 2, "mean_slowdown": pytest.approx((7 + 6 + 6) / 3),
        "mean_wait": pytest.approx((6 + 5 + 5) / 3), "mean_turnaround": pytest.approx(19 / 3),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": 0}, "must be 1 or more"),
        ({"units": 4}, "could never run"),
        ({"horizon": 15}, "runs must be shorter than the horizon of 15"),
        ({"end": "never"}, "end is 'never'"),
        ({"mix": {"rate": 1.5}}, "rate is 1.5, expected 0 to 1"),
        ({"mix": {"short": (3, 1)}}, r"short is \(3, 1\)"),
    ],
)
def test_numbers_out_of_range_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClusterEnv(**options)


def test_vectorised_environments_are_the_single_ones_side_by_side() -> None:
    many = ClusterVectorEnv(4, arrival_steps=12)
    images, _ = many.reset(seed=3)
    state = many.clusters.state
    single = [ClusterEnv(arrival_steps=12) for _ in range(4)]
    for env, one in enumerate(single):
        first, _ = one.reset(
            options={"lengths": state.lengths[env].copy(), "sizes": state.sizes[env].copy()}
        )
        assert np.array_equal(first, images[env])
    rng = np.random.default_rng(1)
    running, begun_again = [True] * 4, 0
    for _ in range(150):
        actions = rng.integers(0, 6, 4)
        images, rewards, terminated, truncated, infos = many.step(actions)
        for env, one in enumerate(single):
            if not running[env]:
                continue
            image, reward, ended, cut, info = one.step(actions[env])
            assert np.array_equal(image, images[env])
            assert (reward, ended, cut) == (rewards[env], terminated[env], truncated[env])
            if ended:
                running[env] = False
                begun_again += 1
                assert infos["mean_slowdown"][env] == pytest.approx(info["mean_slowdown"])
    assert begun_again == 4


def test_vectorised_environments_take_arrivals_and_have_masks() -> None:
    rng = np.random.default_rng(5)
    drawn = [JobMix(rate=0.9).arrivals(rng, 12) for _ in range(3)]
    many = ClusterVectorEnv(3, arrival_steps=12, backlog=3)
    lengths, sizes = (np.stack(each) for each in zip(*drawn, strict=True))
    images, _ = many.reset(options={"lengths": lengths, "sizes": sizes})
    single = [ClusterEnv(arrival_steps=12, backlog=3) for _ in range(3)]
    for env, one in enumerate(single):
        one.reset(options={"lengths": lengths[env], "sizes": sizes[env]})
    seen = set()
    for _ in range(20):
        masks = many.action_masks()
        assert masks.tolist() == [one.action_masks().tolist() for one in single]
        seen |= {tuple(row) for row in masks.tolist()}
        actions = rng.integers(0, 6, 3)
        images, *_ = many.step(actions)
        for env, one in enumerate(single):
            assert np.array_equal(one.step(actions[env])[0], images[env])
    assert len(seen) > 5


def test_arrivals_of_another_shape_are_refused() -> None:
    many = ClusterVectorEnv(2, arrival_steps=6)
    lengths, sizes = np.ones((2, 6), dtype=np.int64), np.ones((2, 6, 2), dtype=np.int64)
    for wrong in (
        {"lengths": lengths[0], "sizes": sizes[0]},
        {"lengths": lengths, "sizes": sizes[:, :, :1]},
        {"lengths": lengths[:, :5], "sizes": sizes},
    ):
        with pytest.raises(ValueError, match=r"options: (lengths|sizes) has the shape"):
            many.reset(options=wrong)
    with pytest.raises(ValueError, match="options: sizes is missing"):
        many.reset(options={"lengths": lengths})
    with pytest.raises(ValueError, match=r"has the shape \(2, 6\); it must be \(6,\)"):
        ClusterEnv(arrival_steps=6).reset(options={"lengths": lengths, "sizes": sizes})


def test_a_vectorised_environment_begins_again_by_itself() -> None:
    many = gymnasium.make_vec("edgeyard/Cluster-v0", 3, arrival_steps=5, end="no_new_job")
    many.reset(seed=1)
    none = np.zeros(3, dtype=np.int64)
    ended = [many.step(none)[2].tolist() for _ in range(11)]
    assert ended == ([[False] * 3] * 4 + [[True] * 3] + [[False] * 3]) + [[False] * 3] * 4 + [
        [True] * 3
    ]
    many.close()


def deeprm_sequences(count: int, steps: int, rate: float) -> Arrivals:
    """DeepRM's unseen sequences: its mix, drawn in its order from its seed."""
    random = np.random.RandomState(314159)
    lengths = np.zeros(count * steps, dtype=np.int64)
    sizes = np.zeros((count * steps, 2), dtype=np.int64)
    for row in range(count * steps):
        if random.rand() < rate:
            lengths[row] = random.randint(1, 4) if random.rand() < 0.8 else random.randint(10, 16)
            dominant = random.randint(0, 2)
            for resource in range(2):
                much = resource == dominant
                sizes[row, resource] = random.randint(5, 11) if much else random.randint(1, 3)
    rows = lengths.reshape(count, steps)
    rows[:, 0] = 0  # its first step never arrives
    return rows, sizes.reshape(count, steps, 2)


def mean_slowdown(baseline: str, seed: int = 0, slots: int = 5) -> float:
    """Of all jobs of DeepRM's 100 unseen sequences at rate 0.7."""
    env = ClusterEnv(slots=slots)
    env.reset(seed=seed)
    lengths, sizes = deeprm_sequences(100, 50, 0.7)
    found = []
    for row in range(100):
        env.reset(options={"lengths": lengths[row], "sizes": sizes[row]})
        assert play(env, baseline)["lost"] == 0
        found.append(env.clusters.schedule(0).slowdown)
    return float(np.concatenate(found).mean())


@pytest.mark.parametrize("observation", ["image", "compact"])
def test_environments_go_on_from_a_snapshot_as_from_where_it_was_taken(observation: str) -> None:
    first, other = (ClusterVectorEnv(3, arrival_steps=6, observation=observation) for _ in range(2))
    first.reset(seed=4)
    other.reset(seed=5)
    rng = np.random.default_rng(1)
    for _ in range(25):
        first.step(rng.integers(6, size=3))
    snapshot = first.snapshot()
    assert np.array_equal(other.restore(snapshot), first.observations())
    episodes = 0
    for _ in range(60):  # beyond the ends of episodes
        actions = rng.integers(6, size=3)
        one, two = first.step(actions), other.step(actions)
        assert all(np.array_equal(a, b) for a, b in zip(one[:4], two[:4], strict=True))
        episodes += int(one[2].sum())
    assert episodes
    assert snapshot["counts"].tolist() != first.snapshot()["counts"].tolist()


def test_arrivals_may_come_from_elsewhere_than_the_mix() -> None:
    env = ClusterVectorEnv(2, arrival_steps=6)
    given = arrivals((2, 3, 1, 2))
    env.clusters.draw = lambda random, steps: (given["lengths"], given["sizes"])
    env.reset(seed=1)
    for _ in range(40):  # beyond the end of an episode
        env.step(np.ones(2, dtype=np.int64))
        assert (env.clusters.state.lengths == given["lengths"]).all()


@pytest.mark.parametrize(
    ("baseline", "slots", "published"),
    [("sjf", 5, 7.383), ("tetris", 5, 13.743), ("sjf", 10, 5.146), ("tetris", 10, 12.814)],
)
def test_baselines_reach_what_deeprms_environment_gives(
    baseline: str, slots: int, published: float
) -> None:
    assert mean_slowdown(baseline, slots=slots) == pytest.approx(published, abs=0.0005)


@pytest.mark.slow
def test_random_choices_reach_what_deeprms_environment_gives_within_their_spread() -> None:
    found = [mean_slowdown("random", seed) for seed in range(8)]
    assert abs(9.108 - np.mean(found)) < 3 * np.std(found, ddof=1)


def test_the_generated_mix_is_deeprms() -> None:
    lengths, sizes = JobMix(rate=0.7).arrivals(np.random.default_rng(1), 100_000)
    came = lengths > 0
    assert abs(came.mean() - 0.7) < 0.005
    assert lengths[0] == 0
    assert set(np.unique(lengths[came])) == {1, 2, 3, *range(10, 16)}
    assert abs((lengths[came] <= 3).mean() - 0.8) < 0.005
    assert sorted(np.unique(sizes[came]).tolist()) == [1, 2, *range(5, 11)]
    assert ((sizes[came] >= 5).sum(axis=1) == 1).all()
    assert abs((sizes[came, 0] >= 5).mean() - 0.5) < 0.01
    assert not sizes[~came].any()


def test_poisson_arrivals_come_at_their_rate() -> None:
    times = poisson_arrivals(np.random.default_rng(1), 2.0, 10_000.0)
    assert abs(len(times) - 20_000) < 4 * 20_000**0.5
    gaps = np.diff(times)
    assert (gaps >= 0).all()
    assert abs(gaps.std() / gaps.mean() - 1) < 0.03
    with pytest.raises(ValueError, match="from 0"):
        poisson_arrivals(np.random.default_rng(1), -1.0, 5.0)
