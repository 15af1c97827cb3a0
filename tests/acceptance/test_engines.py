"""One network on every engine: a campaign with intervals, accuracy, outputs and layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from edgeyard import Client
from edgeyard.benchmark_api.cli import app
from edgeyard.benchmark_api.sdk import Benchmark
from tests.builders.networks import DEMO, digits

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("server")]

MODEL_OF = {
    "ort": "digits.onnx",
    "tflite": "digits.tflite",
    "openvino": "digits.xml",
    "ncnn": "digits.ncnn.param",
}
BOARD = "emumid-0001-0001"


def results_of(client: Client, done: Benchmark) -> Any:
    return client.results(done).report


def test_a_matrix_of_models_and_engines_has_a_row_with_an_interval_for_each_pair_that_works(
    client: Client,
) -> None:
    made = client.submit(
        model=[DEMO / name for name in MODEL_OF.values()],
        runtime=list(MODEL_OF),
        benchmark_type="TYPE1",
        target_uid=BOARD,
        nb_inference=6,
        wait=True,
        progress=False,
    )
    ran = []
    for each in made:
        shown = CliRunner().invoke(app, ["results", each.benchmark_id]).output
        report: Any = client.results(each).report
        (settings,) = [line for line in shown.splitlines() if line.startswith("settings ")]
        assert "threads 1" in settings
        if report["engine"] == "openvino":
            precision = report["engine_facts"]["inference_precision"]
            assert f"inference precision {precision}" in settings
        ran.append((report["engine"], report["model"]["filename"]))
        low, high = report["inference_latency"]["p50_ci95"]
        assert 0 < low <= report["inference_latency"]["p50"] <= high
        facts = report["engine_facts"]
        assert facts["version"]
        assert facts["execution_provider"]
        assert facts["threads"] == 1
        assert [one["shape"] for one in report["inputs"]] in (
            [[None, 1, 8, 8]],
            [["rows", 1, 8, 8]],
        )
        assert [one["dtype"] for one in report["outputs"]] == ["float32"]
        assert [one["shape"][1:] for one in report["outputs"]] == [[10]]
        if report["engine"] == "ort":
            nodes = facts["nodes_by_provider"]["CPUExecutionProvider"]
            assert nodes["share"] == 1.0
            assert nodes["nodes"] > 0
    assert sorted(ran) == [
        ("ncnn", "digits.ncnn.param.zip"),
        ("openvino", "digits.onnx"),
        ("openvino", "digits.xml.zip"),
        ("ort", "digits.onnx"),
        ("tflite", "digits.tflite"),
    ]


@pytest.mark.parametrize("runtime", ["openvino", "ncnn"])
def test_accuracy_and_outputs_are_those_of_the_network(client: Client, runtime: str) -> None:
    model = DEMO / MODEL_OF[runtime]
    done = client.submit(
        model=model,
        runtime=runtime,
        benchmark_type="TYPE2",
        dataset=DEMO / "digits_test.npz",
        parameters={"batch_size": 30},
        target_uid=BOARD,
        wait=True,
        progress=False,
    )
    assert results_of(client, done)["accuracy"]["top1"] > 0.95
    x = digits("test")[0][:4].astype(np.float32)
    found = client.infer(
        model,
        {"image": x},
        BOARD.partition("-")[0],
        runtime=runtime,
        nb_inference=1,
        compare_local=True,
        progress=False,
    )
    assert found.outputs["logits"].shape == (4, 10)
    assert found.sets[0].comparison["logits"].top1_agreement == 1


def test_layers_of_openvino_are_in_the_result(client: Client) -> None:
    done = client.submit(
        model=DEMO / "digits.onnx",
        runtime="openvino",
        benchmark_type="TYPE1",
        target_uid=BOARD,
        nb_inference=6,
        profile_layers=True,
        wait=True,
        progress=False,
    )
    layers = results_of(client, done)["layers"]
    operators = {each["operator"]: each["layers"] for each in layers["operators"]}
    assert operators["Convolution"] == 2
    assert layers["runs"] > 0
    shown = CliRunner().invoke(app, ["results", done.benchmark_id])
    assert "Convolution" in shown.output


def test_the_share_of_the_nodes_of_each_provider_is_shown(client: Client) -> None:
    """The provider takes no node of the digits, so that the CPU runs all of them."""
    done = client.submit(
        model=DEMO / "digits.onnx",
        runtime="ort",
        benchmark_type="TYPE1",
        target_uid=BOARD,
        nb_inference=6,
        parameters={"execution_provider": "AzureExecutionProvider"},
        wait=True,
        progress=False,
    )
    shown = CliRunner().invoke(app, ["results", done.benchmark_id])
    assert "CPUExecutionProvider 100%" in shown.output


def test_a_device_that_no_board_reports_is_refused_with_those_that_they_report(
    client: Client,
) -> None:
    before = client.count()
    arguments = ["submit", "--model", str(DEMO / "digits.onnx"), "--runtime", "openvino"]
    arguments += ["--type", "TYPE1", "--target", "emumid", "--parameter", "device=NPU"]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 1
    assert "CPU" in refused.output
    assert client.count() == before
