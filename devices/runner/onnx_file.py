"""ONNX files without the ``onnx`` package: look into hostile ones, and edit trusted ones.

Boards have NumPy and onnxruntime, but not ``onnx`` and protobuf. What the runner needs of the
format is little: the wire format (`onnx_wire`) and some field numbers of ``onnx.proto``
(https://github.com/onnx/onnx/blob/main/onnx/onnx.proto). Whatever isn't edited is written back
byte for byte. Only the standard library and NumPy; Python 3.10.
"""

import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.engine import Dimension, TensorSpec, dimension_of
from edgeyard.devices.runner.file_kind import HEAD_BYTES, mismatch
from edgeyard.devices.runner.onnx_wire import Field, Message, fields_of, not_onnx
from edgeyard.errors import RunFailed

MAX_FILE_BYTES = 2**31 - 1
"""Maximum size of a protocol buffer; the weights of a larger model have to be in data files."""

MAX_NODES = 200_000
"""Large language models have some 10,000; loading time grows faster than their number."""

MAX_TENSORS = 200_000
MAX_DIMENSIONS = 16
MAX_GRAPH_DEPTH = 16
"""Graphs within graphs (If, Loop, Scan)."""

MAX_FIELDS = 10_000_000
"""Maximum number of fields; reading more takes longer than a run may stay silent."""

MAX_PAIR_BYTES = 4096
MAX_INPUT_BYTES = 2**16
MAX_OPSET_BYTES = 2**16
"""Maximum bytes of an entry that names an operator set and its version."""

MAX_CLASS_NUMBERS = 100_000
CLASS_NUMBERS = ("classlabels_ints", "classlabels_int64s")
"""Attributes of classifiers (domain ``ai.onnx.ml``) that number their classes."""

MAX_SPARSE_ELEMENTS = 2**28
"""onnxruntime writes sparse initialisers out in full: 1 GiB of float32."""

MODEL_IR_VERSION, MODEL_PRODUCER, MODEL_GRAPH, MODEL_OPSET, MODEL_TRAINING = 1, 2, 7, 8, 20
MODEL_FUNCTION = 25
GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT, GRAPH_VALUE_INFO = 1, 5, 11, 12, 13
GRAPH_SPARSE = 15
NODE_INPUT, NODE_OUTPUT, NODE_NAME, NODE_OP_TYPE, NODE_ATTRIBUTE, NODE_DOMAIN = 1, 2, 3, 4, 5, 7
ATTRIBUTE_NAME, ATTRIBUTE_FLOAT, ATTRIBUTE_INT, ATTRIBUTE_TENSOR, ATTRIBUTE_GRAPH = 1, 2, 3, 5, 6
ATTRIBUTE_INTS = 8
ATTRIBUTE_TENSORS, ATTRIBUTE_GRAPHS, ATTRIBUTE_SPARSE, ATTRIBUTE_SPARSES = 10, 11, 22, 23
TENSOR_DIMS, TENSOR_TYPE, TENSOR_NAME, TENSOR_RAW, TENSOR_EXTERNAL, TENSOR_LOCATION = (
    1, 2, 8, 9, 13, 14,
)  # fmt: skip
SPARSE_VALUES, SPARSE_INDICES, SPARSE_DIMS = 1, 2, 3
PAIR_KEY, PAIR_VALUE = 1, 2
FUNCTION_NODE, FUNCTION_ATTRIBUTE = 7, 11
TRAINING_INITIALIZATION, TRAINING_ALGORITHM = 1, 2
VALUE_NAME, VALUE_TYPE, OPSET_DOMAIN, OPSET_VERSION = 1, 2, 1, 2
TYPE_TENSOR, TENSOR_KIND_TYPE, TENSOR_KIND_SHAPE, SHAPE_DIMENSION, DIMENSION_VALUE = 1, 1, 2, 1, 1
DIMENSION_NAME = 2

