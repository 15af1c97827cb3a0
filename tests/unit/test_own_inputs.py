"""Own inputs of a model: which arrays are accepted, and how they are batched; times of layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.inference import InputSet, open_inputs
from edgeyard.devices.runner.layers import LayerEvent, LayerRun, layer_report
from edgeyard.errors import RunFailed

OPEN = TensorSpec("x", ("batch", 4), "float32")
FIXED = TensorSpec("x", (2, 4), "float32")
MASK = TensorSpec("mask", ("batch", 1), "int64")


def opened(
    folder: Path, arrays: dict[str, Any], *inputs: TensorSpec, wish: object = None
) -> list[InputSet]:
    file = folder / "inputs.npz"
    np.savez(file, **arrays)
    return open_inputs(file, inputs or (OPEN,), wish)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"y": np.zeros((1, 4), np.float32)}, "has an array 'y'; the model takes 'x'"),
        (
            {"a/x": np.zeros((1, 4), np.float32), "b/z": np.zeros(1)},
            "set 'b' has an array 'z'; the model takes 'x'",
        ),
        ({"x": np.zeros((1, 5), np.float32)}, "shape [1, 5] for input 'x', which takes [?, 4]"),
        ({"x": np.array([["a"] * 4])}, "has type <U1 for input 'x', which takes float32"),
        ({"x": np.array([[1, 2, np.nan, 4]], np.float32)}, "1 of 4 values that are NaN in 'x'"),
        ({"x": np.array([[1, 2, np.inf, 4]])}, "1 of 4 values that are infinite in 'x'"),
        ({"x": np.array([[1, np.nan, np.inf, 4]])}, "2 of 4 values that are NaN or infinite in"),
        ({"x": np.full((1, 4), 1e300)}, "cannot hold 1e+300"),
        ({f"{n}/x": np.zeros((1, 4), np.float32) for n in range(65)}, "has 65 sets"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, arrays: dict[str, Any], says: str
) -> None:
    with pytest.raises(RunFailed) as refused:
        opened(tmp_path, arrays)
    assert refused.value.category == "user_input"
    assert says in refused.value.sentence


def test_a_missing_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="no array 'mask'; the model takes 'x', 'mask'"):
        opened(tmp_path, {"x": np.zeros((1, 4), np.float32)}, OPEN, MASK)


@pytest.mark.parametrize("name", ["x", "images"])
def test_the_only_input_may_be_called_x(tmp_path: Path, name: str) -> None:
    images = TensorSpec("images", (1, 2), "float32")
    [one] = opened(tmp_path, {name: np.ones((1, 2), np.float32)}, images)
    assert list(one.batches[0]) == ["images"]


def test_a_name_with_a_slash_may_be_an_input(tmp_path: Path) -> None:
    slashed = TensorSpec("model/x", (1,), "float32")
    [one] = opened(tmp_path, {"model/x": np.ones(1, np.float32)}, slashed)
    assert (one.name, list(one.batches[0])) == ("inputs", ["model/x"])
    [one] = opened(tmp_path, {"a/model/x": np.ones(1, np.float32)}, slashed)
    assert (one.name, list(one.batches[0])) == ("a", ["model/x"])


@pytest.mark.parametrize(
    ("spec", "wish", "rows", "batches", "size"),
    [
        (FIXED, None, 2, 1, None),
        (FIXED, None, 5, 3, 2),
        (FIXED, 2, 4, 2, 2),
        (OPEN, None, 5, 1, None),
        (OPEN, 3, 5, 2, 3),
    ],
)
def test_rows_are_batched_as_the_model_or_the_user_says(
    tmp_path: Path, spec: TensorSpec, wish: int | None, rows: int, batches: int, size: int | None
) -> None:
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    [one] = opened(tmp_path, {"x": x}, spec, wish=wish)
    assert (len(one.batches), one.batch_size) == (batches, size)
    joined = np.concatenate([batch["x"] for batch in one.batches])
    np.testing.assert_array_equal(joined[:rows], x)
    assert len({batch["x"].shape for batch in one.batches}) == 1


@pytest.mark.parametrize("wish", [0, "2", True, 3])
def test_a_batch_size_that_can_not_be_is_refused(tmp_path: Path, wish: object) -> None:
    with pytest.raises(RunFailed, match="parameters/batch_size"):
        opened(tmp_path, {"x": np.zeros((4, 4), np.float32)}, FIXED, wish=wish)


def test_batches_need_equal_rows(tmp_path: Path) -> None:
    arrays = {"x": np.zeros((4, 4), np.float32), "mask": np.zeros((3, 1), np.int64)}
    with pytest.raises(RunFailed, match="different numbers of rows"):
        opened(tmp_path, arrays, OPEN, MASK, wish=2)
    with pytest.raises(RunFailed, match="arrays without rows"):
        opened(tmp_path, {"x": np.zeros((0, 4), np.float32)}, wish=2)


def test_a_dimension_of_one_name_has_one_size(tmp_path: Path) -> None:
    p, q = TensorSpec("p", ("n", "m"), "float32"), TensorSpec("q", ("n", "m"), "float32")
    arrays = {"p": np.zeros((2, 3), np.float32), "q": np.zeros((2, 4), np.float32)}
    with pytest.raises(RunFailed, match=r"dimension 'm' is 3 in input 'p' \[2, 3\] and 4 in"):
        opened(tmp_path, arrays, p, q)
    arrays["q"] = np.zeros((2, 3), np.float32)
    for wish in (None, 2):
        assert len(opened(tmp_path, arrays, p, q, wish=wish)) == 1


def test_the_time_of_a_layer_is_without_the_layers_inside() -> None:
    def event(name: str, start: float, duration: float, thread: int = 0) -> LayerEvent:
        return LayerEvent(name, name.title(), "CPU", start, duration, thread)

    runs = [
        LayerRun(
            at,
            120,
            [
                event("loop", at + 10, 100),
                event("inner", at + 20, 30),
                event("inner", at + 60, 30),
                event("apart", at + 20, 50, thread=1),
            ],
        )
        for at in (0.0, 1000.0)
    ]
    report, layers = layer_report(runs, timed_p50_ms=0.1)
    assert {one["name"]: one["time_ms"] for one in layers} == pytest.approx(
        {"inner": 0.06, "apart": 0.05, "loop": 0.04}
    )
    assert layers[0]["calls_per_run"] == 2
    assert report["overhead"] == pytest.approx(0.2)
    assert sum(float(str(one["share"])) for one in layers) == pytest.approx(1)


def test_an_interrupted_run_does_not_change_which_layer_takes_longest() -> None:
    def run(at: float, second_us: float) -> LayerRun:
        first = LayerEvent("first", "Conv", "CPU", at, 50, 0)
        second = LayerEvent("second", "Gemm", "CPU", at + 50, second_us, 0)
        return LayerRun(at, 60 + second_us, [first, second])

    runs = [run(1e6 * number, 9000 if number == 2 else 20) for number in range(5)]
    report, layers = layer_report(runs, timed_p50_ms=0.08)
    assert [(one["name"], one["time_ms"]) for one in layers] == [("first", 0.05), ("second", 0.02)]
    assert report["operators"][0]["operator"] == "Conv"  # type: ignore[index]
    assert report["outside_ms"] == pytest.approx(0.01)
    assert report["profiled_p50_ms"] == pytest.approx(0.08)


def test_a_layer_that_only_some_runs_execute_has_its_share_of_them() -> None:
    both = [
        LayerEvent("always", "Conv", "CPU", 0, 30, 0),
        LayerEvent("branch", "Gemm", "CPU", 30, 30, 0),
    ]
    runs = [LayerRun(0, 60, both), LayerRun(0, 60, both[:1])]
    _, layers = layer_report(runs, timed_p50_ms=0.06)
    found = {one["name"]: (one["time_ms"], one["share"], one["calls_per_run"]) for one in layers}
    assert found == {
        "always": (0.03, pytest.approx(2 / 3), 1.0),
        "branch": (0.03, pytest.approx(1 / 3), 0.5),
    }
