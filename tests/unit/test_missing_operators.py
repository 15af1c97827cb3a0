"""A model with an operator that the engine lacks: the engine's limit, named in a short sentence."""

from pathlib import Path

import onnx
import pytest

from edgeyard.devices.runner.engines import find
from edgeyard.errors import RunFailed
from tests.builders.networks import DEMO


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("ort", "this onnxruntime has no operator 'Teleport' of version 17"),
        ("openvino", "this OpenVINO has no operator 'Teleport-17'"),
    ],
)
def test_an_operator_that_the_engine_lacks_is_named(engine: str, said: str, tmp_path: Path) -> None:
    model = onnx.load(DEMO / "digits.onnx")
    model.graph.node[0].op_type = "Teleport"
    path = tmp_path / "teleport.onnx"
    onnx.save(model, path)
    with pytest.raises(RunFailed) as caught:
        find(engine).load(path, threads=1, parameters={})
    assert (caught.value.category, caught.value.sentence) == ("engine_unsupported", said)


CUSTOM = "this onnxruntime has no operator 'Teleport' of the domain 'com.example'"
NOT_IMPORTED = "the model has an operator of the domain 'com.example', which it does not import"


@pytest.mark.parametrize(
    ("imported", "category", "said"),
    [(True, "engine_unsupported", CUSTOM), (False, "user_model", NOT_IMPORTED)],
)
def test_an_operator_of_another_domain_is_named(
    imported: bool, category: str, said: str, tmp_path: Path
) -> None:
    model = onnx.load(DEMO / "digits.onnx")
    model.graph.node[0].op_type, model.graph.node[0].domain = "Teleport", "com.example"
    if imported:
        model.opset_import.add(domain="com.example", version=1)
    path = tmp_path / "teleport.onnx"
    onnx.save(model, path)
    with pytest.raises(RunFailed) as caught:
        find("ort").load(path, threads=1, parameters={})
    assert (caught.value.category, caught.value.sentence) == (category, said)
