"""Looks through an ONNX file before an engine may open it.

Such a file is hostile input: it may point at other files, or hold more nodes than a graph ever
needs. This reads protobuf's wire format (protobuf.dev, "Encoding") as far as that takes, with the
field numbers of onnx.proto3, without the ``onnx`` package, which boards don't have.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Mapping, Tuple, Union

from edgeyard.errors import RunFailed

MAX_MODEL_BYTES = 2 * 1024**3
"""Protobuf's own bound on a message."""

MAX_NODES = 100_000
MAX_DEPTH = 32

Buffer = Union[bytes, mmap.mmap]

_EXTERNAL = 1

# message: field -> message of that field; what is not listed is skipped
_GRAPH_OF: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_NODE = "node"
_TENSOR_DATA_LOCATION, _TENSOR_EXTERNAL_DATA = 14, 13
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Scan:
    """What was found.

    Attributes:
        nodes: Of the graph, its subgraphs and functions.
    """

    size_bytes: int
    nodes: int


def scan(path: Path) -> Scan:
    """Check a model file's size, structure and node count.

    Raises:
        RunFailed: ``user_model``: empty, too large, not ONNX, too many nodes, or external data.
    """
    try:
        size = path.stat().st_size
        if size == 0:
            raise RunFailed("user_model", f"the model {path.name!r} is empty (0 bytes)")
        if size > MAX_MODEL_BYTES:
            raise RunFailed(
                "user_model", f"the model has {size} bytes; at most {MAX_MODEL_BYTES} are taken"
            )
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return Scan(size_bytes=size, nodes=_walk(data, size, path.name))
    except OSError as error:
        raise RunFailed("board_fault", f"the model can't be read: {error}") from error


def _walk(data: Buffer, size: int, name: str) -> int:
    # without the key "location" no tensor can name a file, and tensors need not be looked into
    suspicious = data.find(b"location") >= 0
    nodes = 0
    graphs = 0
    todo: List[Tuple[str, int, int, int]] = [("model", 0, size, 0)]
    while todo:
        kind, start, end, depth = todo.pop()
        if depth > MAX_DEPTH:
            raise RunFailed("user_model", f"the model's graphs are nested over {MAX_DEPTH} deep")
        inner = _GRAPH_OF.get(kind, {})
        for number, wire, low, high in _fields(data, start, end, name):
            if kind == "tensor":
                if number == _TENSOR_EXTERNAL_DATA or (
                    number == _TENSOR_DATA_LOCATION and wire == _VARINT and low == _EXTERNAL
                ):
                    raise RunFailed(
                        "user_model",
                        "the model keeps weights in another file (external data); save it as one",
                    )
                continue
            child = inner.get(number)
            if child is None or wire != _BYTES:
                continue
            nodes += child == _NODE
            graphs += kind == "model" and child == "graph"
            if nodes > MAX_NODES:
                raise RunFailed("user_model", f"the model has more than {MAX_NODES} nodes")
            if child != "tensor" or suspicious:
                todo.append((child, low, high, depth + (child == "graph")))
    if not graphs:
        raise _not_onnx(name)
    return nodes


def _fields(data: Buffer, at: int, end: int, name: str) -> Iterator[Tuple[int, int, int, int]]:
    """Fields of a message: number, wire type, and where its bytes lie (a varint: its value)."""
    while at < end:
        key, at = _varint(data, at, end, name)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise _not_onnx(name)
        if wire == _VARINT:
            value, at = _varint(data, at, end, name)
            yield number, wire, value, 0
            continue
        if wire == _BYTES:
            length, at = _varint(data, at, end, name)
        elif wire == _FIXED64:
            length = 8
        elif wire == _FIXED32:
            length = 4
        else:
            raise _not_onnx(name)
        if length > end - at:
            raise _not_onnx(name)
        yield number, wire, at, at + length
        at += length


def _varint(data: Buffer, at: int, end: int, name: str) -> Tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _not_onnx(name)


def _not_onnx(name: str) -> RunFailed:
    return RunFailed("user_model", f"{name!r} is not a valid ONNX file: it is damaged or cut short")
