"""Engine ``openvino``: its parameters, its counters, and whose fault a failure is."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgeyard.benchmark_api.sdk.model_folder import with_weights
from edgeyard.devices.runner.engine import ProfilingEngine
from edgeyard.devices.runner.engines import find
from edgeyard.errors import RunFailed
from tests.builders.networks import DEMO, digits

ONNX, XML = DEMO / "digits.onnx", DEMO / "digits.xml"
TEST_X, TEST_Y = digits("test")


@pytest.fixture(scope="module")
def engine() -> Any:
    return find("openvino")


def failure(call: Any, *arguments: Any, **more: Any) -> RunFailed:
    with pytest.raises(RunFailed) as caught:
        call(*arguments, **more)
    return caught.value


@pytest.mark.parametrize("model", [ONNX, XML], ids=["onnx", "ir"])
def test_onnx_and_ir_give_the_same_answers_by_the_same_names(engine: Any, model: Path) -> None:
    session = engine.load(with_weights(model), threads=1, parameters={"inference_precision": "f32"})
    (logits,) = session.run({"image": TEST_X.astype(np.float32)})
    assert [each.name for each in session.outputs] == ["logits"]
    peer: Any = find("ort").load(ONNX, threads=1, parameters={})
    np.testing.assert_allclose(logits, peer.run({"image": TEST_X.astype(np.float32)})[0], atol=1e-3)


def test_the_facts_state_what_openvino_made_of_the_parameters(engine: Any) -> None:
    facts = engine.load(
        ONNX,
        threads=2,
        parameters={
            "performance_hint": "throughput",
            "streams": 2,
            "inference_precision": "f32",
            "device": "CPU",
        },
    ).facts
    assert facts["execution_provider"] == "CPU"
    assert facts["performance_hint"] == "throughput"
    assert facts["streams"] == 2
    assert facts["threads"] == 2
    assert facts["inference_precision"] == "f32"
    assert facts["device_name"]


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"device": "NPU9"}, "CPU"),
        ({"performance_hint": "fast"}, "latency, throughput"),
        ({"streams": 0}, "1 to"),
        ({"streams": True}, "1 to"),
        ({"inference_precision": "i4"}, "f32"),
    ],
)
def test_wrong_parameters_are_refused_with_what_is_accepted(
    engine: Any, parameters: dict[str, object], reason: str
) -> None:
    found = failure(engine.load, ONNX, threads=1, parameters=parameters)
    assert found.category == "user_input"
    assert reason in found.sentence
    assert f"parameters/{next(iter(parameters))}" in found.sentence


def test_layers_come_from_the_counters(engine: Any, tmp_path: Path) -> None:
    assert isinstance(engine, ProfilingEngine)
    found = engine.profile(
        ONNX,
        lambda inputs: {"image": np.zeros((64, 1, 8, 8), np.float32)},
        tmp_path,
        runs=4,
        max_s=5.0,
        threads=1,
        parameters={},
    )
    assert 1 <= len(found) <= 4
    operators = [event.operator for event in found[0].events]
    assert operators.count("Convolution") == 2
    mean_us = np.mean([run.duration_us for run in found])
    layers_us = sum(each.duration_us for each in found[0].events)
    rounding_us = 2 * len(operators)
    assert 0 < layers_us <= mean_us + rounding_us
    assert list(tmp_path.iterdir()) == []


def test_an_operator_that_openvino_lacks_is_the_engines_limit(engine: Any, tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    graph = helper.make_graph(
        [helper.make_node("Frobnicate", ["x"], ["y"], domain="com.example")], "g", [x], [y]
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    path = tmp_path / "odd.onnx"
    path.write_bytes(onnx.helper.make_model(graph, opset_imports=opsets).SerializeToString())
    found = failure(engine.load, path, threads=1, parameters={})
    assert found.category == "engine_unsupported"
    assert "Frobnicate" in found.sentence


def test_an_operator_that_openvino_lacks_in_an_ir_is_the_engines_limit(
    engine: Any, tmp_path: Path
) -> None:
    path = tmp_path / "odd.zip"
    with zipfile.ZipFile(path, "w") as archive:
        odd = XML.read_bytes().replace(b'type="ReLU"', b'type="Frobnicate"')
        archive.writestr("net.xml", odd)
        archive.write(DEMO / "digits.bin", "net.bin")
    assert failure(engine.load, path, threads=1, parameters={}).category == "engine_unsupported"


@pytest.mark.parametrize("names", [("net.xml",), ("net.xml", "other.bin"), ("net.bin",)])
def test_half_of_a_pair_is_the_models_fault(
    engine: Any, tmp_path: Path, names: tuple[str, ...]
) -> None:
    path = tmp_path / "half.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.write(XML if name.endswith("xml") else DEMO / "digits.bin", name)
    assert failure(engine.load, path, threads=1, parameters={}).category == "user_model"
    alone = failure(engine.load, XML, threads=1, parameters={})
    assert (alone.category, ".bin" in alone.sentence) == ("user_model", True)


def test_weights_outside_an_onnx_file_are_not_read(engine: Any, tmp_path: Path) -> None:
    model = onnx.load(ONNX)
    onnx.external_data_helper.convert_model_to_external_data(
        model, location="secret.data", size_threshold=0
    )
    onnx.save(model, tmp_path / "net.onnx")
    found = failure(engine.load, tmp_path / "net.onnx", threads=1, parameters={})
    assert found.category == "user_model"
    assert "secret.data" in found.sentence
