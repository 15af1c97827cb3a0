"""The order of a queue by the score that a model gives to any board."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeyard.plugins.builtin import registry
from edgeyard.plugins.queue_policies.best_score import BestScore
from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import decide
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.named import policy_named
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.simulator.scenario import load_scenario
from edgeyard.training.worlds.simulated_nodes import simulate_nodes

KNOWN = registry(entry_points=False)


class ByLimit:
    """Prefers what may run for a short time."""

    name, objective, kind, unit = "by_limit", "test", ScorerKind.MODEL, ScoreUnit.PREFERENCE

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        return (1.0 / (1.0 + batch.time_limits_s[pairs.rows])).astype(np.float32)


class Seconds(ByLimit):
    """The same as an amount, of which less is better."""

    unit = ScoreUnit.SECONDS

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        return batch.time_limits_s[pairs.rows].astype(np.float32)


def test_the_best_score_comes_first_also_while_all_boards_are_busy() -> None:
    boards = [board("rpi4b-0001", busy=True), board("rpi5-0001", busy=True)]
    jobs = [
        pending("long", family="rpi4b", user_time_s=90.0),
        pending("nowhere", family="x86", user_time_s=1.0),
        pending("short", family="rpi5", user_time_s=9.0),
        pending("middle", family="rpi4b", user_time_s=30.0),
    ]
    policy = load_policy("default")
    for scorer in (ByLimit(), Seconds()):
        plugins = replace(KNOWN.resolve(policy), queue_policy=BestScore(scorer))
        given = CycleInput(snapshot=snapshot_of(boards), pending=jobs, now=NOW)
        order = decide(given, policy, plugins).order
        assert [each for each in order if each != "nowhere"] == ["short", "middle", "long"]


def test_equal_scores_leave_the_order_by_priority_and_age() -> None:
    jobs = [pending(f"b-{row}", user_priority=1 + 3 * row % 7) for row in range(6)]
    given = CycleInput(snapshot=snapshot_of([board("rpi4b-0001")]), pending=jobs, now=NOW)
    policy = load_policy("default")
    plugins = KNOWN.resolve(policy)
    by_model = decide(given, policy, replace(plugins, queue_policy=BestScore(ByLimit()))).order
    assert by_model == decide(given, policy, plugins).order


def test_jobs_on_nodes_are_ordered_by_what_the_model_sees_of_them() -> None:
    scenario, policy = load_scenario("shared_nodes"), policy_named("sjf", KNOWN)
    plugins = KNOWN.resolve(policy)
    shortest = simulate_nodes(scenario, policy, plugins, seed=3)
    scored = replace(plugins, queue_policy=BestScore(ByLimit()))
    np.testing.assert_array_equal(
        simulate_nodes(scenario, policy, scored, seed=3).jobs.start_s, shortest.jobs.start_s
    )
