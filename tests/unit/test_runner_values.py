"""Values of a dataset that the model's type cannot hold are refused, never changed silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgeyard.devices.runner.arrays import converted
from edgeyard.devices.runner.dataset import open_dataset
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.engines.ort_training import fitted
from edgeyard.devices.runner.feeds import random_feeds
from edgeyard.errors import RunFailed

Y = np.array([0, 1])


def dataset(folder: Path, x: Any, dtype: str, y: Any = Y) -> str:
    """What the user reads when the dataset is opened for a model that takes ``dtype``."""
    path = folder / "d.npz"
    np.savez(path, x=x, y=y)
    with pytest.raises(RunFailed) as error:
        open_dataset(path, [TensorSpec("tokens", ("n", 2), dtype)], None)
    assert error.value.category == "user_input"
    return error.value.sentence


@pytest.mark.parametrize(
    ("x", "dtype", "words"),
    [
        (np.array([[1, 2], [3, 300]], np.int64), "int8", ["'tokens'", "300", "-128 to 127"]),
        (np.array([[1, 2], [3, -1]], np.int64), "uint8", ["'tokens'", "-1", "0 to 255"]),
        (np.array([[1, 2**31], [3, 4]], np.int64), "int32", ["2147483648", "2147483647"]),
        (np.array([[1, 2**63], [3, 4]], np.uint64), "int64", ["9223372036854775808"]),
        (np.array([[1, 0], [1, 2]], np.int64), "bool", ["'tokens'", "2", "0 to 1"]),
        (np.array([[1.0, 2.5], [3.0, 4.0]]), "int64", ["'tokens'", "float64", "int64", "2.5"]),
        (np.array([[1.0, np.nan], [3.0, 4.0]]), "int64", ["'tokens'", "nan", "whole numbers"]),
        (np.array([[1.0, 2.0], [3.0, 4.0]]), "int64", ["'tokens'", "float64", "int64"]),
        (np.array([[1.0, 1e300], [3.0, 4.0]]), "float32", ["'tokens'", "1e+300", "float32"]),
        (np.array([[1, 70_000], [3, 4]]), "float16", ["'tokens'", "70000", "float16"]),
        (
            np.array([[1, 2**24 + 1], [3, 4]]),
            "float32",
            ["'tokens'", "16777217 exactly", "16777216"],
        ),
        (np.array([[1, 2], [-2049, 4]]), "float16", ["'tokens'", "-2049 exactly", "-2048 to 2048"]),
        (np.array([["1", "2"], ["3", "4"]]), "int64", ["'tokens'", "<U1"]),
    ],
)
def test_values_that_the_models_type_cannot_hold_are_refused(
    tmp_path: Path, x: Any, dtype: str, words: list[str]
) -> None:
    sentence = dataset(tmp_path, x, dtype)
    assert all(word in sentence for word in words), sentence


def test_class_numbers_beyond_the_largest_integer_are_refused(tmp_path: Path) -> None:
    y = np.array([0, 2**63 + 5], np.uint64)
    assert "9223372036854775813" in dataset(tmp_path, np.zeros((2, 2)), "float32", y)


def test_training_data_that_the_models_type_cannot_hold_is_refused() -> None:
    x = np.array([[1, 2], [3, 300]], np.int64)
    with pytest.raises(RunFailed, match=r"'tokens'.*300.*-128 to 127"):
        fitted(x, [TensorSpec("tokens", ("n", 2), "int8")])


def test_random_input_that_the_models_type_cannot_hold_is_refused() -> None:
    spec = [TensorSpec("image", (4,), "float16")]
    for wish in ({"high": 1e6}, {"low": -1e6, "high": 0}, {"high": 70_000, "integers": True}):
        with pytest.raises(RunFailed, match=r"'image'.*float16"):
            random_feeds(spec, {"image": wish})


@settings(max_examples=200, deadline=None)
@given(
    arrays.arrays(
        st.sampled_from(["int8", "uint8", "int32", "int64", "uint64", "bool"]), st.integers(0, 6)
    ),
    st.sampled_from(["float16", "float32", "float64"]),
)
def test_whole_numbers_become_equal_floats_or_none(values: Any, dtype: str) -> None:
    whole = [int(one) for one in values]
    exact = [one for one in whole if is_exact(one, dtype)]
    try:
        found = converted(values, np.dtype(dtype), "input 'x'")
    except RunFailed:
        assert len(exact) < len(whole)
    else:
        assert [int(one) for one in found] == exact == whole


def is_exact(number: int, dtype: str) -> bool:
    with np.errstate(over="ignore"):
        found = float(np.dtype(dtype).type(float(number)))
    return found == number  # Python compares whole numbers and floats exactly


@settings(max_examples=200, deadline=None)
@given(
    arrays.arrays(
        st.sampled_from(["int8", "uint8", "int16", "int32", "int64", "uint64", "bool"]),
        st.integers(0, 6),
    ),
    st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "int64", "uint64", "bool"]),
)
def test_whole_numbers_arrive_unchanged_or_not_at_all(values: Any, dtype: str) -> None:
    try:
        found = converted(values, np.dtype(dtype), "input 'x'")
    except RunFailed:
        low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        assert any(not low <= int(one) <= high for one in values)
    else:
        assert found.dtype == dtype
        assert [int(one) for one in found] == [int(one) for one in values]