WAYS_TO_TENSORS = {
    "ModelProto": {
        MODEL_GRAPH: "GraphProto",
        MODEL_TRAINING: "TrainingInfoProto",
        MODEL_FUNCTION: "FunctionProto",
    },
    "TrainingInfoProto": {TRAINING_INITIALIZATION: "GraphProto", TRAINING_ALGORITHM: "GraphProto"},
    "FunctionProto": {FUNCTION_NODE: "NodeProto", FUNCTION_ATTRIBUTE: "AttributeProto"},
    "GraphProto": {
        GRAPH_NODE: "NodeProto",
        GRAPH_INITIALIZER: "TensorProto",
        GRAPH_SPARSE: "SparseTensorProto",
    },
    "NodeProto": {NODE_ATTRIBUTE: "AttributeProto"},
    "AttributeProto": {
        ATTRIBUTE_TENSOR: "TensorProto",
        ATTRIBUTE_TENSORS: "TensorProto",
        ATTRIBUTE_GRAPH: "GraphProto",
        ATTRIBUTE_GRAPHS: "GraphProto",
        ATTRIBUTE_SPARSE: "SparseTensorProto",
        ATTRIBUTE_SPARSES: "SparseTensorProto",
    },
    "SparseTensorProto": {SPARSE_VALUES: "TensorProto", SPARSE_INDICES: "TensorProto"},
    "TensorProto": {},
}
"""Every field of the format through which a message holds a tensor, and the message in that field.
A test compares this with the ``onnx`` package, so that a new field is not overlooked."""

SINGLE = {
    "TrainingInfoProto": frozenset({TRAINING_INITIALIZATION, TRAINING_ALGORITHM}),
    "AttributeProto": frozenset({ATTRIBUTE_TENSOR, ATTRIBUTE_GRAPH, ATTRIBUTE_SPARSE}),
    "SparseTensorProto": frozenset({SPARSE_VALUES, SPARSE_INDICES}),
}
"""The `WAYS_TO_TENSORS` that are there once. Readers merge a second one into the first: two
tensors of a thousand elements become one of a million."""

ELEMENT_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "string", 9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
}  # fmt: skip
"""onnx's numbers of element types, and their names."""

TENSOR_TYPES = {"float32": 1, "float16": 10, "float64": 11}
"""NumPy's names of the types that `tensor` can write, and onnx's numbers."""


def open_model(path: Path) -> memoryview:
    """Map the file's content into memory, so that weights that are not used are not read.

    Raises:
        RunFailed: ``user_model``: empty, or over the limit of the format; ``board_fault``: the
            host can't read it.
    """
    try:
        size = path.stat().st_size
        if size == 0:
            raise RunFailed("user_model", f"the model {path.name!r} is empty (0 bytes)")
        if size > MAX_FILE_BYTES:
            raise RunFailed(
                "user_model", f"the model has {size} bytes; at most {MAX_FILE_BYTES} are taken"
            )
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise RunFailed("board_fault", f"the model can't be read: {error}") from error


def tensor(name: str, array: NDArray[np.generic]) -> Message:
    """Return the encoded TensorProto of a float array, for an initialiser."""
    message = Message()
    for size in array.shape:
        message.add(TENSOR_DIMS, size)
    message.add(TENSOR_TYPE, TENSOR_TYPES[array.dtype.name])
    message.add(TENSOR_NAME, name)
    little_endian = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    message.add(TENSOR_RAW, little_endian.tobytes())
    return message


def value_info(name: str, array: NDArray[np.generic]) -> Message:
    """Return the encoded ValueInfoProto with the type and shape of an array."""
    shape = Message()
    for size in array.shape:
        dimension = Message()
        dimension.add(DIMENSION_VALUE, size)
        shape.add(SHAPE_DIMENSION, dimension)
    kind = Message()
    kind.add(TENSOR_KIND_TYPE, TENSOR_TYPES[array.dtype.name])
    kind.add(TENSOR_KIND_SHAPE, shape)
    value_type = Message()
    value_type.add(TYPE_TENSOR, kind)
    message = Message()
    message.add(VALUE_NAME, name)
    message.add(VALUE_TYPE, value_type)
    return message


@dataclass(frozen=True)
class OnnxFacts:
    """What an ONNX file says of itself.

    Attributes:
        parameters: Elements of all tensors in the file.
        opsets: Version by domain; "" is ONNX's own.
        operators: Number of nodes by operator, functions and inner graphs included.
        data_files: Names of the files next to it that hold weights.
    """

    size_bytes: int
    ir_version: int
    producer: str
    nodes: int
    tensors: int
    parameters: int
    opsets: dict[str, int]
    operators: dict[str, int]
    data_files: frozenset[str]


