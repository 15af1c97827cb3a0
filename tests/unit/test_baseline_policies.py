"""Baselines: policies that others are compared with, in the lab and on logs."""

from __future__ import annotations

import numpy as np
import pytest

from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import board, pending, snapshot_of
from edgeyard.scheduler.framework.baselines import BASELINES
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.training.worlds.replay import replay
from tests.builders.decision import cycle, places, plugins, policy
from tests.builders.logs import log_of
from tests.fakes.plain_replay import max_in_use

A, B = "rpi4b-0001-0001", "rpi4b-0001-0002"


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_the_default_policy_with_its_own_choice(name: str) -> None:
    found, baseline = load_policy(name), BASELINES[name]
    assert found.name == name
    assert found.queue_policy == baseline.queue_policy
    assert [each.name for each in found.scorers] == [baseline.scorer]
    assert (found.planner or "none") == baseline.planner
    assert found.filters == load_policy("default").filters
    assert places(cycle(snapshot_of([board(A)]), [pending()], of=name)) == {"b-1": A}
    assert plugins(name).queue_policy.name == baseline.queue_policy
    assert policy(name).guard_s == policy("default").guard_s


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({each.queue_policy for each in BASELINES.values()}))
def test_the_queue_policy_of_each_baseline_orders_a_log(name: str) -> None:
    order = registry(entry_points=False).queue_policy(name)
    log = log_of([(0, 10, 2), (0, 5, 2), (0, 20, 1), (1, 1, 2)])
    found = replay(log, order, processors=2)
    assert max_in_use(found.schedule) <= 2
    assert np.isfinite(found.schedule.end).all()


def test_tetris_takes_what_is_aligned_best_with_what_is_free() -> None:
    tetris = registry(entry_points=False).queue_policy("tetris")
    log = log_of([(0, 10, 1), (0, 10, 3), (0, 10, 2)])
    starts = replay(log, tetris, processors=4).schedule.start
    assert starts.tolist() == [0.0, 0.0, 10.0]


def test_a_random_order_is_the_same_each_time_and_no_order_of_submission() -> None:
    order = registry(entry_points=False).queue_policy("random")
    log = log_of([(0, 1, 1)] * 50)
    first, again = (replay(log, order, processors=1).schedule.start for _ in range(2))
    assert (first == again).all()
    assert (np.argsort(first) != np.arange(50)).sum() > 25
