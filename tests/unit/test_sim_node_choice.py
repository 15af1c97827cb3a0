"""On nodes the service's own filters, scorers, evaluator and aggregator choose."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework import policy as policy_module
from edgeyard.scheduler.framework.baselines import BASELINES
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.policy import (
    MAPPINGS,
    Backfill,
    Policy,
    ScorerChoice,
    built_in_policies,
    load_policy,
)
from edgeyard.scheduler.framework.protocols import Filter, Refusal, ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import Kind, Registry
from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import NodeGroup, NodeJob, NodesScenario, Scenario
from edgeyard.training.worlds import nodes as world
from edgeyard.training.worlds import simulated_nodes
from edgeyard.training.worlds.node_choice import PluginChooser
from edgeyard.training.worlds.simulated_nodes import (
    QueueRanker,
    compiled_rule,
    node_columns,
    node_jobs,
    simulate_nodes,
)

GROUPS = (
    NodeGroup(name="a", count=2, cpu_cores=4, memory_mb=8, gpus=2),
    NodeGroup(name="b", cpu_cores=6, memory_mb=6),
    NodeGroup(name="c", cpu_cores=8, memory_mb=16, gpus=1, cpu_load=0.25, memory_load=0.5),
)


class Prefers:
    """A scorer that likes some nodes, by their names."""

    objective, kind = "taste", ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE

    def __init__(self, name: str, likes: str) -> None:
        self.name, self._likes = name, likes

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        liked = [each.startswith(self._likes) for each in batch.snapshot.uids]
        return np.array(liked, dtype=np.float32)[pairs.boards]


class Refuses(Filter):
    """A filter that refuses nodes with fewer cores than it wants free."""

    name = "spare_cores"
    refusals = (Refusal(WaitingReason.CLUSTER_CONSTRAINT, never=False),)

    def __init__(self, free_cores: float = 5.0) -> None:
        self._free_cores = free_cores

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        assert batch.resources is not None
        return (batch.resources.free[None, :, 0] < self._free_cores).astype(np.uint8)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        return "has too few free cores"


def known() -> Registry:
    made = registry(entry_points=False)
    made.add(Kind.SCORER, "likes_b", lambda: Prefers("likes_b", "b"), "tests")
    made.add(Kind.SCORER, "likes_c", lambda: Prefers("likes_c", "c"), "tests")
    made.add(Kind.FILTER, "spare_cores", Refuses, "tests")
    return made


def simulated(*jobs: NodeJob, **changes: object) -> SimulatedRun:
    policy = replace(load_policy("default"), **changes)  # type: ignore[arg-type]
    described = NodesScenario(nodes=GROUPS, jobs=jobs)
    scenario = Scenario(name="made", world="nodes", duration_s=100.0, nodes=described)
    return simulate_nodes(scenario, policy, known().resolve(policy))


def one(name: str = "one", **more: float) -> NodeJob:
    return NodeJob(job_id=name, submit_s=0.0, run_s=10.0, **more)  # type: ignore[arg-type]


def scorers(*names: str) -> tuple[ScorerChoice, ...]:
    return tuple(ScorerChoice(name=name, weight=1.0) for name in names)


@pytest.mark.slow  # compiles for seconds
@pytest.mark.parametrize("letter", ["b", "c"])
def test_a_scorer_of_your_own_chooses_nodes(letter: str) -> None:
    run = simulated(one(), scorers=scorers(f"likes_{letter}"))
    assert run.boards[run.jobs.board[0]] == f"{letter}-1"


def test_a_filter_of_your_own_keeps_jobs_off_nodes() -> None:
    filters = (*load_policy("default").filters, "spare_cores")
    run = simulated(*(one(f"j{row}", cpus=4) for row in range(3)), filters=filters)
    assert {run.boards[board] for board in run.jobs.board} == {"b-1", "c-1"}
    assert run.jobs.start_s.tolist() == [0.0, 0.0, 10.0]  # of c-1 only 6 cores are left to jobs


def test_a_job_that_a_filter_never_lets_start_is_an_error_with_the_reason() -> None:
    made = known()
    made.add(Kind.FILTER, "no_node", lambda: Refuses(100.0), "tests")
    policy = replace(load_policy("default"), filters=("spare_cores",))
    plugins = replace(made.resolve(policy), filters=(Refuses(100.0),))
    described = NodesScenario(nodes=GROUPS, jobs=(one(), one("two")))
    scenario = Scenario(name="made", world="nodes", duration_s=100.0, nodes=described)
    words = (
        r"job one and 1 more can never start: at second 0 all nodes are idle, and filter "
        r"'spare_cores' refuses a-1, which has too few free cores"
    )
    with pytest.raises(ConfigError, match=words):
        simulate_nodes(scenario, policy, plugins)


def test_a_scorer_that_fails_is_named_before_anything_runs() -> None:
    class Broken(Prefers):
        def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
            raise ZeroDivisionError("oops")

    policy = replace(load_policy("default"), scorers=scorers("likes_b"))
    plugins = known().resolve(policy)
    seat = replace(plugins.scorers[0], scorer=Broken("br", "b"))
    described = NodesScenario(nodes=GROUPS, jobs=(one(),))
    scenario = Scenario(name="made", world="nodes", duration_s=100.0, nodes=described)
    with pytest.raises(ConfigError, match="policy default: br failed: ZeroDivisionError: oops"):
        simulate_nodes(scenario, policy, replace(plugins, scorers=(seat,)))


def test_the_evaluator_and_the_aggregator_move_weights() -> None:
    """An evaluator that rewards only one scorer: hedge lets that one win after a while."""

    class Rewards:
        name = "rewards"

        def evaluate(self, batch: Batch, pairs: Pairs, proposals: object) -> dict[str, float]:
            return {"likes_b": 1.0, "likes_c": 0.0}

    jobs = tuple(NodeJob(job_id=f"j{row}", submit_s=10.0 * row, run_s=1.0) for row in range(40))
    choices = (
        ScorerChoice(name="likes_b", weight=1.0),
        ScorerChoice(name="likes_c", weight=2.0),
    )
    policy = replace(load_policy("default"), scorers=choices, aggregator="hedge")
    plugins = replace(known().resolve(policy), evaluator=Rewards())
    described = NodesScenario(nodes=GROUPS, jobs=jobs)
    scenario = Scenario(name="made", world="nodes", duration_s=1000.0, nodes=described)
    run = simulate_nodes(scenario, policy, plugins)
    used = [run.boards[board] for board in run.jobs.board]
    assert (used[0], used[-1]) == ("c-1", "b-1")
    fixed = simulate_nodes(scenario, policy, replace(plugins, evaluator=None))
    assert {fixed.boards[board] for board in fixed.jobs.board} == {"c-1"}


drawn_jobs = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.integers(1, 9),
        st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.0, 3.0]),
        st.sampled_from([0.0, 0.1, 1.0, 4.0]),
        st.sampled_from([0.0, 0.3, 0.7, 1.0]),
        st.integers(1, 2),
    ),
    min_size=1,
    max_size=12,
)


def _starts(
    policy: Policy, described: NodesScenario, backfill: Backfill, rule: int | None
) -> tuple[list[float], list[int]]:
    nodes = node_columns(described)
    jobs = node_jobs(described, nodes, 1)
    plugins = registry(entry_points=False).resolve(policy)
    chooser = PluginChooser(jobs, nodes, policy, plugins, seed=1)
    found = world.run_nodes(
        jobs,
        nodes,
        QueueRanker(jobs, nodes, plugins.queue_policy).order,
        backfill=backfill,
        rule=0 if rule is None else rule,
        chooser=chooser if rule is None else None,
    )
    return found.start_s.tolist(), found.node.tolist()


@pytest.mark.slow  # compiles for seconds
@settings(max_examples=60)
@given(
    drawn_jobs,
    st.sampled_from(["best_fit", "least_loaded", "spread", "tetris", ""]),
    st.sampled_from([Backfill.NONE, Backfill.EASY, Backfill.ANY]),
    st.sampled_from([0.3, 1.0, 7.0]),
)
def test_compiled_rules_choose_as_the_services_own_scorers(
    drawn: list[tuple[int, int, float, float, float, int]],
    scorer: str,
    backfill: Backfill,
    weight: float,
) -> None:
    jobs = tuple(
        NodeJob(
            job_id=f"j{row}", submit_s=submit, run_s=run, cpus=cpus, memory_mb=memory, gpus=gpus,
            nodes=count if gpus == 0.0 else 1,
        )
        for row, (submit, run, cpus, memory, gpus, count) in enumerate(sorted(drawn))
    )  # fmt: skip
    chosen = (ScorerChoice(name=scorer, weight=weight),) if scorer else ()
    policy = replace(load_policy("fcfs"), scorers=chosen, fallback=None)
    rule = compiled_rule(policy)
    assert rule is not None
    described = NodesScenario(nodes=GROUPS, jobs=jobs)
    expected = _starts(policy, described, backfill, None)
    assert _starts(policy, described, backfill, rule) == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda policy: replace(policy, filters=("spare_cores",)),
        lambda policy: replace(policy, aggregator="hedge"),
        lambda policy: replace(policy, scorers=scorers("tetris", "best_fit")),
        lambda policy: replace(policy, scorers=scorers("host_load")),
        lambda policy: replace(
            policy, scorers=(ScorerChoice(name="tetris", weight=1.0, file="a.py:A"),)
        ),
    ],
)
def test_only_what_a_rule_knows_is_compiled(change: Callable[[Policy], Policy]) -> None:
    assert compiled_rule(load_policy("tetris")) is not None
    assert compiled_rule(change(load_policy("tetris"))) is None


def test_a_filter_that_the_default_policy_gets_is_asked_on_nodes_and_refused_on_a_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which filters refuse no node is stated by name, not read from what applies by default."""
    default = load_policy("default")
    extended = replace(
        default, filters=(*default.filters, "spare_cores"), scorers=scorers("best_fit")
    )
    monkeypatch.setattr(policy_module, "load_policy", lambda name: extended)
    spec = importlib.util.spec_from_file_location("loaded_later", simulated_nodes.__file__)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert loaded.compiled_rule(extended) is None
    with pytest.raises(InvalidInput, match=r"'spare_cores' has no effect on an SWF log"):
        loaded.refuse_settings(extended, log=True)


def test_a_fallback_that_makes_no_difference_on_a_log_is_refused_like_a_scorer() -> None:
    policy = replace(load_policy("native"), fallback="likes_b")
    with pytest.raises(InvalidInput, match=r"'likes_b' has no effect on an SWF log"):
        simulated_nodes.refuse_settings(policy, log=True)
    for name in (*BASELINES, *built_in_policies()):
        shipped = load_policy(name)
        if shipped.planner not in MAPPINGS and shipped.aggregator == "expected_cost":
            simulated_nodes.refuse_settings(shipped, log=True)
