"""Inputs of no dimensions, of size 0 and of any number of dimensions, by every way to give them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from edgeyard.benchmark_api.schemas import notation
from edgeyard.benchmark_api.schemas.description import InputSpec
from edgeyard.benchmark_api.sdk.inference import LocalModel, inputs_file, split_dataset
from edgeyard.devices.runner.engine import Quantization, TensorSpec
from edgeyard.devices.runner.engines import find
from edgeyard.devices.runner.feeds import described, given_problems, random_feeds
from edgeyard.devices.runner.onnx_file import inputs_of
from edgeyard.devices.runner.quantization import input_values, real_values
from edgeyard.errors import InvalidInput, RunFailed
from tests.builders.runner import Task, UploadServer, make_task, upload_server
from tests.integration.test_runner import report_of

Shape = Sequence[int | str | None] | None


@pytest.fixture(scope="module")
def server() -> Iterator[UploadServer]:
    with upload_server() as running:
        yield running


def graph(
    nodes: list[Any],
    inputs: Mapping[str, tuple[int, Shape]],
    outputs: Mapping[str, Shape],
) -> bytes:
    """A model whose inputs have types and shapes of their own; None is any number of dimensions."""
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in outputs.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    content: bytes = helper.make_model(made, opset_imports=opset, ir_version=8).SerializeToString()
    return content


FLOAT = TensorProto.FLOAT
SCALED = graph(
    [helper.make_node("Mul", ["x", "factor"], ["scores"])],
    {"x": (FLOAT, ["batch", 3]), "factor": (FLOAT, [])},
    {"scores": ["batch", 3]},
)
"""Rows times one number."""

CACHE = graph(
    [helper.make_node("Concat", ["past", "x"], ["scores"], axis=1)],
    {"x": (FLOAT, [1, "now", 2]), "past": (FLOAT, [1, "before", 2])},
    {"scores": [1, "all", 2]},
)
"""A decoder's cache, which is empty at its first step."""

NEVER_MORE_THAN_EMPTY = graph(
    [helper.make_node("Concat", ["past", "x"], ["scores"], axis=1)],
    {"x": (FLOAT, [1, 2, 2]), "past": (FLOAT, [1, 0, 2])},
    {"scores": [1, 2, 2]},
)
"""Its file fixes a size at 0."""

ANY_RANK = graph(
    [helper.make_node("Abs", ["x"], ["scores"])], {"x": (FLOAT, None)}, {"scores": None}
)


