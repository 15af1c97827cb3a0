"""The lab of the test environment is the one of ``sim run``: what it shows, and what follows."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from edgeyard.errors import InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.policy import (
    Planner,
    Policy,
    ScorerChoice,
    load_policy,
    parse_policy,
)
from edgeyard.scheduler.twin.document import read_twin_data, write_twin_data
from edgeyard.simulator.comparison import measured
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import Scenario, scenario_from_toml
from edgeyard.training.ste.controller import Episode
from edgeyard.training.ste.cycle_inputs import cycle_input
from edgeyard.training.ste.lab import EpisodeLab
from edgeyard.training.ste.steps import Decision
from tests.builders.ste import environment, quick_policy_text, scenario

RICH = """
name = "rich"
world = "boards"
duration_s = 1500
seed = 7
[lab]
history_jobs = 40
compare_s = 7
[[lab.boards]]
family = "rpi5"
count = 5
per_host = 2
speed_spread = 0.5
[[lab.boards]]
family = "npu"
count = 4
per_host = 4
sharing = 2
[lab.faults]
task_rate = 0.1
model_rate = 0.03
board_mean_between_s = 3000
board_mean_repair_s = 200
host_mean_between_s = 9000
host_mean_repair_s = 120
network_mean_between_s = 4000
network_mean_repair_s = 60
lost_event_rate = 0.05
late_event_mean_s = 2
stale_twin_s = 3
[lab.arrivals]
rate_per_hour = 180
[[lab.arrivals.users]]
name = "ann"
max_running = 3
[[lab.arrivals.users]]
name = "bob"
share = 2.0
[[lab.arrivals.mix]]
model = "mobilenet.onnx"
run_s = 60
pinned_share = 0.2
families = ["rpi5"]
max_retries = 2
[[lab.arrivals.mix]]
model = "resnet.onnx"
run_s = 150
deadline_s = 600
deadline_share = 0.5
queue_timeout_s = 900
[[lab.arrivals.mix]]
model = "urgent.onnx"
share = 0.2
run_s = 20
benchmark_type = "TYPE2"
user_priority = 10
job_completion_threshold = 90
[[lab.jobs]]
job_id = "pinned"
submit_s = 100
run_s = 500
family = "rpi5"
target_uid = "rpi5-0002-0001"
[[lab.jobs]]
job_id = "fails-once"
submit_s = 110
run_s = 100
family = "npu"
failures = [{ category = "board_fault", after_s = 30 }]
[[lab.jobs]]
job_id = "too-long"
submit_s = 10
run_s = 500
family = "npu"
deadline_s = 200
[[lab.jobs]]
job_id = "cancelled"
submit_s = 50
run_s = 900
family = "npu"
cancel_s = 130
[[lab.jobs]]
job_id = "later"
submit_s = 50
run_s = 30
family = "rpi5"
start_s = 700
[[lab.outages]]
what = "board"
name = "rpi5-0002-0001"
from_s = 300
to_s = 900
[[lab.changes]]
at_s = 1000
what = "drain"
family = "npu"
count = 1
[[lab.changes]]
at_s = 1400
what = "resume"
family = "npu"
[[lab.changes]]
at_s = 1200
what = "boards_join"
group = { family = "rpi5", count = 2 }
[[lab.changes]]
at_s = 1300
what = "boards_leave"
family = "rpi5"
count = 1
[[lab.leases]]
target_uid = "rpi5-0001-0001"
from_s = 600
to_s = 1200
user = "ann"
"""


def rich() -> Scenario:
    return scenario_from_toml(RICH)


def episode(of: Scenario, policy: Policy, seed: int, rounds: int | None = None) -> Episode:
    made = environment(policy, of=of)
    return made.controller.episode(of.name, run="r", episode=0, seed=seed, max_rounds=rounds)


def simulated(of: Scenario, policy: Policy, seed: int) -> SimulatedRun:
    plugins = registry(entry_points=False).resolve(policy)
    return simulate_lab(of, policy, plugins, seed=seed)


def refusal_as_in_sim_run(of: Scenario, policy: Policy) -> str:
    with pytest.raises(InvalidInput) as expected:
        simulated(of, policy, 1)
    with pytest.raises(InvalidInput) as found:
        episode(of, policy, 1)
    assert str(found.value) == str(expected.value)
    return str(found.value)


def assert_equal(found: SimulatedRun, expected: SimulatedRun) -> None:
    for name in ("job", "submit_s", "start_s", "end_s", "status", "attempts", "preemptions"):
        mine, theirs = getattr(found.jobs, name), getattr(expected.jobs, name)
        np.testing.assert_array_equal(mine, theirs, err_msg=name)
    for name in ("board", "job", "from_s", "to_s", "how"):
        mine, theirs = getattr(found.occupancy, name), getattr(expected.occupancy, name)
        np.testing.assert_array_equal(mine, theirs, err_msg=name)
    assert found.boards == expected.boards
    assert found.meta.cycles == expected.meta.cycles
    assert found.meta.events_sha256 == expected.meta.events_sha256


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "seed"), [("default", 7), ("edf", 8), ("fastest", 9)])
def test_jobs_start_and_end_as_in_sim_run(policy: str, seed: int) -> None:
    chosen = load_policy(policy)
    done = episode(rich(), chosen, seed)
    expected = simulated(rich(), chosen, seed)
    assert_equal(done.simulation, expected)
    metrics = measured(expected).metrics
    assert done.figures.mean_wait_s == metrics.figures["wait_s"].interval.mean
    assert done.figures.deadline_misses == metrics.deadline_misses > 0
    assert len(set(expected.jobs.status.tolist())) == 4  # completed, failed, cancelled, expired
    assert expected.jobs.attempts.max() > 1


@pytest.mark.slow
def test_plans_for_cheap_hours_are_those_of_sim_run() -> None:
    dear_at_first = ", ".join(["4", *["1"] * 23])
    of = scenario_from_toml(RICH.replace("[lab]\n", f"[lab]\ntariff = [{dear_at_first}]\n"))
    of = msgspec.structs.replace(of, duration_s=4500.0)
    cheapest = ScorerChoice(name="cheapest", weight=10.0)
    policy = load_policy("default")
    policy = replace(
        policy,
        scorers=(*policy.scorers, cheapest),
        planner=Planner.EXPECTED_COST,
        explore_share=0.0,
    )
    expected = simulated(of, policy, 7)
    assert_equal(episode(of, policy, 7).simulation, expected)
    assert of.lab
    plain = msgspec.structs.replace(of.lab, tariff=())
    at_one_rate = simulated(msgspec.structs.replace(of, lab=plain), policy, 7)
    assert expected.jobs.start_s.tolist() != at_one_rate.jobs.start_s.tolist()


@pytest.mark.parametrize(
    ("tariff", "message"),
    [([1.0] * 23, "/tariff: has 23 numbers"), ([1001.0] * 24, "/tariff: has a number that")],
)
def test_a_tariff_in_a_document_is_checked(tariff: list[float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_twin_data(json.dumps({"nodes": [], "tariff": tariff}).encode())


@pytest.mark.slow
def test_weights_are_learned_as_in_sim_run() -> None:
    text = quick_policy_text().replace('aggregator = "expected_cost"', 'aggregator = "hedge"')
    policy = parse_policy(text)
    assert policy.evaluator
    done = episode(rich(), policy, 7)
    weights: list[dict[str, float]] = []
    expected = simulate_lab(
        rich(),
        policy,
        registry(entry_points=False).resolve(policy),
        seed=7,
        watch=lambda now, given, result: weights.append(dict(given.knowledge.weights)),
    )
    assert_equal(done.simulation, expected)
    assert weights[0] == {}
    shares = weights[-1]
    assert len({round(each, 3) for each in shares.values()}) > 1
    assert done.weights == pytest.approx(shares, abs=0.2)


@pytest.mark.slow
def test_an_episode_that_is_cut_short_counts_who_waits() -> None:
    cut = episode(rich(), load_policy("default"), 7, rounds=30)
    figures, jobs = cut.figures, cut.simulation.jobs
    whole = simulated(rich(), load_policy("default"), 7).jobs
    assert 5 < len(jobs) < len(whole)  # those that have arrived
    assert jobs.submit_s.max() <= cut.simulation.series.time_s.max()
    ended = figures.completed + figures.failed + figures.expired + figures.cancelled
    assert figures.waiting > 0
    assert figures.mean_wait_s < 1000
    assert ended + figures.waiting == figures.jobs


def test_a_scenario_that_cannot_end_is_refused_as_in_sim_run() -> None:
    text = """
