"""Own inputs go to a board and its outputs come back; so do the times of layers."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from edgeyard import Client
from edgeyard.benchmark_api.cli import app
from edgeyard.benchmark_api.sdk import ValidationFailed
from edgeyard.benchmark_api.sdk.inference import evaluation_of
from edgeyard.errors import InvalidInput
from tests.builders.cli import printed, refusal
from tests.builders.networks import DEMO
from tests.builders.runner import linear_model
from tests.builders.tflite import Quantized, requantizing_model
from tests.unit.test_model_archive import WEIGHTS as LARGE_WEIGHTS
from tests.unit.test_model_archive import folder_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("server")]

WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture(autouse=True)
def in_own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "linear.onnx"
    path.write_bytes(linear_model(WEIGHTS))
    return path


def test_outputs_of_several_shapes_come_back_and_equal_the_local_ones(
    client: Client, model: Path
) -> None:
    rng = np.random.default_rng(1)
    inputs = {
        "prefill": {"x": rng.random((32, 4), dtype=np.float32)},
        "decode": {"x": rng.random((1, 4), dtype=np.float32)},
    }
    found = client.infer(
        model, inputs, "emumid", nb_inference=3, compare_local=True, progress=False
    )
    assert [each.name for each in found.sets] == ["prefill", "decode"]
    for each in found.sets:
        expected = inputs[each.name]["x"] @ WEIGHTS
        np.testing.assert_allclose(each.outputs["scores"], expected, rtol=1e-5)
        assert each.measured.p50_ms is not None
        assert each.measured.p50_ms > 0
        compared = each.comparison["scores"]
        assert compared.max_error <= 1e-4
        assert compared.cosine == pytest.approx(1)
        assert compared.top1_agreement == 1


def test_what_does_not_fit_the_model_is_refused_before_a_board_is_used(
    client: Client, model: Path
) -> None:
    before = client.count()
    for inputs, says in (
        (
            {"y": np.zeros((1, 4), np.float32)},
            "/inputs: the inputs' file has an array 'y'; the model takes 'x'",
        ),
        ({"x": np.zeros((1, 5), np.float32)}, "shape [1, 5] for input 'x'"),
        ({"x": np.zeros((1, 4), "U3")}, "type <U3"),
        ({"x": np.full((1, 4), np.nan)}, "the array 'x' has 4 of 4 values that are NaN"),
    ):
        with pytest.raises((ValidationFailed, InvalidInput), match=says.replace("[", "\\[")):
            client.infer(model, inputs, "emumid", progress=False)
    assert client.count() == before


def test_a_folder_with_data_files_runs_on_a_board(client: Client, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "large")
    x = np.random.default_rng(6).random((1, 64), dtype=np.float32)
    found = client.infer(folder, x, "emumid", nb_inference=1, compare_local=True, progress=False)
    assert found.sets[0].comparison["scores"].max_error <= 1.0
    np.testing.assert_allclose(found.outputs["scores"], x @ LARGE_WEIGHTS, rtol=1e-5)


def test_a_metric_of_ones_own_runs_on_the_outputs_and_may_fail(client: Client, model: Path) -> None:
    x = np.random.default_rng(5).random((6, 4), dtype=np.float32)
    data = {"x": x, "y": (x @ WEIGHTS).argmax(axis=1)}

    def share(outputs: Any, y: Any) -> float:
        return float((outputs["scores"].argmax(axis=1) == y).mean())

    found = client.evaluate(model, data, share, "emumid", nb_inference=1, progress=False)
    assert found.value == 1.0
    with pytest.raises(InvalidInput, match="it raised KeyError: 'logits'; the outputs are kept"):
        evaluation_of(found.inference, data["y"], lambda outputs, y: outputs["logits"])
    again = client.inference(found.benchmark_id)
    np.testing.assert_array_equal(again.outputs["scores"], found.inference.outputs["scores"])
    with pytest.raises(InvalidInput, match="/data: holds x"):
        client.evaluate(model, {"x": x}, share, "emumid", progress=False)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_outputs_of_a_quantized_model_are_real_for_metrics_and_comparisons(
    client: Client, tmp_path: Path, dtype: str
) -> None:
    zero = 0 if dtype == "int8" else 128
    how = Quantized(dtype, 0.05, zero + 3), Quantized(dtype, 0.08, zero)
    path = tmp_path / "net.tflite"
    path.write_bytes(requantizing_model((3,), *how))
    real = np.random.default_rng(7).uniform(-5, 5, (6, 3)).astype(np.float32)

    def error(outputs: Any, y: Any) -> float:
        return float(np.abs(outputs["y"] - y).mean())

    found = client.evaluate(
        path,
        {"x": real, "y": real},
        error,
        "emumid",
        runtime="tflite",
        nb_inference=1,
        progress=False,
    )
    assert 0 < found.value <= 0.065
    [one] = found.inference.sets
    assert one.measured.outputs["y"].raw_dtype == dtype
    compared = client.infer(
        path,
        how[0].whole(real),
        "emumid",
        runtime="tflite",
        nb_inference=1,
        compare_local=True,
        progress=False,
    )
    assert compared.sets[0].comparison["y"].max_error == 0
    np.testing.assert_array_equal(compared.outputs["y"], found.inference.outputs["y"])


def test_the_command_writes_outputs_and_shows_layers(client: Client, model: Path) -> None:
    np.save("x.npy", np.ones((5, 4), np.float32))
    words = ["infer", "-m", str(model), "-i", "x=x.npy", "--target", "emumid", "--batch-size", "2"]
    done = printed(
        CliRunner().invoke(app, [*words, "--compare-local", "--json"], catch_exceptions=False)
    )
    answer: dict[str, Any] = json.loads(done)
    [one] = answer["sets"]
    assert (one["rows"], one["batch_size"], one["batches"]) == (5, 2, 3)
    assert one["comparison"]["scores"]["max_error"] <= 1e-4
    with np.load("outputs.npz") as archive:
        np.testing.assert_allclose(archive["scores"], np.ones((5, 4)) @ WEIGHTS)
    again = refusal(CliRunner().invoke(app, words, catch_exceptions=False))
    assert "--out: outputs.npz exists" in again

    benchmark = client.submit(
        model=model,
        runtime="ort",
        benchmark_type="TYPE1",
        target="emumid",
        profile_layers=True,
        nb_inference=3,
        wait=True,
        progress=False,
    )
    shown = CliRunner().invoke(app, ["results", benchmark.benchmark_id], catch_exceptions=False)
    assert "MatMul" in shown.stdout
    assert "by provider: CPUExecutionProvider 100%" in shown.stdout
    layers = benchmark.results().answer.layers
    assert layers is not None
    assert layers.count == 1


def test_the_transcript_in_the_guide_is_what_the_command_prints(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[2] / "docs/how-to/run-own-inputs.md").read_text("utf-8")
    [transcript] = re.findall(r"\$ (edgeyard infer [^\n]*--compare-local)\n([^`]*)```", guide)
    command, expected = transcript
    shutil.copy(DEMO / "digits.onnx", "digits.onnx")
    rng = np.random.default_rng(0)
    np.savez("images.npz", image=rng.random((20, 1, 8, 8), dtype=np.float32) * 16)
    monkeypatch.setenv("EDGEYARD_COLUMNS", "100")
    done = printed(CliRunner().invoke(app, command.split()[1:], catch_exceptions=False))
    lines, shown = (
        # without the reasons of a verdict, which depend on what else the machine does
        [line for line in text.splitlines() if not line.startswith(("·", "  "))]
        for text in (done, expected)
    )
    assert len(lines) == len(shown)
    for title in (0, 3):
        assert lines[title].split() == shown[title].split()
        # then come measured numbers, and errors that depend on the machine
        assert lines[title + 1].split()[:4] == shown[title + 1].split()[:4]
    assert lines[4].endswith("100.00%")
