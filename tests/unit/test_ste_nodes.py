"""The thirteen steps on nodes that jobs share: the same starts and ends as in ``sim run``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.named import policy_named
from edgeyard.scheduler.framework.policy import Backfill, Policy, ScorerChoice, load_policy
from edgeyard.scheduler.framework.protocols import Filter, Proposal, Refusal
from edgeyard.scheduler.framework.registry import Kind, Plugins
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.twin.document import read_twin_data, write_twin_data
from edgeyard.simulator.runs import STATUSES, SimulatedRun
from edgeyard.simulator.scenario import (
    NodeGroup,
    NodeJob,
    NodesScenario,
    PaperMix,
    Scenario,
    scenario_from_toml,
)
from edgeyard.training.ste.controller import Episode, RoundReport
from edgeyard.training.ste.nodes_lab import NodesLab
from edgeyard.training.ste.steps import Decision
from edgeyard.training.worlds.simulated_nodes import simulate_nodes
from tests.builders.ste import environment

PAPER = Scenario(
    name="paper",
    world="nodes",
    duration_s=60.0,
    nodes=NodesScenario(
        nodes=(NodeGroup(count=3, cpu_cores=10, memory_mb=10),), mix=PaperMix(rate=0.9, steps=60)
    ),
)


def mixed(jobs: int = 40, seed: int = 5) -> Scenario:
    """Return nodes of two kinds, used by others too, and jobs with GPUs on one node or two."""
    random = np.random.default_rng(seed)
    drawn = tuple(
        NodeJob(
            job_id=f"job-{row}",
            submit_s=float(np.round(random.uniform(0, 300), 3)),
            run_s=float(np.round(random.uniform(1, 90), 3)),
            requested_s=float(np.round(random.uniform(30, 100), 3)),
            cpus=float(random.choice([0.1, 0.7, 1.0, 3.0])),
            memory_mb=float(random.choice([100.0, 333.3, 2000.0])),
            gpus=float(random.choice([0.0, 0.0, 0.3, 1.0, 2.0])),
            nodes=int(random.choice([1, 1, 1, 2])),
            user=str(random.choice(["ann", "bob"])),
        )
        for row in range(jobs)
    )
    groups = (
        NodeGroup(name="big", count=2, cpu_cores=8, memory_mb=8000, gpus=4, cpu_load=0.1),
        NodeGroup(name="small", count=2, cpu_cores=4, memory_mb=4000, gpus=2, memory_load=0.3),
    )
    described = NodesScenario(nodes=groups, jobs=drawn)
    return Scenario(name="mixed", world="nodes", duration_s=400.0, nodes=described)


def named(name: str) -> Policy:
    return policy_named(name, registry(entry_points=False))


def episode(
    of: Scenario,
    policy: Policy,
    seed: int,
    *,
    rounds: int | None = None,
    reports: list[RoundReport] | None = None,
    plugins: Plugins | None = None,
) -> Episode:
    made = environment(policy, of=of, plugins=plugins)
    seen = [] if reports is None else reports
    return made.controller.episode(
        of.name,
        run="r",
        episode=0,
        seed=seed,
        max_rounds=rounds,
        on_round=lambda report, share: seen.append(report),
    )


def simulated(of: Scenario, policy: Policy, seed: int) -> SimulatedRun:
    return simulate_nodes(of, policy, registry(entry_points=False).resolve(policy), seed=seed)


def assert_equal(found: SimulatedRun, expected: SimulatedRun) -> None:
    for part in ("jobs", "occupancy", "series"):
        mine, theirs = getattr(found, part), getattr(expected, part)
        for name in mine.__dataclass_fields__:
            message = f"{part}.{name}"
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), message)
    assert found.boards == expected.boards
    assert found.meta.events_sha256 == expected.meta.events_sha256
    assert found.meta.figures == expected.meta.figures
    assert found.meta.cycles == expected.meta.cycles


COMPARED = replace(
    load_policy("default"),
    name="compared",
    scorers=tuple(
        ScorerChoice(name=name, weight=1.0) for name in ("best_fit", "tetris", "least_loaded")
    ),
    evaluator="compared",
    aggregator="hedge",
    backfill=Backfill.ANY,
)
USAGE = replace(load_policy("default"), name="fair", queue_policy="fair_share")
RANDOM = replace(
    load_policy("default"), name="any", scorers=(ScorerChoice(name="random", weight=1.0),)
)


class Rewards:
    """An evaluator that rewards one scorer more the more nodes there are to choose between."""

    name = "rewards"

    def evaluate(
        self, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]
    ) -> dict[str, float]:
        return {"best_fit": 1.0 / len(pairs), "tetris": 0.9, "least_loaded": 0.2}


def rewarding() -> Plugins:
    plugins = registry(entry_points=False).resolve(COMPARED)
    return replace(plugins, evaluator=Rewards())


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fcfs", "sjf", "tetris", "random", "easy", "wfp3"])
def test_jobs_start_and_end_as_in_sim_run(policy: str) -> None:
    chosen = named(policy)
    for of in (PAPER, mixed()):
        done = episode(of, chosen, 3)
        assert_equal(done.simulation, simulated(of, chosen, 3))
        assert done.figures.completed == done.figures.jobs > 30


@pytest.mark.parametrize("policy", [USAGE, RANDOM], ids=lambda policy: policy.name)
def test_usage_and_random_nodes_act_as_in_sim_run(policy: Policy) -> None:
    done = episode(mixed(), policy, 4)
    assert_equal(done.simulation, simulated(mixed(), policy, 4))


def test_learned_weights_act_as_in_sim_run() -> None:
    plugins = rewarding()
    done = episode(mixed(), COMPARED, 4, plugins=plugins)
    assert_equal(done.simulation, simulate_nodes(mixed(), COMPARED, plugins, seed=4))
    assert done.weights["tetris"] > done.weights["best_fit"] > 0
    assert done.rewards["tetris"] == pytest.approx(0.9)


def test_all_thirteen_steps_report_what_they_did() -> None:
    reports: list[RoundReport] = []
    episode(mixed(), COMPARED, 4, reports=reports, plugins=rewarding())
    report = max(reports, key=lambda each: len(each.answer.rewards) * len(each.answer.waiting))
    assert [each.step for each in report.steps] == list(range(1, 14))
    by_step = {each.step: each for each in report.steps}
    began = [each.at for each in report.steps if each.step >= 6]
    assert began == sorted(began)
    assert all(each.seconds >= 0 for each in report.steps)
    assert len(by_step[7].detail["queue"]) >= len(report.answer.decisions)
    assert by_step[8].detail["pools"][0]["eligible"]
    assert {each["scheduler"] for each in by_step[9].detail["schedulers"] if each["answered"]} == {
        "best_fit", "tetris", "least_loaded",
    }  # fmt: skip
    assert by_step[12].detail["rewards"] == report.answer.rewards
    assert by_step[13].detail["placed"] == len(report.answer.decisions)


def test_a_state_shows_the_fields_of_the_schema_node_pool() -> None:
    lab = NodesLab(mixed(), named("fcfs"), seed=1)
    assert lab.until_decision()
    state = read_twin_data(write_twin_data(lab.state(run="r")))
    assert [each.id for each in state.nodes] == ["big-1", "big-2", "small-1", "small-2"]
    assert [each.cpu_cores for each in state.nodes] == [8, 8, 4, 4]
    assert state.nodes[0].cpu_load == pytest.approx(0.8)  # of others
    (job,) = [each for each in state.jobs if each.status == "pending"]
    assert job.parts is not None
    nodes = [each.id for each in state.nodes[: job.parts.nodes]]
    decision = Decision(job_id=job.name, node_id=nodes[0], node_ids=nodes, priority=50)
    lab.carry_out([decision])
    assert lab.until_decision()
    after = lab.state()
    (running,) = [each for each in after.jobs if each.status == "running"]
    assert (running.name, running.parts.node_ids if running.parts else []) == (job.name, nodes)
    assert after.nodes[0].cpu_load == pytest.approx(0.8 + job.cpus_req)
    assert after.nodes[0].memory_load == pytest.approx(100 * job.mem_req / 8000)


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Decision(job_id="unknown", node_id="big-1", priority=50), "is not waiting"),
        (Decision(job_id="big", node_id="unknown", priority=50), "no node 'unknown'"),
        (Decision(job_id="big", node_id="small-1", priority=50), "too little room left"),
        (
            Decision(job_id="big", node_id="big-1", node_ids=["big-1", "big-1"], priority=50),
            "takes 1 node",
        ),
    ],
)
def test_a_decision_that_nodes_cannot_take_is_refused(decision: Decision, words: str) -> None:
    groups = (NodeGroup(name="big", count=2, cpu_cores=8), NodeGroup(name="small", cpu_cores=4))
    job = NodeJob(job_id="big", submit_s=0.0, run_s=5.0, cpus=6.0)
    described = NodesScenario(nodes=groups, jobs=(job,))
    of = Scenario(name="one", world="nodes", duration_s=400.0, nodes=described)
    lab = NodesLab(of, named("fcfs"), seed=1)
    assert lab.until_decision()
    with pytest.raises(InvalidInput, match=f"/decisions/0.*{words}"):
        lab.carry_out([decision])


def test_an_episode_that_is_cut_short_counts_who_waits_and_who_runs() -> None:
    cut = episode(mixed(), named("fcfs"), 3, rounds=12)
    figures = cut.figures
    assert figures.completed + figures.waiting == figures.jobs == len(cut.simulation.jobs)
    assert {STATUSES[each] for each in cut.simulation.jobs.status.tolist()} >= {"running"}
    assert len(cut.simulation.occupancy) == figures.completed or figures.completed > 0


STARVED = """
name = "starved"
world = "nodes"
duration_s = 60
[nodes]
nodes = [{ count = 3, cpu_cores = 4 }]
jobs = [{ job_id = "j", submit_s = 1, run_s = 5 }]
"""


def test_errors_are_those_of_sim_run() -> None:
    too_large = scenario_from_toml(STARVED.replace("run_s = 5", "run_s = 5, gpus = 8"))
    cases = [
        (too_large, named("fcfs")),
        (PAPER, replace(named("fcfs"), cool_down_s=5.0)),
        (PAPER, named("fastest")),
        (PAPER, named("met")),
    ]
    for of, policy in cases:
        with pytest.raises(InvalidInput) as expected:
            simulated(of, policy, 1)
        with pytest.raises(InvalidInput) as found:
            episode(of, policy, 1)
        assert str(found.value) == str(expected.value)


def test_a_log_is_refused_with_a_way_out() -> None:
    described = NodesScenario(nodes=(NodeGroup(cpu_cores=4),), log="some.swf")
    of = Scenario(name="log", world="nodes", duration_s=100.0, nodes=described)
    with pytest.raises(InvalidInput, match=r"log: nodes\.log.*edgeyard sim replay"):
        episode(of, named("fcfs"), 1)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (lambda tree: tree["nodes"][0].pop("free"), "/nodes/0/free"),
        (lambda tree: tree["jobs"][-1].pop("parts"), "/parts"),
        (lambda tree: tree["jobs"][-1]["parts"].update(node_ids=["x"]), "/node_ids/0"),
        (lambda tree: tree["jobs"][-1]["parts"].update(gpu_bits=[]), "/gpu_bits"),
        (lambda tree: tree["jobs"][-1]["parts"].pop("ends_by_s"), "/ends_by_s"),
        (lambda tree: tree["jobs"][-1]["parts"].update(bound_s=0), "/bound_s"),
    ],
)
def test_a_wrong_state_is_refused_with_its_place(change: object, pointer: str) -> None:
    lab = NodesLab(PAPER, named("fcfs"), seed=1)
    for _ in range(3):
        assert lab.until_decision()
        state = lab.state()
        job = next(each for each in state.jobs if each.status == "pending")
        lab.carry_out([Decision(job_id=job.name, node_id="node-1", priority=50)])
        if any(each.status == "running" for each in lab.state().jobs):
            break
    tree = json.loads(write_twin_data(lab.state()))
    assert callable(change)
    change(tree)
    with pytest.raises(InvalidInput, match=pointer):
        read_twin_data(json.dumps(tree).encode())


class SpareCores(Filter):
    """A filter that asks for more free cores than there are."""

    name = "spare_cores"
    refusals = (Refusal(WaitingReason.CLUSTER_CONSTRAINT, never=False),)

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        return np.ones(batch.shape, dtype=np.uint8)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        return "has too few free cores"


def test_jobs_that_wait_for_ever_end_the_episode_with_the_reason_of_sim_run() -> None:
    of = scenario_from_toml(STARVED)
    known = registry(entry_points=False)
    known.add(Kind.FILTER, "spare_cores", SpareCores, "tests")
    policy = replace(named("fcfs"), filters=("spare_cores",))
    plugins = known.resolve(policy)
    with pytest.raises(ConfigError) as expected:
        simulate_nodes(of, policy, plugins, seed=1)
    made = environment(policy, of=of, plugins=plugins)
    with pytest.raises(ConfigError) as found:
        made.controller.episode(of.name, run="r", episode=0, seed=1)
    assert str(found.value) == str(expected.value)
    assert "too few free cores" in str(found.value)
