"""The runner on a user's own inputs, and its profile of layers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from edgeyard.devices.runner.feeds import Feeds
from edgeyard.devices.runner.measure import rows_a_run
from tests.builders.runner import (
    LIGHT,
    Task,
    UploadServer,
    linear_model,
    make_task,
    model_of,
    upload_server,
)
from tests.integration.test_runner import report_of

WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def server() -> Iterator[UploadServer]:
    with upload_server() as running:
        yield running


def own_inputs(
    folder: Path,
    server: UploadServer,
    model: bytes | Path,
    *,
    arrays: Mapping[str, object],
    **spec: Any,
) -> Task:
    folder.mkdir(exist_ok=True)
    file = folder / "inputs.npz"
    np.savez(file, **arrays)  # type: ignore[arg-type]
    spec = {"keep_outputs": True, "nb_inference": 3, **spec}
    return make_task(folder, server, model, datasets={"inputs.npz": file}, **spec)


def outputs_of(server: UploadServer) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(server.files["outputs.npz"])) as archive:
        return {name: archive[name] for name in archive.files}


def test_outputs_of_own_inputs_come_back_by_name(server: UploadServer, tmp_path: Path) -> None:
    x = np.random.default_rng(1).random((2, 4), dtype=np.float32)
    own_inputs(tmp_path, server, linear_model(WEIGHTS), arrays={"x": x}).complete()
    report = report_of(server)
    np.testing.assert_allclose(outputs_of(server)["inputs/scores"], x @ WEIGHTS, rtol=1e-6)
    [one] = report["inference"]
    assert one["feeds"] == {"x": {"shape": [2, 4], "dtype": "float32"}} == report["feeds"]
    assert one["outputs"] == {"scores": {"shape": [2, 3], "dtype": "float32"}}
    assert one["inference_latency"]["p50"] == report["inference_latency"]["p50"] > 0
    assert report["nb_inference"] >= 3


def test_several_shapes_have_a_result_each(server: UploadServer, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    prefill, decode = rng.random((64, 4), dtype=np.float32), rng.random((1, 4), dtype=np.float32)
    arrays = {"prefill/x": prefill, "decode/x": decode}
    own_inputs(tmp_path, server, linear_model(WEIGHTS), arrays=arrays).complete()
    report = report_of(server)
    assert [one["name"] for one in report["inference"]] == ["prefill", "decode"]
    assert [one["feeds"]["x"]["shape"] for one in report["inference"]] == [[64, 4], [1, 4]]
    assert all(one["inference_latency"]["count"] >= 3 for one in report["inference"])
    found = outputs_of(server)
    np.testing.assert_allclose(found["prefill/scores"], prefill @ WEIGHTS, rtol=1e-5)
    np.testing.assert_allclose(found["decode/scores"], decode @ WEIGHTS, rtol=1e-5)
    assert "set_latencies.npz" in server.files


def test_rows_beyond_the_batch_are_run_in_batches(server: UploadServer, tmp_path: Path) -> None:
    x = np.random.default_rng(3).random((5, 4), dtype=np.float32)
    own_inputs(tmp_path, server, linear_model(WEIGHTS, 2), arrays={"x": x}).complete()
    [one] = report_of(server)["inference"]
    assert (one["rows"], one["batch_size"], one["batches"]) == (5, 2, 3)
    assert report_of(server)["first_inference_ms"] == one["first_inference_ms"]
    found = outputs_of(server)["inputs/scores"]
    np.testing.assert_allclose(found, x @ WEIGHTS, rtol=1e-6)


def test_a_regression_reports_its_errors(server: UploadServer, tmp_path: Path) -> None:
    x = np.random.default_rng(4).random((7, 4), dtype=np.float32)
    file = tmp_path / "data.npz"
    np.savez(file, x=x, y=x @ WEIGHTS + 0.5)
    task = make_task(
        tmp_path,
        server,
        linear_model(WEIGHTS),
        datasets={"data.npz": file},
        benchmark_type="TYPE2",
        parameters={"metric": "regression", "batch_size": 2},
    )
    task.complete()
    report = report_of(server)
    assert report["accuracy"]["mae"] == pytest.approx(0.5, rel=1e-4)
    assert report["accuracy"]["rmse"] == pytest.approx(0.5, rel=1e-4)
    assert report["accuracy"]["rows"] == 7
    assert report["first_inference_ms"] > 0


def test_layers_are_profiled_apart_from_the_timed_runs(
    server: UploadServer, tmp_path: Path
) -> None:
    task = make_task(
        tmp_path, server, LIGHT / "light_squeezenet.onnx", nb_inference=5, profile_layers=True
    )
    task.complete()
    report = report_of(server)
    layers = report["layers"]
    assert layers["runs"] > 0
    assert sum(one["share"] for one in layers["operators"]) == pytest.approx(1)
    assert {one["provider"] for one in layers["providers"]} == {"CPUExecutionProvider"}
    times = [one["time_ms"] for one in layers["layers"]]
    assert times == sorted(times, reverse=True)
    assert "Conv" in layers["operators"][0]["operator"]
    assert layers["overhead"] > -1
    every = json.loads(server.files["layers.json"])
    assert len(every) == layers["count"] >= len(layers["layers"])
    trace = json.loads(server.files["layer_trace.json"])["traceEvents"]
    assert {"name", "ph", "ts", "dur", "pid", "tid"} <= trace[0].keys()
    assert "inference" not in report


def test_throughput_counts_runs_and_rows_whichever_way_a_model_is_run(
    server: UploadServer, tmp_path: Path
) -> None:
    """Runs a second are 1 over the mean time everywhere, and rows a second 8 times as many."""
    model = linear_model(WEIGHTS, 8)
    x = np.random.default_rng(7).random((20, 4), dtype=np.float32)
    dataset = tmp_path / "data.npz"
    np.savez(dataset, x=x, y=(x @ WEIGHTS).argmax(axis=1))
    ways = {
        "random data": make_task(tmp_path / "1", server, model, nb_inference=3),
        "own inputs": own_inputs(tmp_path / "2", server, model, arrays={"x": x}),
        "a dataset": make_task(
            tmp_path / "3", server, model, datasets={"data.npz": dataset}, benchmark_type="TYPE2"
        ),
    }
    for way, task in ways.items():
        task.complete()
        report = report_of(server)
        mean_ms = report["inference_latency"]["mean"]
        assert report["runs_per_s"] == pytest.approx(1e3 / mean_ms), way
        assert report["rows_per_s"] == pytest.approx(8e3 / mean_ms), way


@pytest.mark.parametrize(
    ("feeds", "outputs", "rows"),
    [
        ({"x": (20, 4)}, [(20, 3)], 20),
        ({"x": (20, 4), "mask": (20, 1)}, [(20,)], 20),
        ({"x": (20, 4)}, [(4, 20)], None),
        ({"x": (20, 4), "past": (2, 8)}, [(20, 3)], None),
        ({"x": (20,)}, [(20,)], None),
        ({"x": (20, 4)}, [()], None),
    ],
)
def test_rows_are_the_first_dimension_that_all_arrays_share(
    feeds: Mapping[str, tuple[int, ...]], outputs: list[tuple[int, ...]], rows: int | None
) -> None:
    given: Feeds = {name: np.zeros(shape) for name, shape in feeds.items()}
    assert rows_a_run(given, [np.zeros(shape) for shape in outputs]) == rows


def baked_model(rows: int) -> bytes:
    """It states any number of rows, and reshapes as if there were always as many."""
    return model_of(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        {"x": ["batch", 2, 2]},
        {"y": ["batch", 4]},
        {"shape": np.array([rows, 4], dtype=np.int64)},
    )


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("kind", ["own inputs", "a dataset", "random data"])
def test_a_batch_that_is_fixed_inside_the_model_is_named(
    server: UploadServer, tmp_path: Path, rows: int, kind: str
) -> None:
    x, model = np.ones((10, 2, 2), dtype=np.float32), baked_model(rows)
    if kind == "own inputs":
        task = own_inputs(tmp_path, server, model, arrays={"x": x})
    elif kind == "a dataset":
        np.savez(tmp_path / "d.npz", x=x, y=np.zeros(10, dtype=np.int64))
        task = make_task(
            tmp_path, server, model, datasets={"d.npz": tmp_path / "d.npz"},
            benchmark_type="TYPE2", parameters={"batch_size": 5},
        )  # fmt: skip
    else:
        task = make_task(tmp_path, server, model, nb_inference=3, input={"x": {"shape": [7, 2, 2]}})
    task.run()
    failure = report_of(server, "failed")["failure"]
    assert failure["category"] == "user_input"
    assert f"the model's batch is fixed at {rows}: it does not run" in failure["sentence"]
    assert f"parameters/batch_size {rows}" in failure["sentence"]
