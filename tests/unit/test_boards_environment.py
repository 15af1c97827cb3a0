"""``edgeyard/Boards-v0``: an agent chooses boards in a lab, or lets a benchmark wait."""

from __future__ import annotations

import warnings
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from edgeyard.errors import InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.scenario import (
    Arrivals,
    BoardGroup,
    Faults,
    JobKind,
    JobRow,
    LabScenario,
    Scenario,
    User,
)
from edgeyard.training.board_environment import BASELINES, BOARD_COLUMNS
from edgeyard.training.environments import BoardsEnv

FAST, SLOW = "rpi4b-0001-0001", "rpi4b-0002-0001"


def small(*, rate_per_hour: float = 120.0, faults: Faults | None = None, **user: int) -> Scenario:
    lab = LabScenario(
        boards=(
            BoardGroup(family="rpi4b", count=3, per_host=1, speed_spread=0.5),
            BoardGroup(family="rpi5", count=2, speed=2.0, sharing=2),
        ),
        arrivals=Arrivals(
            rate_per_hour=rate_per_hour,
            mix=(JobKind(model="m", run_s=60.0), JobKind(model="n", run_s=200.0, deadline_s=7200)),
            users=(User(name="ada", **user),),
        ),
        faults=faults or Faults(),
        history_jobs=50,
    )
    return Scenario(name="small", world="boards", duration_s=1200.0, lab=lab)


def play(env: BoardsEnv, baseline: str, seed: int = 3) -> tuple[float, dict[str, float], int]:
    observation, _ = env.reset(seed=seed)
    total, steps = 0.0, 0
    while True:
        action = env.choose(baseline)
        assert observation["action_mask"][action] == 1
        observation, reward, terminated, truncated, info = env.step(np.int64(action))
        assert env.observation_space.contains(observation)
        total, steps = total + reward, steps + 1
        if terminated or truncated:
            assert terminated, info
            return total, info, steps


def test_gymnasium_s_checker_finds_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make("edgeyard/Boards-v0", scenario=small(), max_steps=50)
        check_env(env.unwrapped)


@pytest.mark.slow
def test_many_lab_environments_run_as_one_vectorised_environment() -> None:
    envs = gymnasium.make_vec(
        "edgeyard/Boards-v0", 3, vectorization_mode="sync", scenario=small(), max_steps=20
    )
    observations, _ = envs.reset(seed=1)
    for _ in range(30):
        masks = observations["action_mask"]
        observations, rewards, *_ = envs.step(masks.argmax(axis=1))
    assert observations["boards"].shape == (3, 5, len(BOARD_COLUMNS))
    assert rewards.shape == (3,)
    envs.close()


@pytest.mark.slow
@pytest.mark.parametrize("baseline", BASELINES)
def test_an_episode_ends_when_all_benchmarks_have_ended(baseline: str) -> None:
    env = BoardsEnv(scenario=small())
    total, info, steps = play(env, baseline)
    assert info["jobs"] == steps or baseline == "earliest_end"
    # the rewards of an episode are the turnarounds in hours, less what passed before it began
    assert total <= 0.0
    assert -total == pytest.approx(info["jobs"] * info["mean_turnaround_s"] / 3600, rel=0.05)


@pytest.mark.slow
def test_the_same_seed_is_the_same_episode() -> None:
    env = BoardsEnv(scenario=small(faults=Faults(task_rate=0.1)))
    assert play(env, "random") == play(env, "random")
    assert play(env, "random", seed=4) != play(env, "random")


def test_a_queue_policy_is_a_policy_as_in_simulations() -> None:
    env = BoardsEnv(scenario=small(), policy="shortest_first")
    env.reset(seed=1)
    with pytest.raises(
        InvalidInput, match="'shortest_worst' is neither a file nor the name of a policy"
    ):
        BoardsEnv(scenario=small(), policy="shortest_worst")


@pytest.mark.slow
def test_taking_the_fastest_free_board_is_what_that_policy_does() -> None:
    """The environment has the same lab as simulations: same arrivals, same run times."""
    scenario = small()
    policy = replace(load_policy("fastest"), max_preemptions=0)
    run = simulate_lab(scenario, policy, registry(entry_points=False).resolve(policy), seed=9)
    env = BoardsEnv(scenario=scenario, policy="fastest")
    env.reset(options={"scenario_seed": 9})
    info: dict[str, float] = {}
    while not info:
        *_, info = env.step(np.int64(env.choose("fastest")))
    assert info["jobs"] == len(run.jobs)
    assert info["mean_wait_s"] == pytest.approx(run.schedule.wait_s.mean(), rel=0.1, abs=5.0)


