"""Models that mean harm, submitted to a real server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import AttributeProto, TensorProto, helper

from deploy.process import edgeyard
from tests.builders.runner import make_task, upload_server


def function_with_outside_default(location: str, size: int) -> bytes:
    """A model whose function has a default attribute that lies in another file.

    It answers with that file's bytes.
    """
    outside = TensorProto(name="stolen", data_type=TensorProto.UINT8, dims=[size])
    outside.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(size))):
        entry = outside.external_data.add()
        entry.key, entry.value = key, value
    constant = helper.make_node("Constant", [], ["bytes"])
    reference = constant.attribute.add()
    reference.name, reference.ref_attr_name = "value", "content"
    reference.type = AttributeProto.TENSOR
    function = helper.make_function(
        "custom",
        "Steal",
        ["x"],
        ["y"],
        [constant, helper.make_node("Cast", ["bytes"], ["y"], to=TensorProto.FLOAT)],
        [helper.make_opsetid("", 17)],
        attribute_protos=[helper.make_attribute("content", outside)],
    )
    graph = helper.make_graph(
        [helper.make_node("Steal", ["x"], ["y"], domain="custom")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [size])],
    )
    model = helper.make_model(
        graph,
        functions=[function],
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("custom", 1)],
        ir_version=9,
    )
    content: bytes = model.SerializeToString()
    return content


@pytest.mark.slow
def test_a_model_that_names_the_admin_token_does_not_read_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with edgeyard(data) as server:
        token = (data / "admin.token").read_text().strip()
        names = (str(data / "admin.token"), "../../../admin.token", "admin.token")
        for number, location in enumerate(names):
            model = tmp_path / f"steal{number}.onnx"
            model.write_bytes(function_with_outside_default(location, len(token)))
            description = {
                "model": str(server.upload(model)["name"]),
                "runtime": "ort",
                "benchmark_type": "TYPE1",
                "target": "emumid",
            }
            with pytest.raises(RuntimeError, match="422") as refused:
                server.call("POST", "/v1/benchmarks", description)
            assert "outside the ONNX file" in str(refused.value)
            assert token not in str(refused.value)


def test_a_board_does_not_read_a_file_that_a_model_names(tmp_path: Path) -> None:
    with upload_server() as server:
        task = make_task(tmp_path / "task", server, function_with_outside_default("secret", 4))
        (task.local / "secret").write_bytes(b"abcd")
        code, output = task.run()
        assert code == 3, output
        assert server.report["failure"]["category"] == "user_model"
        assert "outside the ONNX file" in server.report["failure"]["sentence"]


def test_onnxruntime_itself_does_not_read_such_a_file_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second line of defence: what the required version of onnxruntime refuses."""
    import onnxruntime

    (tmp_path / "admin.token").write_text("secret")
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    for location in (str(tmp_path / "admin.token"), "../admin.token"):
        content = function_with_outside_default(location, 6)
        with pytest.raises(Exception, match=r"(?i)external|path"):
            onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(
                None, {"x": np.zeros((1, 4), np.float32)}
            )
