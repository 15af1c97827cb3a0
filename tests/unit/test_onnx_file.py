"""The ONNX reader without the onnx package, against the onnx package."""

import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgeyard.devices.runner import onnx_file
from edgeyard.devices.runner.onnx_wire import Message
from edgeyard.errors import RunFailed
from tests.builders.networks import DEMO, LIGHT, gemm, saved, weights

MODELS = [*sorted(LIGHT.glob("*.onnx")), DEMO / "digits.onnx"]


def test_the_sample_networks_are_there() -> None:
    assert len(MODELS) > 5


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_facts_agree_with_the_onnx_package(path: Path) -> None:
    model = onnx.load(path)
    facts = onnx_file.inspect(path)
    constants = [
        attribute.t
        for node in model.graph.node
        for attribute in node.attribute
        if attribute.type == onnx.AttributeProto.TENSOR
    ]
    tensors = [*model.graph.initializer, *constants]
    assert facts.size_bytes == path.stat().st_size
    assert facts.nodes == len(model.graph.node)
    assert facts.tensors == len(tensors)
    assert facts.parameters == sum(int(np.prod(each.dims)) for each in tensors)
    assert facts.ir_version == model.ir_version
    assert facts.producer == model.producer_name
    assert facts.opsets == {each.domain: each.version for each in model.opset_import}
    assert sum(facts.operators.values()) == facts.nodes


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_what_is_read_and_not_changed_is_written_back_byte_for_byte(path: Path) -> None:
    message = Message(onnx_file.open_model(path))
    for graph in message.messages(onnx_file.MODEL_GRAPH):
        for node in graph.messages(onnx_file.GRAPH_NODE):
            node.messages(onnx_file.NODE_ATTRIBUTE)
        for value in graph.messages(onnx_file.GRAPH_INITIALIZER):
            value.string(onnx_file.TENSOR_NAME)
    assert message.encode() == path.read_bytes()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)])
def test_a_written_tensor_reads_back_by_the_onnx_package(
    dtype: str, shape: tuple[int, ...]
) -> None:
    array = weights(*shape, dtype=dtype) if shape else np.array(0.5, dtype)
    proto = TensorProto.FromString(onnx_file.tensor("w", array).encode())
    assert proto.name == "w"
    np.testing.assert_array_equal(numpy_helper.to_array(proto), array)
    assert numpy_helper.to_array(proto).dtype == array.dtype


def refused(path: Path) -> str:
    with pytest.raises(RunFailed) as caught:
        onnx_file.inspect(path)
    assert caught.value.category == "user_model"
    return caught.value.sentence


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\x00" * 64, "not a valid ONNX file"),
        (b"PK\x03\x04" * 20, "is a ZIP archive (of PyTorch or Keras, for example)"),
        (b"\xff" * 100, "not a valid ONNX file"),
        (b"\xef\xbb\xbf\n<!DOCTYPE html><html>", "is a web page"),
        (b"<html><head>", "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
        (b"\x1c\x00\x00\x00TFL3" + bytes(60), "is a TensorFlow Lite model"),
        (b"\x1f\x8b\x08" + bytes(60), "is a gzip archive"),
        (b"\x89HDF\r\n\x1a\n" + bytes(60), "is an HDF5 file (of Keras, for example)"),
        (b'{"detail": "not found"}', "is JSON text"),
        (b"\x00" * 4, "field number 0"),
        (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "reaches past its end"),
        (b"\x08\x07", "0 graphs"),
        (b"\x3a\x00\x3a\x00", "2 graphs"),
        (b"\x38\x01", "field 7"),
    ],
)
def test_what_is_no_onnx_file_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert said in refused(path)


def test_a_web_page_is_named_with_what_to_do_about_it(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"<!DOCTYPE html>\n<html><body>Sign in</body></html>")
    assert refused(path) == (
        "the model is a web page, not an ONNX file: check that the URL it comes from "
        "leads to the file itself and needs no login"
    )


def test_a_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes((DEMO / "digits.onnx").read_bytes()[:5000])
    assert "not a valid ONNX file" in refused(path)


