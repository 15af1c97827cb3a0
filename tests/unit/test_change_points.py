"""Suspected changes of the level of a series."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.bench_series import shifted, unshifted
from edgeyard.scheduler.decide.change_points import (
    FIRST_CHANGE,
    MIN_SEGMENT,
    change_points,
    level_shift,
)


def quiet(count: int, level: float = 10.0, seed: int = 0, spread: float = 0.01) -> list[float]:
    """Values around a level."""
    drawn = np.random.default_rng(seed).normal(0.0, spread, count)
    return [float(each) for each in level * np.exp(drawn)]


def test_a_shift_is_found_where_it_begins_with_its_size_and_interval() -> None:
    (change,) = change_points([*quiet(30), *quiet(20, 10.8, seed=1)])
    assert abs(change.position - 30) <= 1
    assert change.low < 0.08 < change.high
    assert change.low < change.size < change.high
    (faster,) = change_points([*quiet(30), *quiet(20, 9.0, seed=1)])
    assert faster.low < -0.1 < faster.high


def test_several_changes_are_relative_to_the_level_before_each() -> None:
    values = [*quiet(20), *quiet(20, 11.0, seed=1), *quiet(20, 10.0, seed=2)]
    up, down = change_points(values)
    assert up.low < 0.1 < up.high
    assert down.low < 10 / 11 - 1 < down.high


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "levels",
    [
        [(14, 10.0), (14, 10.8)],
        [(14, 10.0), (14, 11.5)],
        [(30, 10.0), (30, 10.5)],
        [(10, 10.0), (10, 10.8), (10, 11.6)],
        [(20, 10.0), (20, 10.8), (20, 10.0)],
        [(12, 10.0), (12, 10.8), (12, 11.6), (12, 12.5)],
    ],
)
def test_shifts_are_found_wherever_they_are_and_however_many(
    levels: list[tuple[int, float]], seed: int
) -> None:
    values: list[float] = []
    places: list[int] = []
    for number, (count, level) in enumerate(levels):
        places.append(len(values))
        values += quiet(count, level, seed=10 * seed + number, spread=0.005)
    found = change_points(values)
    assert len(found) == len(places) - 1
    for change, place in zip(found, places[1:], strict=True):
        assert abs(change.position - place) <= 1


@pytest.mark.parametrize("count", [0, 1, 2, FIRST_CHANGE + MIN_SEGMENT - 1])
def test_a_short_series_has_no_changes(count: int) -> None:
    values = [1.0, 100.0] * count
    assert change_points(values[:count]) == []


def test_no_change_begins_in_the_first_five_points() -> None:
    values = [*quiet(4, 20.0), *quiet(30, 10.0, seed=1)]
    assert all(each.position >= FIRST_CHANGE for each in change_points(values))


def test_two_outliers_are_no_change() -> None:
    values = quiet(40)
    values[20] *= 1.5
    values[33] *= 1.4
    values[34] *= 1.3
    assert change_points(values) == []


def test_constant_values_have_no_change_and_a_step_between_two_has_one() -> None:
    assert change_points([5.0] * 50) == []
    (change,) = change_points([5.0] * 30 + [5.5] * 5)
    assert change.position == 30
    assert change.size == pytest.approx(0.1)
    assert change_points([5.0, 5.001] * 20 + [5.002] * 5) == []  # steps of a clock


def test_what_was_not_measured_is_left_out_and_places_stay_right() -> None:
    gaps = [None, math.nan, math.inf, 0.0, -1.0]
    (change,) = change_points([*gaps, *quiet(30), *gaps, *quiet(20, 11.0, seed=1), *gaps])
    assert change.position == 40
    assert change_points(gaps * 20) == []


def test_the_unit_makes_no_difference() -> None:
    values = [*quiet(30), *quiet(10, 11.0, seed=1)]
    found = [change_points([scale * each for each in values])[0] for scale in (1.0, 1e-9, 1e9)]
    assert len({each.position for each in found}) == 1
    assert found[1].size == pytest.approx(found[0].size)


def test_shifts_of_five_percent_are_suspected_confirmed_and_explained() -> None:
    found = shifted(5.0, 30, seed=7)
    assert found.suspected >= 0.9 * found.shifts
    assert found.confirmed >= 0.85 * found.shifts
    assert found.right >= 0.9 * found.confirmed


def test_a_series_that_is_looked_at_every_night_is_rarely_suspected_and_alerts_nobody() -> None:
    found = unshifted(4, seed=8)
    assert found.suspicions <= 6
    assert found.alerts == 0


def test_a_level_of_one_result_is_compared_at_a_known_place() -> None:
    found = level_shift([*quiet(30), None], [10.5])
    assert found is not None
    size, low, high = found
    assert low <= size <= high
    assert size == pytest.approx(0.05, abs=0.01)
    assert level_shift([10.0, 10.0], [10.5]) is None
    assert level_shift(quiet(30), [math.nan]) is None