@pytest.mark.slow
def test_masks_come_from_filters_and_limits_of_users() -> None:
    env = BoardsEnv(scenario=small(max_running=1))
    observation, _ = env.reset(seed=2)
    most = 0
    info: dict[str, float] = {}
    while not info:
        busy = observation["boards"][:, 1] == 0
        most = max(most, int(busy.sum()))
        observation, *_, info = env.step(np.int64(env.choose("first")))
    assert most == 0, "a user who may have one board is asked only when none is taken"


def two_boards() -> Scenario:
    jobs = tuple(
        JobRow(job_id=f"b-{number}", submit_s=at, run_s=100.0, family="rpi4b", target_uid=uid)
        for number, (at, uid) in enumerate([(0.0, FAST), (5.0, "")])
    )
    lab = LabScenario(
        boards=(BoardGroup(family="rpi4b", count=2, per_host=1),),
        jobs=jobs,
    )
    return Scenario(name="two", world="boards", duration_s=100.0, lab=lab)


def test_a_benchmark_may_wait_and_is_asked_about_again() -> None:
    env = BoardsEnv(scenario=two_boards())
    observation, _ = env.reset(seed=1)
    assert env.board_uids == (FAST, SLOW)
    assert observation["action_mask"].tolist() == [1, 0, 1]  # pinned to the first
    observation, *_ = env.step(np.int64(0))
    assert observation["action_mask"].tolist() == [0, 1, 1]
    masks = []
    for _ in range(20):
        observation, reward, *_ = env.step(np.int64(2))  # waits
        masks.append(observation["action_mask"].tolist())
        assert reward < 0.0
        if masks[-1] == [1, 1, 1]:
            break
    assert masks[-1] == [1, 1, 1], "it may wait until the first board is free"
    *_, terminated, truncated, info = env.step(np.int64(0))
    assert (terminated, truncated, info["jobs"]) == (True, False, 2.0)


def test_the_reward_of_utilisation_is_minus_the_idle_share_while_there_is_work() -> None:
    env = BoardsEnv(scenario=two_boards(), reward="utilisation")
    env.reset(seed=1)
    total, terminated = 0.0, False
    while not terminated:
        _, reward, terminated, _, _ = env.step(np.int64(env.choose("first")))
        total += reward
    lab = env._lab  # both boards are online all the time, and a benchmark is there from 0 s on
    held = lab.result(0.0).occupancy
    assert lab.now_s > 100.0
    busy_s = float((held.to_s - held.from_s).sum())
    assert 190.0 < busy_s < 2 * lab.now_s
    assert total == pytest.approx(-(lab.now_s - busy_s / 2) / 3600)


@pytest.mark.slow
def test_waiting_costs_more_utilisation_than_placing() -> None:
    totals = {}
    for waits in (0, 5):
        env = BoardsEnv(scenario=small(), reward="utilisation")
        env.reset(seed=3)
        total, ended, steps = 0.0, False, 0
        while not ended:
            steps += 1
            action = len(env.board_uids) if steps <= waits else env.choose("first")
            _, reward, ended, truncated, _ = env.step(np.int64(action))
            assert -1.0 <= reward <= 0.0
            assert not truncated
            total += reward
        totals[waits] = total
    assert totals[5] < totals[0]


def test_an_agent_that_always_waits_is_truncated() -> None:
    env = BoardsEnv(scenario=two_boards(), max_steps=10)
    env.reset(seed=1)
    for step in range(10):
        _, _, terminated, truncated, info = env.step(np.int64(2))
        assert not terminated
        assert truncated is (step == 9)
    assert info["jobs"] == 0.0
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.int64(2))


def test_options_are_checked() -> None:
    expected = "expected one of 'turnaround', 'slowdown', 'utilisation'"
    with pytest.raises(ValueError, match=expected):
        BoardsEnv(scenario=small(), reward="speed")
    with pytest.raises(ValueError, match="must be 1 or more"):
        BoardsEnv(scenario=small(), visible=0)
    slow = BoardsEnv(scenario=small(), reward="slowdown")
    total, info, _ = play(slow, "fastest")
    assert -total > info["jobs"] * 0.5