def inspect(
    model: "Path | bytes | memoryview",
    data: "Mapping[str, memoryview] | None" = None,
    *,
    max_fields: int | None = None,
) -> OnnxFacts:
    """Look through an ONNX file before anything loads it; its weights aren't read.

    Args:
        model: The file, or its content.
        data: Content of its data files, by name; None: all weights have to lie inside.

    Raises:
        RunFailed: ``user_model``: not an ONNX file, over a limit, external data, or tensors that
            claim more elements than the file can hold.
    """
    view = open_model(model) if isinstance(model, Path) else memoryview(model)
    try:
        return _inspect(view, data or {}, max_fields)
    except RunFailed:
        found = mismatch("the model", "an ONNX file", bytes(view[:HEAD_BYTES]))
        if found is None:
            raise
        raise RunFailed("user_model", found) from None


def inputs_of(
    model: "Path | memoryview", *, max_fields: int | None = None
) -> "tuple[TensorSpec, ...]":
    """Return the inputs that a run has to provide; the file's weights are not read.

    An input that is no tensor has the type "".

    Raises:
        RunFailed: ``user_model``: not an ONNX file, or over a limit.
    """
    return interface_of(model, max_fields=max_fields)[0]


def interface_of(
    model: "Path | memoryview", *, max_fields: int | None = None
) -> "tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]":
    """Return the inputs that a run has to provide, and the outputs; see `inputs_of`."""
    view = open_model(model) if isinstance(model, Path) else model
    scan = _ModelScan(file_bytes=len(view), max_fields=max_fields)
    given: list[TensorSpec] = []
    returned: list[TensorSpec] = []
    weights: set[str] = set()
    for number, _, value in scan.fields_of(view):
        if number != MODEL_GRAPH or not isinstance(value, memoryview):
            continue
        for entry in scan.fields_of(value):
            if entry.number == GRAPH_INITIALIZER:
                weights |= {
                    field.text()
                    for field in scan.fields_of(entry.content())
                    if field.number == TENSOR_NAME
                }
            elif entry.number == GRAPH_SPARSE:
                for part in scan.fields_of(entry.content()):
                    if part.number == SPARSE_VALUES:
                        weights |= {
                            field.text()
                            for field in scan.fields_of(part.content())
                            if field.number == TENSOR_NAME
                        }
            elif entry.number in (GRAPH_INPUT, GRAPH_OUTPUT):
                if len(entry.content()) > MAX_INPUT_BYTES:
                    raise not_onnx("the description of an input or output is too long")
                which = given if entry.number == GRAPH_INPUT else returned
                which.append(_input(entry.content()))
    return tuple(spec for spec in given if spec.name not in weights), tuple(returned)


def class_numbers(
    model: "Path | memoryview", *, max_fields: int | None = None
) -> "dict[str, tuple[int, ...]]":
    """Return the class numbers that outputs of classifiers can hold, by the output's name.

    Raises:
        RunFailed: ``user_model``: not an ONNX file, or over a limit.
    """
    view = open_model(model) if isinstance(model, Path) else model
    scan = _ModelScan(file_bytes=len(view), max_fields=max_fields)
    found: dict[str, tuple[int, ...]] = {}
    for number, _, value in scan.fields_of(view):
        if number != MODEL_GRAPH or not isinstance(value, memoryview):
            continue
        for entry in scan.fields_of(value):
            if entry.number == GRAPH_NODE:
                found.update(_class_numbers(scan, entry.content()))
    return found


def _class_numbers(scan: "_ModelScan", node: memoryview) -> "Iterator[tuple[str, tuple[int, ...]]]":
    """Yield the first output of a node that numbers its classes, and the numbers."""
    outputs: list[str] = []
    numbers: list[int] = []
    for entry in scan.fields_of(node):
        if entry.number == NODE_OUTPUT:
            outputs.append(entry.text())
        elif entry.number == NODE_ATTRIBUTE:
            fields = list(scan.fields_of(entry.content()))
            named = any(
                field.number == ATTRIBUTE_NAME and field.text() in CLASS_NUMBERS for field in fields
            )
            for field in fields:
                if named and field.number == ATTRIBUTE_INTS:
                    numbers.extend(field.integers(MAX_CLASS_NUMBERS))
    if outputs and 0 < len(numbers) <= MAX_CLASS_NUMBERS:
        signed = (number - 2**64 if number >= 2**63 else number for number in numbers)
        yield outputs[0], tuple(sorted(signed))


