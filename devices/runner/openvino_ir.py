"""What an OpenVINO IR model (``.xml`` with its ``.bin``) states of itself, without OpenVINO.

The XML comes from strangers: a document type, and so every entity, is refused; elements and their
depth are bounded. Only the standard library; Python 3.10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Tuple
from xml.parsers import expat

from edgeyard.devices.runner.engine import TensorSpec, dimension_of
from edgeyard.errors import RunFailed

MAX_BYTES = 256 * 2**20
MAX_LAYERS = 200_000
MAX_ELEMENTS = 10_000_000
MAX_DEPTH = 128
"""Graphs within graphs (If, Loop, TensorIterator) take six elements each."""

MAX_PORTS = 10_000
MAX_DIMENSIONS = 32

ELEMENT_TYPES = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "boolean": "bool",
    "string": "string",
}
"""OpenVINO's names of element types, and NumPy's; others keep OpenVINO's."""

_LAYER = ("net", "layers", "layer")
_NUMBER = re.compile(r"[0-9]{1,18}")
_SEPARATOR = re.compile(r"(?<!\\),")
_PIECE = 2**20


@dataclass(frozen=True)
class IrFacts:
    """What an IR states.

    Attributes:
        inputs: In the file's order, by the names that engine ``openvino`` gives them.
        layers: Number of all, inner graphs included.
        operators: Number of layers by type and operator set.
        weights_bytes: Bytes of the ``.bin`` file that its constants need; 0: it needs none.
    """

    inputs: Tuple[TensorSpec, ...]
    layers: int
    operators: Mapping[str, int]
    weights_bytes: int


def read_ir(
    xml: "bytes | memoryview", weights_bytes: Optional[int], *, max_elements: int = MAX_ELEMENTS
) -> IrFacts:
    """Read the XML of an IR, and compare it with the size of its weights.

    Args:
        xml: Content of the ``.xml`` file.
        weights_bytes: Size of the ``.bin`` file; None: there is none.
        max_elements: Maximum number of elements.

    Raises:
        RunFailed: ``user_model``: no IR, damaged, over a limit, or without (all of) its weights.
    """
    if len(xml) > MAX_BYTES:
        raise _wrong(f"has {len(xml)} bytes of XML; at most {MAX_BYTES} are accepted")
    reader = _Reader(max_elements)
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = reader.refuse_doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    try:
        for at in range(0, len(xml), _PIECE):
            parser.Parse(bytes(xml[at : at + _PIECE]), False)
        parser.Parse(b"", True)
    except (expat.ExpatError, ValueError) as error:  # ValueError: an encoding of several bytes
        raise _wrong(f"can't be read: {error}") from error
    if not reader.layers:
        raise _wrong("has no layers")
    if reader.weights_bytes and weights_bytes is None:
        raise RunFailed(
            "user_model",
            "the weights of the OpenVINO IR model are missing: submit its .xml and its .bin "
            "together, in one folder or zip",
        )
    if reader.weights_bytes > (weights_bytes or 0):
        raise _wrong(
            f"needs {reader.weights_bytes} bytes of weights, and its .bin has {weights_bytes}"
        )
    return IrFacts(
        inputs=tuple(reader.inputs),
        layers=reader.layers,
        operators=dict(sorted(reader.operators.items())),
        weights_bytes=reader.weights_bytes,
    )


def port_name(names: "List[str]", friendly: str) -> str:
    """Return the name of an input or output, as feeds and results have it."""
    return min(names) if names else friendly


class _Reader:
    """Collects what the parser's events state."""

    def __init__(self, max_elements: int) -> None:
        self.inputs: List[TensorSpec] = []
        self.layers = 0
        self.operators: Dict[str, int] = {}
        self.weights_bytes = 0
        self._max_elements = max_elements
        self._elements = 0
        self._path: List[str] = []
        self._kind, self._name = "", ""
        self._data: Mapping[str, str] = {}
        self._names: List[str] = []

    def refuse_doctype(self, *_: object) -> None:
        """Called at a document type, which alone can declare entities."""
        raise _wrong("declares a document type, which no OpenVINO writes")

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Called at the begin of an element."""
        self._elements += 1
        self._path.append(tag)
        if self._elements > self._max_elements:
            raise _wrong(f"has more than {self._max_elements} elements")
        if len(self._path) > MAX_DEPTH:
            raise _wrong(f"nests elements more than {MAX_DEPTH} deep")
        if len(self._path) == 1 and tag != "net":
            raise _wrong(f"has the root {tag[:100]!r} instead of 'net'")
        if tag == "layer":
            self._layer(attributes)
        elif tag == "data" and self._path[-2:-1] == ["layer"]:
            self._data = attributes
            if self._kind == "Const":
                self._weights(attributes)
        elif tag == "port" and tuple(self._path) == (*_LAYER, "output", "port"):
            names = _SEPARATOR.split(attributes.get("names", ""))
            self._names = [name.replace("\\,", ",") for name in names if name]

    def end(self, tag: str) -> None:
        """Called at the end of an element."""
        if tag == "layer" and tuple(self._path) == _LAYER and self._kind == "Parameter":
            if len(self.inputs) >= MAX_PORTS:
                raise _wrong(f"has more than {MAX_PORTS} inputs")
            kind = self._data.get("element_type", "")
            self.inputs.append(
                TensorSpec(
                    port_name(self._names, self._name),
                    _shape(self._data.get("shape", "")),
                    ELEMENT_TYPES.get(kind, kind),
                )
            )
        if tag == "layer":
            self._kind = ""
        self._path.pop()

    def _layer(self, attributes: Mapping[str, str]) -> None:
        self.layers += 1
        if self.layers > MAX_LAYERS:
            raise _wrong(f"has more than {MAX_LAYERS} layers")
        self._kind, self._name = attributes.get("type", ""), attributes.get("name", "")
        self._data, self._names = {}, []
        operator = self._kind[:100]
        self.operators[operator] = self.operators.get(operator, 0) + 1

    def _weights(self, attributes: Mapping[str, str]) -> None:
        place = [attributes.get(name, "") for name in ("offset", "size")]
        if not all(_NUMBER.fullmatch(text) for text in place):
            raise _wrong(f"does not state where the weights {self._name[:100]!r} lie")
        self.weights_bytes = max(self.weights_bytes, sum(map(int, place)) if int(place[1]) else 0)


def _shape(text: str) -> "Optional[Tuple[int | str | None, ...]]":
    if text.strip() == "...":
        return None
    sizes = [size.strip().strip("[]{}") for size in text.split(",")] if text.strip() else []
    if len(sizes) > MAX_DIMENSIONS:
        raise _wrong(f"has an input of more than {MAX_DIMENSIONS} dimensions")
    return tuple(dimension_of(int(size) if _NUMBER.fullmatch(size) else None) for size in sizes)


def _wrong(reason: str) -> RunFailed:
    return RunFailed("user_model", f"the OpenVINO IR model {reason}")
