"""Which combinations a matrix is submitted without."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from edgeyard.benchmark_api.schemas.matrix import positions_left_out

AXES = {"model": ["a", "b"], "target": ["x", "y", "z"]}
COMBINATIONS = [
    dict(zip(AXES, values, strict=True)) for values in itertools.product(*AXES.values())
]


def test_a_pair_is_left_out_if_both_of_its_values_work_elsewhere() -> None:
    assert positions_left_out(COMBINATIONS, {0}) == [0]
    assert positions_left_out(COMBINATIONS, set()) == []


def test_nothing_is_left_out_if_a_value_works_nowhere() -> None:
    assert positions_left_out(COMBINATIONS, {0, 1, 2}) == []  # a
    assert positions_left_out(COMBINATIONS, {2, 5, 0}) == []  # z
    assert positions_left_out([{"model": "a"}, {"model": "b"}], {1}) == []
    assert positions_left_out([{}], {0}) == []  # no matrix


@given(st.sets(st.sampled_from(range(len(COMBINATIONS)))))
def test_what_is_left_over_has_every_value_of_the_matrix(wrong: set[int]) -> None:
    without = positions_left_out(COMBINATIONS, wrong)
    if without:
        assert set(without) == wrong
        kept = [each for number, each in enumerate(COMBINATIONS) if number not in without]
        for axis, values in AXES.items():
            assert {each[axis] for each in kept} == set(values)
