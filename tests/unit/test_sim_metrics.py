"""Figures of schedules, against numbers worked out by hand."""

import numpy as np
import pytest

from edgeyard.scheduler.figures.metrics import fairness, jain, mean_interval, percentiles
from edgeyard.simulator.schedules import Schedule, compare

TWO = Schedule(
    submit=np.array([0.0, 10.0]),
    start=np.array([0.0, 40.0]),
    end=np.array([40.0, 42.0]),
    procs=np.array([2, 1]),
)


def test_figures_of_each_job() -> None:
    assert TWO.wait_s.tolist() == [0, 30]
    assert TWO.run_s.tolist() == [40, 2]
    assert TWO.turnaround_s.tolist() == [40, 32]
    assert TWO.slowdown.tolist() == [1, 16]
    assert TWO.bounded_slowdown().tolist() == [1, 3.2]


def test_figures_of_the_machine() -> None:
    assert TWO.makespan_s == 42
    assert TWO.utilisation(4) == pytest.approx((2 * 40 + 2) / (4 * 42))


def test_jains_index_goes_from_one_for_equal_to_one_nth_for_all_to_one() -> None:
    assert jain(np.array([3.0, 3.0, 3.0])) == pytest.approx(1)
    assert jain(np.array([3.0, 0.0, 0.0])) == pytest.approx(1 / 3)
    assert jain(np.zeros(3)) == 1
    assert fairness(np.array([7, 7, 9]), np.array([1.0, 3.0, 2.0])) == pytest.approx(1)


def test_percentiles_interpolate() -> None:
    assert percentiles(np.arange(11.0), (0.5, 0.95)).tolist() == [5, 9.5]
    assert np.isnan(percentiles(np.array([]))).all()


def test_an_interval_holds_the_true_mean_about_95_times_in_100() -> None:
    rng = np.random.default_rng(1)
    held = 0
    for seed in range(200):
        found = mean_interval(rng.exponential(5.0, 200), seed=seed, resamples=500)
        held += found.low <= 5.0 <= found.high
    assert 180 <= held <= 198


def test_blocks_widen_the_interval_of_values_that_depend_on_each_other() -> None:
    rng = np.random.default_rng(1)
    walk = np.repeat(rng.exponential(5.0, 50), 20)
    alone, blocks = mean_interval(walk), mean_interval(walk, block=40)
    assert blocks.mean == pytest.approx(alone.mean)
    assert blocks.high - blocks.low > 2 * (alone.high - alone.low)


def test_intervals_are_a_function_of_the_seed() -> None:
    values = np.random.default_rng(1).exponential(5.0, 100)
    assert mean_interval(values, seed=3) == mean_interval(values, seed=3)
    assert mean_interval(values, seed=3) != mean_interval(values, seed=4)


def test_pairs_show_a_difference_that_the_spread_of_the_jobs_hides() -> None:
    rng = np.random.default_rng(1)
    second = rng.exponential(100.0, 300)
    first = second - 1.0
    found = compare(first, second)
    assert found.difference.high < 0 < found.difference.high + 1.1
    assert (found.lower, found.higher) == (1.0, 0.0)
    assert found.ratio == pytest.approx(first.mean() / second.mean())
    alone, other = mean_interval(first), mean_interval(second)
    assert alone.high > other.low  # unpaired, the two can't be distinguished


def test_only_pairs_are_compared() -> None:
    with pytest.raises(ValueError, match="3 values can't be paired with 2"):
        compare(np.ones(3), np.ones(2))
