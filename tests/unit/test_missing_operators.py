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
