"""No policy beats the offline lower bound, nor the optimum; and the optimum is one."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.plugins.builtin import BUILT_IN, registry
from edgeyard.scheduler.framework.registry import Kind
from edgeyard.training.worlds.bounds import lower_bound
from edgeyard.training.worlds.replay import Backfilling, replay
from tests.builders.logs import log_of
from tests.fakes.optimum import MAX_ON_BOARDS, optimum_on_boards, optimum_on_processors

CLOSE = 1e-9
jobs = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=5
)
POLICIES = sorted(BUILT_IN[Kind.QUEUE_POLICY])


@settings(deadline=None, max_examples=60)
@given(jobs, st.sampled_from(POLICIES), st.sampled_from(list(Backfilling)))
def test_no_policy_on_a_log_beats_the_optimum_and_that_not_the_bound(
    drawn: list[tuple[int, int, int]], queue: str, backfilling: Backfilling
) -> None:
    log = log_of(drawn)
    order = registry(entry_points=False).queue_policy(queue)
    commit = backfilling is Backfilling.RLSCHEDULER
    found = replay(log, order, processors=4, backfilling=backfilling, commit=commit).schedule
    least = optimum_on_processors(log.submit, log.run, log.procs, 4)
    assert least <= found.turnaround_s.mean() + CLOSE
    bound = lower_bound(log.submit, log.run, log.procs / 4)
    assert bound.mean_turnaround_s <= least + CLOSE
    assert bound.makespan_s <= found.makespan_s + CLOSE
    weights = 1.0 / np.maximum(log.run, 10.0)
    slowdown = lower_bound(log.submit, log.run, log.procs / 4, weights).mean_turnaround_s
    assert slowdown <= optimum_on_processors(log.submit, log.run, log.procs, 4, weights) + CLOSE
    assert slowdown <= found.bounded_slowdown().mean() + CLOSE


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10),
            st.lists(st.sampled_from([1.0, 3.0, 8.0, np.inf]), min_size=2, max_size=2),
        ).filter(lambda each: min(each[1]) < np.inf),
        min_size=1,
        max_size=4,
    )
)  # fmt: skip
def test_the_optimum_on_boards_is_the_best_of_all_orders(
    drawn: list[tuple[int, list[float]]],
) -> None:
    submit = np.array([each[0] for each in drawn], dtype=np.float64)
    run_s = np.array([each[1] for each in drawn])
    least = np.inf
    for order in permutations(range(len(drawn))):
        for boards in product(range(2), repeat=len(drawn)):
            free, total = [0.0, 0.0], 0.0
            for job in order:
                board = boards[job]
                free[board] = max(free[board], submit[job]) + run_s[job, board]
                total += free[board] - submit[job]
            least = min(least, total / len(drawn))
    assert optimum_on_boards(submit, run_s) == pytest.approx(least)
    bound = lower_bound(submit, run_s.min(axis=1), np.full(len(drawn), 0.5))
    assert bound.mean_turnaround_s <= least + CLOSE


def test_the_bound_is_reached_where_it_can_be() -> None:
    """One board and no waiting for later arrivals: shortest first is optimal."""
    submit, run = np.zeros(4), np.array([4.0, 1.0, 3.0, 2.0])
    assert lower_bound(submit, run, np.ones(4)).mean_turnaround_s == pytest.approx(5.0)
    assert optimum_on_boards(submit, run[:, None]) == pytest.approx(5.0)
    assert lower_bound(submit, run, np.ones(4)).makespan_s == 10.0


def test_an_optimum_is_refused_where_it_would_take_too_long() -> None:
    many = np.zeros(MAX_ON_BOARDS + 1)
    with pytest.raises(ValueError, match="is found for 1 to 12"):
        optimum_on_boards(many, np.ones((len(many), 2)))
    with pytest.raises(ValueError, match="is found for 1 to 8"):
        optimum_on_processors(many, many + 1, np.ones(len(many), dtype=np.int64), 4)
    with pytest.raises(ValueError, match="more processors than the machine has"):
        optimum_on_processors(many[:1], many[:1] + 1, np.array([5]), 4)
    with pytest.raises(ValueError, match="it can run on none"):
        optimum_on_boards(many[:1], np.full((1, 2), np.inf))