def _input(view: memoryview) -> TensorSpec:
    message = Message(view)
    name = message.string(VALUE_NAME)
    for kind in message.messages(VALUE_TYPE):
        for tensor_kind in kind.messages(TYPE_TENSOR):
            dtype = ELEMENT_TYPES.get(tensor_kind.integer(TENSOR_KIND_TYPE), "")
            if not dtype:
                break
            shapes = tensor_kind.messages(TENSOR_KIND_SHAPE)
            if not shapes:  # of any number of dimensions; a scalar has a shape without any
                return TensorSpec(name, None, dtype)
            sizes = shapes[-1].messages(SHAPE_DIMENSION)
            if len(sizes) > MAX_DIMENSIONS:
                break
            return TensorSpec(name, tuple(_dimension(size) for size in sizes), dtype)
    return TensorSpec(name, (), "")


def _dimension(message: Message) -> Dimension:
    value = message.integer(DIMENSION_VALUE, default=-1)
    return dimension_of(value if 0 <= value < 2**63 else message.string(DIMENSION_NAME)[:100])


def _inspect(view: memoryview, data: Mapping[str, memoryview], max_fields: int | None) -> OnnxFacts:
    sizes = {name: len(content) for name, content in data.items()}
    census = _ModelScan(
        file_bytes=len(view) + sum(sizes.values()), data_sizes=sizes, max_fields=max_fields
    )
    opsets: dict[str, int] = {}
    ir_version, producer, graphs = 0, "", 0
    for number, _, value in census.fields_of(view):
        if number == MODEL_IR_VERSION and isinstance(value, int):
            ir_version = value
        elif not isinstance(value, memoryview):
            continue
        elif number == MODEL_PRODUCER:
            producer = str(value, "utf-8", "replace")[:100]
        elif number == MODEL_OPSET:
            if len(value) > MAX_OPSET_BYTES:
                raise not_onnx("the name of one of its operator sets is too long")
            opset = Message(value)
            opsets[opset.string(OPSET_DOMAIN)] = opset.integer(OPSET_VERSION)
        elif number == MODEL_GRAPH:
            graphs += 1
    census.visit("ModelProto", view, depth=0)
    if graphs != 1:
        raise not_onnx(f"it has {graphs} graphs instead of one")
    return OnnxFacts(
        size_bytes=len(view),
        ir_version=ir_version,
        producer=producer,
        nodes=census.nodes,
        tensors=census.tensors,
        parameters=census.parameters,
        opsets=opsets,
        operators=dict(sorted(census.operators.items())),
        data_files=frozenset(census.data_files),
    )