def test_a_missing_file_is_the_boards_matter(tmp_path: Path) -> None:
    with pytest.raises(RunFailed) as caught:
        onnx_file.inspect(tmp_path / "none.onnx")
    assert caught.value.category == "board_fault"


def test_a_file_over_the_limit_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(onnx_file.MAX_FILE_BYTES + 1)
    assert str(onnx_file.MAX_FILE_BYTES) in refused(path)


@pytest.mark.parametrize("where", ["initializer", "constant", "branch", "sparse", "location"])
def test_external_data_is_refused_wherever_it_is(tmp_path: Path, where: str) -> None:
    outside = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    if where == "location":
        outside.data_location = TensorProto.EXTERNAL
    else:
        entry = outside.external_data.add()
        entry.key, entry.value = "location", "../../etc/passwd"
    model = gemm()
    if where in ("initializer", "location"):
        model.graph.initializer.append(outside)
    elif where == "sparse":
        model.graph.sparse_initializer.add().values.CopyFrom(outside)
    else:
        constant = helper.make_node("Constant", [], ["c"])
        constant.attribute.append(helper.make_attribute("value", outside))
        if where == "branch":
            branch = helper.make_graph([constant], "then", [], [])
            model.graph.node.append(helper.make_node("If", ["x"], ["c"], then_branch=branch))
        else:
            model.graph.node.append(constant)
    assert "outside the ONNX file" in refused(saved(model, tmp_path))


@pytest.mark.parametrize("dims", [[2**40], [2**20, 2**20], [-1], [1] * 40, [2**62, 2**62]])
def test_a_tensor_that_claims_more_than_the_file_holds_is_refused(
    tmp_path: Path, dims: list[int]
) -> None:
    model = gemm()
    model.graph.initializer.append(TensorProto(name="bomb", data_type=1, dims=dims))
    assert "'bomb'" in refused(saved(model, tmp_path))


def test_a_sparse_bomb_is_refused(tmp_path: Path) -> None:
    model = gemm()
    model.graph.sparse_initializer.add().dims.extend([2**20, 2**20])
    assert "more than the file can hold" in refused(saved(model, tmp_path))


def test_nodes_are_limited_and_those_of_inner_graphs_and_functions_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = gemm()
    branch = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])] * 3, "then", [], [])
    model.graph.node.append(helper.make_node("If", ["x"], ["c"], then_branch=branch))
    model.functions.append(
        helper.make_function(
            "own",
            "f",
            [],
            [],
            [helper.make_node("Neg", ["x"], ["y"])] * 2,
            [helper.make_opsetid("", 17)],
        )
    )
    path = saved(model, tmp_path)
    nodes = len(model.graph.node) + 3 + 2
    assert onnx_file.inspect(path).nodes == nodes
    monkeypatch.setattr(onnx_file, "MAX_NODES", nodes - 1)
    assert f"more than {nodes - 1} nodes" in refused(path)


def test_tensors_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "MAX_TENSORS", 3)
    assert "more than 3 tensors" in refused(saved(gemm(), tmp_path))


def test_graphs_that_nest_too_deep_are_refused(tmp_path: Path) -> None:
    graph = helper.make_graph([], "inner", [], [])
    for _ in range(onnx_file.MAX_GRAPH_DEPTH + 1):
        graph = helper.make_graph(
            [helper.make_node("If", ["x"], ["y"], then_branch=graph)], "outer", [], []
        )
    model = gemm()
    model.graph.node.extend(graph.node)
    assert "deep" in refused(saved(model, tmp_path))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"\x00" * 257 * 2**20, "field number 0"),
        (b"\x08\x01" * 600_000, "more than 500000 fields"),
        (b"\x42" + b"\x80\x80\x80\x08" + b"\x08\x01" * 2**23, "operator sets is too long"),
    ],
    ids=["zeros", "fields", "operator set"],
)
def test_a_large_file_without_sense_is_refused_before_a_run_says_nothing_for_long(
    content: bytes, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "MAX_FIELDS", 500_000)
    began = time.process_time()
    with pytest.raises(RunFailed, match=found):
        onnx_file.inspect(content)
    assert time.process_time() - began < 30
