"""The ONNX reader takes whatever it is given."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.onnx_pb import AttributeProto, ModelProto, TensorProto

from edgeyard.devices.runner import onnx_file, onnx_head
from edgeyard.devices.runner.onnx_wire import Message
from edgeyard.errors import RunFailed
from tests.builders.networks import DEMO, gemm, weights

names = st.text(max_size=20)
integers = st.integers(-(2**63), 2**63 - 1)
attributes = st.one_of(
    integers,
    st.floats(width=32, allow_nan=False),
    names,
    st.lists(integers, min_size=1, max_size=4),
)
small = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextmanager
def only_user_model() -> Iterator[None]:
    """What is inside may succeed, or fail in this one way."""
    try:
        yield
    except RunFailed as error:
        if error.category != "user_model":
            raise


@st.composite
def models(draw: st.DrawFn) -> ModelProto:
    """Models that are well-formed files, though most would not run."""
    nodes = []
    for _ in range(draw(st.integers(0, 4))):
        node = helper.make_node(
            draw(names), draw(st.lists(names, max_size=3)), draw(st.lists(names, max_size=3))
        )
        for value in draw(st.lists(attributes, max_size=3)):
            node.attribute.append(helper.make_attribute("a", value))
        nodes.append(node)
    tensors = [
        numpy_helper.from_array(
            weights(*draw(st.lists(st.integers(0, 4), max_size=3)) or [1]), name
        )
        for name in draw(st.lists(names, max_size=3))
    ]
    graph = helper.make_graph(nodes, draw(names), [], [], tensors, doc_string=draw(names))
    return helper.make_model(graph, producer_name=draw(names), model_version=draw(integers))


def touched(message: Message) -> Message:
    """The message with all that can be parsed parsed."""
    for graph in message.messages(onnx_file.MODEL_GRAPH):
        for node in graph.messages(onnx_file.GRAPH_NODE):
            node.messages(onnx_file.NODE_ATTRIBUTE)
        graph.messages(onnx_file.GRAPH_INITIALIZER)
    return message


@small
@given(models())
def test_every_model_comes_back_byte_for_byte(model: ModelProto) -> None:
    content = model.SerializeToString()
    assert touched(Message(content)).encode() == content


@small
@given(models())
def test_every_model_is_counted_as_the_onnx_package_reads_it(
    tmp_path: Path, model: ModelProto
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    facts = onnx_file.inspect(path)
    assert facts.nodes == len(model.graph.node)
    assert facts.tensors == len(model.graph.initializer)
    assert facts.producer == model.producer_name[:100]


@small
@given(value=integers, text=names, data=st.binary(max_size=200))
def test_what_is_written_is_read_by_the_onnx_package(value: int, text: str, data: bytes) -> None:
    message = Message()
    message.add(onnx_file.ATTRIBUTE_NAME, text)
    message.add(onnx_file.ATTRIBUTE_INT, value)
    proto = AttributeProto.FromString(message.encode())
    assert (proto.name, proto.i) == (text, value)
    message = Message()
    message.add(onnx_file.TENSOR_RAW, data)
    assert TensorProto.FromString(message.encode()).raw_data == data


@settings(small, max_examples=200)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_read_but_nothing_else_happens(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with only_user_model():
        onnx_file.inspect(path)


@pytest.mark.parametrize("source", ["digits", "gemm"])
@settings(small, max_examples=200)
@given(data=st.data())
def test_a_damaged_model_is_refused_or_read_but_nothing_else_happens(
    tmp_path: Path, source: str, data: st.DataObject
) -> None:
    model = onnx.load(DEMO / "digits.onnx") if source == "digits" else gemm()
    content = bytearray(model.SerializeToString())
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(1, len(content))) :]
    path = tmp_path / "model.onnx"
    path.write_bytes(bytes(content))
    with only_user_model():
        onnx_file.inspect(path)
        head = onnx_head.find_head(path)
        onnx_head.cut(path, head)
        onnx_head.replaced(path, head, weights(8, 3), None).encode()
