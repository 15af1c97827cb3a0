"""The ONNX reader takes whatever it is given."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
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
small = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


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


def ways_to_tensors() -> dict[str, dict[int, str]]:
    """Fields of each message of the ``onnx`` package that a tensor can be reached through."""
    fields: dict[str, dict[int, str]] = {}

    def visit(message: Any) -> None:
        if message.name not in fields:
            inner = [each for each in message.fields if each.message_type is not None]
            fields[message.name] = {each.number: each.message_type.name for each in inner}
            for each in inner:
                visit(each.message_type)

    visit(ModelProto.DESCRIPTOR)
    reaching = {"TensorProto"}
    while True:
        more = {name for name, inner in fields.items() if reaching & set(inner.values())}
        if more <= reaching:
            break
        reaching |= more
    return {
        name: {number: kind for number, kind in inner.items() if kind in reaching}
        for name, inner in fields.items()
        if name in reaching
    }


def test_all_fields_that_lead_to_tensors_are_known() -> None:
    assert ways_to_tensors() == onnx_file.WAYS_TO_TENSORS


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_tensor_outside_the_file_is_found_wherever_the_format_allows_one(
    data: st.DataObject,
) -> None:
    """A random walk through the format of the ``onnx`` package, to any field that is a tensor."""
    model = gemm()
    message: Any = model
    ways = ways_to_tensors()
    for step in range(14):
        kinds = ways[message.DESCRIPTOR.name]
        if not kinds:
            break
        numbers = sorted(kinds)
        if step > 8:  # towards a tensor by now
            nearer = [each for each in numbers if kinds[each] in ("TensorProto", "NodeProto")]
            numbers = nearer or numbers
        # of a model there is but one graph
        field = message.DESCRIPTOR.fields_by_number[data.draw(st.sampled_from(numbers))]
        inner = getattr(message, field.name)
        message = inner.add() if hasattr(inner, "add") else inner
        message.SetInParent()
    assume(message.DESCRIPTOR.name == "TensorProto")
    outside = data.draw(
        st.sampled_from(["admin.token", "/etc/passwd", "../admin.token", "a/b", ""])
    )
    how = data.draw(st.sampled_from(["location", "flag", "both"]))
    if how != "flag":
        entry = message.external_data.add()
        entry.key, entry.value = "location", outside
    if how != "location":
        message.data_location = TensorProto.EXTERNAL
    with pytest.raises(RunFailed, match="outside the ONNX file"):
        onnx_file.inspect(model.SerializeToString())


def test_a_key_that_other_readers_shorten_is_refused() -> None:
    """Protocol buffers' own readers keep 32 bits of it, and would see ``external_data``."""
    key = (13 << 3 | 2) | 1 << 32
    encoded = bytes([key & 0x7F | 0x80, key >> 7 & 0x7F | 0x80, 0x80, 0x80, 0x10])
    with pytest.raises(RunFailed, match="field number"):
        Message(encoded + b"\x00")


def varint(value: int) -> bytes:
    message = Message()
    message.add(1, value % 2**64)
    return message.encode()[1:]


@st.composite
def dimensions(draw: st.DrawFn) -> bytes:
    """The field ``dims`` of a tensor, in any of the encodings that the wire format has."""
    key, value = onnx_file.TENSOR_DIMS << 3, draw(st.sampled_from([0, 1, 2, 3, 2**20, 2**40]))
    kind = draw(st.sampled_from(["varint", "packed", "fixed32", "fixed64", "group"]))
    if kind == "varint":
        return bytes([key]) + varint(value)
    if kind == "packed":
        packed = b"".join(map(varint, draw(st.lists(st.integers(0, 2**20), max_size=20))))
        return bytes([key | 2]) + varint(len(packed)) + packed
    if kind == "fixed32":
        return bytes([key | 5]) + (value % 2**32).to_bytes(4, "little")
    if kind == "fixed64":
        return bytes([key | 1]) + value.to_bytes(8, "little")
    return bytes([key | 3]) + bytes([key]) + varint(value) + bytes([key | 4])


def framed(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def elements(tensor: TensorProto) -> int:
    product = 1
    for size in tensor.dims:
        product *= size
    return product


@settings(small, max_examples=300)
@given(parts=st.lists(dimensions(), max_size=5), copies=st.integers(1, 2), kept=st.booleans())
def test_a_tensor_has_as_many_elements_as_other_readers_see(
    parts: list[bytes], copies: int, kept: bool
) -> None:
    """In whichever encoding its dimensions are, and if it is there twice, which merges."""
    tensor = framed(TensorProto.RAW_DATA_FIELD_NUMBER, b"") + b"".join(parts)
    if kept:
        graph = framed(onnx_file.GRAPH_INITIALIZER, tensor) * copies
    else:
        attribute = framed(onnx_file.ATTRIBUTE_TENSOR, tensor) * copies
        node = framed(onnx_file.NODE_ATTRIBUTE, attribute)
        graph = framed(onnx_file.GRAPH_NODE, node)
    content = framed(onnx_file.MODEL_GRAPH, graph)
    facts = None
    with only_user_model():
        facts = onnx_file.inspect(content)
    if facts is None:
        return
    read = ModelProto.FromString(content)
    tensors = list(read.graph.initializer)
    tensors += [each.t for node in read.graph.node for each in node.attribute]
    assert facts.parameters == sum(map(elements, tensors))
    assert max(map(elements, tensors)) <= 4 * len(content)
    assert all(len(each.dims) <= onnx_file.MAX_DIMENSIONS for each in tensors)