name = "drained"
world = "boards"
duration_s = 600
[lab]
boards = [{ family = "rpi5", count = 2 }]
jobs = [{ job_id = "j", submit_s = 10, run_s = 5, family = "rpi5" }]
changes = [{ at_s = 1, what = "drain", family = "rpi5" }]
"""
    of, policy = scenario_from_toml(text), load_policy("default")
    assert "does not end" in refusal_as_in_sim_run(of, policy)


@pytest.mark.slow
def test_a_scenario_that_starves_states_why_its_first_job_waits_as_in_sim_run() -> None:
    text = """
name = "leased"
world = "boards"
duration_s = 600
[lab]
boards = [{ family = "rpi5", count = 1 }]
jobs = [{ job_id = "j", submit_s = 10, run_s = 5, family = "rpi5" }]
leases = [{ target_uid = "rpi5-0001-0001", from_s = 0, to_s = 3e8 }]
"""
    of, policy = scenario_from_toml(text), load_policy("default")
    assert "its waiting reason: " in refusal_as_in_sim_run(of, policy)


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        (
            "lab.jobs[0].target_uid",
            'boards = [{ family = "rpi5", count = 2 }]\n'
            'jobs = [{ job_id = "j", submit_s = 1, run_s = 5, family = "rpi5", target_uid = "x" }]',
        ),
        (
            "lab.outages",
            'boards = [{ family = "rpi5", count = 2 }]\n'
            'jobs = [{ job_id = "j", submit_s = 1, run_s = 5, family = "rpi5" }]\n'
            'outages = [{ what = "board", name = "x", from_s = 1, to_s = 2 }]',
        ),
    ],
)
def test_boards_that_are_not_there_are_refused_with_their_key(key: str, lines: str) -> None:
    of = scenario_from_toml(f'name = "wrong"\nworld = "boards"\nduration_s = 60\n[lab]\n{lines}')
    with pytest.raises(InvalidInput) as caught:
        episode(of, load_policy("default"), 1)
    assert key in str(caught.value)


def test_a_decision_on_a_job_or_a_node_that_is_not_free_changes_nothing() -> None:
    lab = EpisodeLab(scenario(), load_policy("default"), seed=3)
    assert lab.until_decision()
    state = lab.state()
    job = next(each.name for each in state.jobs if each.status == "pending")
    node = state.nodes[0].id
    good = Decision(job_id=job, node_id=node, priority=50)
    wrong = (
        [Decision(job_id="unknown", node_id=node, priority=50)],
        [Decision(job_id=job, node_id="unknown", priority=50)],
        [good, good],
    )
    for decisions in wrong:
        with pytest.raises(InvalidInput, match="/decisions/"):
            lab.carry_out(decisions)
    lab.carry_out([good])
    (running,) = [each for each in lab.state().jobs if each.status == "running"]
    assert (running.name, running.node_id) == (job, node)


def test_the_state_names_loads_queues_and_the_past() -> None:
    lab = EpisodeLab(scenario(), load_policy("default"), seed=3)
    assert lab.until_decision()
    first = read_twin_data(write_twin_data(lab.state(run="r")))
    assert sum(each.status in ("completed", "failed") for each in first.jobs) == 60
    assert len(cycle_input(first).knowledge.runs) == 60
    assert not cycle_input(first).knowledge.host_loads  # what runs is no measurement of a host
    job = next(each.name for each in first.jobs if each.status == "pending")
    lab.carry_out([Decision(job_id=job, node_id=first.nodes[0].id, priority=50)])
    loads = {each.id: each.cpu_load for each in lab.state().nodes}
    assert loads[first.nodes[0].id] > 0
    assert loads[first.nodes[-1].id] == 0