def run(
    server: UploadServer,
    folder: Path,
    model: bytes,
    arrays: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Run a model in the runner and return its report."""
    datasets = {}
    if arrays is not None:
        np.savez(folder / "data.npz", **arrays)
        datasets = {"data.npz": folder / "data.npz"}
    task: Task = make_task(folder, server, model, datasets=datasets, nb_inference=3, **spec)
    task.complete()
    report = report_of(server)
    assert report["status"] == "ok", report["failure"]
    return report


def on_random_data(
    folder: Path, model: bytes, wish: Mapping[str, Mapping[str, object]] | None = None
) -> dict[str, dict[str, Any]]:
    """Run a model once on random data and return what the report states of it."""
    session = find("ort").load(written(folder, model), threads=1, parameters={})
    feeds = random_feeds(session.inputs, wish or {}, limit_bytes=2**20)
    session.run(feeds)
    return described(session.inputs, wish or {}, feeds)


def outputs_of(server: UploadServer) -> dict[str, Any]:
    with np.load(io.BytesIO(server.files["outputs.npz"])) as archive:
        return dict(archive)


def test_a_scalar_gets_random_data_and_the_report_states_what_was_invented(
    server: UploadServer, tmp_path: Path
) -> None:
    feeds = run(server, tmp_path, SCALED)["feeds"]
    assert feeds["factor"] == {
        "shape": [],
        "dtype": "float32",
        "invented": ["values are floats from 0 to 1"],
    }
    assert feeds["x"]["shape"] == [1, 3]
    assert feeds["x"]["invented"] == ["dimension 0 (batch) is 1", "values are floats from 0 to 1"]
    stated = {"shape": [2, 3], "low": 1, "high": 2}
    found = on_random_data(tmp_path, SCALED, {"x": stated, "factor": {"shape": []}})
    assert (found["x"]["invented"], found["factor"]["shape"]) == ([], [])


def test_a_scalar_is_taken_from_own_inputs(server: UploadServer, tmp_path: Path) -> None:
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    for parameters in ({}, {"batch_size": 2}):
        arrays = {"x": x, "factor": np.float32(3)}
        report = run(server, tmp_path, SCALED, arrays, keep_outputs=True, parameters=parameters)
        assert report["feeds"]["factor"]["shape"] == []
        np.testing.assert_array_equal(outputs_of(server)["inputs/scores"], 3 * x)


def test_a_scalar_in_a_dataset_is_one_value_for_all_rows(
    server: UploadServer, tmp_path: Path
) -> None:
    x = np.random.default_rng(0).random((7, 3), dtype=np.float32)
    arrays = {"x": x, "factor": np.float32(-1), "y": x.argmin(axis=1)}
    parameters = {"batch_size": 2}
    report = run(server, tmp_path, SCALED, arrays, benchmark_type="TYPE2", parameters=parameters)
    assert report["accuracy"]["top1"] == 1.0


def test_a_first_step_with_an_empty_cache_runs(server: UploadServer, tmp_path: Path) -> None:
    wish = {"x": {"shape": [1, 4, 2]}, "past": {"shape": [1, 0, 2]}}
    assert on_random_data(tmp_path, CACHE, wish)["past"]["shape"] == [1, 0, 2]
    arrays = {
        "prefill/x": np.ones((1, 4, 2), np.float32),
        "prefill/past": np.zeros((1, 0, 2), np.float32),
        "decode/x": np.ones((1, 1, 2), np.float32),
        "decode/past": np.zeros((1, 4, 2), np.float32),
    }
    run(server, tmp_path, CACHE, arrays, keep_outputs=True)
    shapes = {name: value.shape for name, value in outputs_of(server).items()}
    assert shapes == {"prefill/scores": (1, 4, 2), "decode/scores": (1, 5, 2)}
    assert on_random_data(tmp_path, NEVER_MORE_THAN_EMPTY)["past"]["shape"] == [1, 0, 2]


def test_no_rows_run_as_they_are_and_in_no_batches(server: UploadServer, tmp_path: Path) -> None:
    arrays = {"x": np.zeros((0, 3), np.float32), "factor": np.float32(1)}
    run(server, tmp_path, SCALED, arrays, keep_outputs=True)
    assert outputs_of(server)["inputs/scores"].shape == (0, 3)


def test_any_number_of_dimensions_is_no_scalar(tmp_path: Path) -> None:
    session = find("ort").load(written(tmp_path, ANY_RANK), threads=1, parameters={})
    (spec,) = inputs_of(tmp_path / "net.onnx")
    assert spec == session.inputs[0]
    assert (spec.shape, spec.dtype) == (None, "float32")
    with pytest.raises(RunFailed, match="does not state how many dimensions"):
        random_feeds(session.inputs, {})
    [(name, reason, accepted)] = given_problems(session.inputs, {})
    assert (name, "--input 'x=1'" in accepted) == ("x", True), reason
    for shape in ([], [4], [2, 0, 3]):
        assert on_random_data(tmp_path, ANY_RANK, {"x": {"shape": shape}})["x"]["shape"] == shape
    assert spec.as_json() == {"name": "x", "dtype": "float32", "shape": None}


def written(folder: Path, content: bytes) -> Path:
    path = folder / "net.onnx"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("placeholder", ["?", ""])
def test_placeholders_of_converters_are_no_names(
    server: UploadServer, tmp_path: Path, placeholder: str
) -> None:
    model = graph(
        [
            helper.make_node("ReduceSum", ["a"], ["p"], keepdims=0),
            helper.make_node("ReduceSum", ["b"], ["q"], keepdims=0),
            helper.make_node("Add", ["p", "q"], ["scores"]),
        ],
        {"a": (FLOAT, [1, placeholder]), "b": (FLOAT, [1, placeholder])},
        {"scores": []},
    )
    session = find("ort").load(written(tmp_path, model), threads=1, parameters={})
    assert [spec.shape for spec in session.inputs] == [(1, None), (1, None)]
    assert inputs_of(tmp_path / "net.onnx") == tuple(session.inputs)
    arrays = {"a": np.ones((1, 2), np.float32), "b": np.ones((1, 3), np.float32)}
    run(server, tmp_path, model, arrays, keep_outputs=True)
    found = outputs_of(server)["inputs/scores"]
    assert (found.shape, float(found)) == ((), 5.0)


def test_flags_and_descriptions_state_scalars_and_sizes_of_0() -> None:
    assert notation.inputs(["step=scalar:0..9:int", "past=1x0x64"]) == {
        "step": {"shape": [], "low": 0, "high": 9, "integers": True},
        "past": {"shape": [1, 0, 64]},
    }
    assert InputSpec.model_validate_json('{"shape": []}').shape == []
    assert InputSpec.model_validate_json('{"shape": [1, 0]}').shape == [1, 0]
    with pytest.raises(ValueError, match="too many elements"):
        InputSpec.model_validate_json(json.dumps({"shape": [0, 2**28, 2**28]}))


def test_scalars_pass_through_the_client(tmp_path: Path) -> None:
    local = LocalModel(written(tmp_path, SCALED), "ort", {})
    given = {"x": np.ones((2, 3), np.float32), "factor": 4.0}
    with inputs_file(given) as file:
        found = local.run(file)
    np.testing.assert_array_equal(found["inputs"]["scores"], np.full((2, 3), 4))
    arrays, truth = split_dataset({**given, "y": [0, 1]}, "y")
    assert (arrays["factor"].shape, truth.tolist()) == ((), [0, 1])


def test_a_model_with_an_input_y_gets_its_truth_from_another_array(
    server: UploadServer, tmp_path: Path
) -> None:
    model = graph(
        [helper.make_node("Add", ["x", "y"], ["scores"])],
        {"x": (FLOAT, ["N", 3]), "y": (FLOAT, ["N", 3])},
        {"scores": ["N", 3]},
    )
    x, y = np.random.default_rng(0).random((2, 6, 3), dtype=np.float32)
    arrays = {"x": x, "y": y, "right": (x + y).argmax(axis=1)}
    report = run(
        server,
        tmp_path,
        model,
        arrays,
        benchmark_type="TYPE2",
        parameters={"truth": "right"},
    )
    assert report["accuracy"]["top1"] == 1.0
    task = make_task(
        tmp_path,
        server,
        model,
        datasets={"data.npz": tmp_path / "data.npz"},
        benchmark_type="TYPE2",
        parameters={"metric": "regression"},
    )
    task.run()
    failure = report_of(server, "failed")["failure"]
    assert failure["category"] == "user_input"
    assert "parameters/truth" in failure["sentence"]


def test_a_metric_of_the_users_own_gets_the_array_that_is_named() -> None:
    arrays, truth = split_dataset({"x": [[1.0]], "y": [[2.0]], "right": [3]}, "right")
    assert (sorted(arrays), truth.tolist()) == (["x", "y"], [3])
    with pytest.raises(InvalidInput, match="right, and x"):
        split_dataset({"x": [[1.0]], "y": [[2.0]]}, "right")


def test_a_quantised_scalar_stays_one_in_both_directions() -> None:
    spec = TensorSpec("factor", (), "int8", Quantization((0.5,), (10,)))
    whole = input_values(np.asarray(2.0), spec, "input 'factor'")
    assert isinstance(whole, np.ndarray)
    assert (whole.shape, str(whole.dtype), int(whole)) == ((), "int8", 14)
    real = real_values(whole, spec)
    assert isinstance(real, np.ndarray), "what is none is left out of the outputs"
    assert (real.shape, float(real)) == ((), 2.0)