@dataclass
class _ModelScan:
    """Counts what is in a model, and stops at the first thing over a limit."""

    file_bytes: int
    data_sizes: Mapping[str, int] = field(default_factory=dict)
    max_fields: int | None = None
    nodes: int = 0
    tensors: int = 0
    parameters: int = 0
    fields: int = 0
    operators: dict[str, int] = field(default_factory=dict)
    data_files: set[str] = field(default_factory=set)

    def fields_of(self, view: memoryview) -> Iterator[Field]:
        """Yield the fields of one message, and count them against the limit of the file."""
        for entry in fields_of(view):
            self.fields += 1
            max_fields = MAX_FIELDS if self.max_fields is None else self.max_fields
            if self.fields > max_fields:
                raise RunFailed("user_model", f"the model has more than {max_fields} fields")
            yield entry

    def visit(self, kind: str, view: memoryview, depth: int) -> None:
        """Look at a message and at all in it that can hold a tensor.

        Args:
            kind: The message's name in ``onnx.proto``.
            depth: How many graphs it lies in.
        """
        if kind == "TensorProto":
            self.tensor(view)
            return
        if kind == "GraphProto":
            depth += 1
            if depth > MAX_GRAPH_DEPTH:
                raise RunFailed(
                    "user_model", f"the model nests graphs more than {MAX_GRAPH_DEPTH} deep"
                )
        elif kind == "NodeProto":
            self.nodes += 1
            if self.nodes > MAX_NODES:
                raise RunFailed("user_model", f"the model has more than {MAX_NODES} nodes")
        ways = WAYS_TO_TENSORS[kind]
        dims = list[int]()
        seen = set[int]()
        for entry in self.fields_of(view):
            if entry.number in SINGLE.get(kind, ()):
                if entry.number in seen:
                    raise not_onnx(f"it has field {entry.number} twice")
                seen.add(entry.number)
            if entry.number in ways:
                self.visit(ways[entry.number], entry.content(), depth)
            elif kind == "NodeProto" and entry.number == NODE_OP_TYPE:
                operator = entry.text()[:100]
                self.operators[operator] = self.operators.get(operator, 0) + 1
            elif kind == "SparseTensorProto" and entry.number == SPARSE_DIMS:
                dims.extend(entry.integers(MAX_DIMENSIONS))
        if kind == "SparseTensorProto":
            self._elements("sparse", dims, limit=MAX_SPARSE_ELEMENTS)

    def tensor(self, view: memoryview) -> None:
        name, dims, external = "", list[int](), False
        where = dict[str, str]()
        for entry in self.fields_of(view):
            if entry.number == TENSOR_DIMS:
                dims.extend(entry.integers(MAX_DIMENSIONS))
            elif entry.number == TENSOR_NAME:
                name = entry.text()[:100]
            elif entry.number == TENSOR_EXTERNAL:
                external = True
                if len(entry.content()) > MAX_PAIR_BYTES:
                    raise not_onnx(f"the place of the weights {name!r} is too long")
                pair = Message(entry.content())
                key = pair.string(PAIR_KEY)
                if key in where:  # readers differ in which of two counts
                    raise not_onnx(f"the place of the weights {name!r} is stated twice")
                where[key] = pair.string(PAIR_VALUE)
            elif entry.number == TENSOR_LOCATION:
                external = external or entry.value != 0
        if external:
            self._external(name, where)
        # The smallest types that onnx knows put four elements into a byte.
        elements = self._elements(name, dims, limit=4 * self.file_bytes)
        self.parameters += elements

    def _external(self, name: str, where: Mapping[str, str]) -> None:
        """Look at where the weights of a tensor lie."""
        location = where.get("location", "")
        if not self.data_sizes:
            raise RunFailed(
                "user_model",
                f"the weights {name!r} lie outside the ONNX file, in {location[:100]!r}, "
                "which is missing: put both into one folder and submit the folder, or save the "
                "model with all data inside",
            )
        size = self.data_sizes.get(location)
        if size is None:
            has = ", ".join(sorted(self.data_sizes)[:10])
            raise RunFailed(
                "user_model",
                f"the weights {name!r} lie in {location[:100]!r}, which is not among the model's "
                f"data files: {has}",
            )
        self.data_files.add(location)
        numbers = [where.get("offset", "0"), where.get("length", "0")]
        if not all(text.isascii() and text.isdigit() and len(text) < 20 for text in numbers):
            raise not_onnx(f"the place of the weights {name!r} is not a number")
        if sum(map(int, numbers)) > size:
            raise RunFailed(
                "user_model",
                f"the weights {name!r} lie beyond the end of {location!r}, which has {size} bytes",
            )

    def _elements(self, name: str, dims: Sequence[int], limit: int) -> int:
        self.tensors += 1
        if self.tensors > MAX_TENSORS:
            raise RunFailed("user_model", f"the model has more than {MAX_TENSORS} tensors")
        if len(dims) > MAX_DIMENSIONS or any(size >= 2**63 for size in dims):
            raise RunFailed("user_model", f"the shape of tensor {name!r} can't be")
        elements = 1
        for size in dims:
            elements *= size
        if elements > limit:
            raise RunFailed(
                "user_model",
                f"tensor {name!r} claims {elements} elements, more than the file can hold",
            )
        return elements
