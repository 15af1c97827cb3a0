"""The inputs of a ``.tflite`` file, without LiteRT.

The file is a FlatBuffer: tables of offsets, each relative to where it stands. Everything that it
says is checked against its length; strings and vectors are bounded.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

from edgeyard.devices.runner.engine import Quantization, TensorSpec, dimension_of
from edgeyard.devices.runner.quantization import quantization_of

DEFAULT_SIGNATURES = ("serving_default", "infer")
"""Run, in this order, when a model has several signatures and none is asked for."""

_IDENTIFIER = b"TFL3"
_MAX_ITEMS = 10_000
_MAX_NAME_BYTES = 1024
_MAX_DIMENSIONS = 32

_TYPES = {
    0: "float32",
    1: "float16",
    2: "int32",
    3: "uint8",
    4: "int64",
    6: "bool",
    7: "int16",
    9: "int8",
    10: "float64",
    12: "uint64",
    15: "uint32",
    16: "uint16",
}
"""``TensorType`` of the format's schema, as far as arrays of numbers have these types."""

_MODEL_SUBGRAPHS, _MODEL_SIGNATURES = 2, 7
_SUBGRAPH_TENSORS, _SUBGRAPH_INPUTS = 0, 1
_TENSOR_SHAPE, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_QUANTIZATION = 0, 1, 3, 4
_TENSOR_SHAPE_SIGNATURE = 7
_QUANTIZATION_SCALE, _QUANTIZATION_ZERO_POINT, _QUANTIZATION_AXIS = 2, 3, 6
_SIGNATURE_INPUTS, _SIGNATURE_KEY, _SIGNATURE_SUBGRAPH = 0, 2, 4
_MAP_NAME, _MAP_TENSOR = 0, 1
"""Numbers of fields, in the order of the format's schema."""

_View = Union[bytes, mmap.mmap]


def tflite_inputs(model: Path, signature: str = "") -> Tuple[TensorSpec, ...]:
    """Return the inputs that a run has to give, by the names that engine ``tflite`` gives them.

    An input that is no array of numbers has the type "".

    Args:
        model: The file.
        signature: The signature to run; "": the one that the engine chooses.

    Returns:
        None of a file that is damaged or of another kind, or without this signature.
    """
    with model.open("rb") as file:
        if file.read(8)[4:] != _IDENTIFIER:
            return ()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            try:
                return _inputs(view, signature)
            except (struct.error, IndexError, UnicodeDecodeError, ValueError):
                return ()


def _inputs(view: _View, signature: str) -> Tuple[TensorSpec, ...]:
    root = _Table(view, _unsigned(view, 0))
    signatures = {one.text(_SIGNATURE_KEY): one for one in root.tables(_MODEL_SIGNATURES)}
    if signature and signature not in signatures:
        return ()
    chosen = signature or next((name for name in DEFAULT_SIGNATURES if name in signatures), "")
    if not chosen and len(signatures) == 1:
        (chosen,) = signatures
    graphs = root.tables(_MODEL_SUBGRAPHS)
    names: Dict[int, str] = {}
    graph = graphs[0]
    if chosen in signatures:
        one = signatures[chosen]
        graph = graphs[one.number(_SIGNATURE_SUBGRAPH)]
        for each in one.tables(_SIGNATURE_INPUTS):
            names[each.number(_MAP_TENSOR)] = each.text(_MAP_NAME)
    tensors = graph.tables(_SUBGRAPH_TENSORS)
    indexes = list(names) if names else graph.numbers(_SUBGRAPH_INPUTS)
    return tuple(_spec(tensors[index], names.get(index)) for index in indexes if index >= 0)


def _spec(tensor: "_Table", name: Optional[str]) -> TensorSpec:
    sizes = tensor.numbers(_TENSOR_SHAPE_SIGNATURE) or tensor.numbers(_TENSOR_SHAPE)
    if len(sizes) > _MAX_DIMENSIONS:
        raise ValueError("too many dimensions")
    shape = tuple(map(dimension_of, sizes))
    dtype = _TYPES.get(tensor.byte(_TENSOR_TYPE), "")
    own_name = tensor.text(_TENSOR_NAME) if name is None else name
    return TensorSpec(own_name, shape, dtype, _quantization(tensor, dtype))


def _quantization(tensor: "_Table", dtype: str) -> Optional[Quantization]:
    stated = tensor.table(_TENSOR_QUANTIZATION)
    if stated is None:
        return None
    return quantization_of(
        dtype,
        stated.vector(_QUANTIZATION_SCALE, "f"),
        stated.vector(_QUANTIZATION_ZERO_POINT, "q"),
        int(stated.number(_QUANTIZATION_AXIS)),
    )


class _Table:
    """A table of a FlatBuffer.

    Raises:
        ValueError: An offset leads out of the file.
        struct.error: Likewise.
    """

    def __init__(self, view: _View, at: int) -> None:
        self._view, self._at = view, at
        (back,) = struct.unpack_from("<i", view, _checked(view, at))
        self._fields = _checked(view, at - back)
        self._size = _short(view, self._fields)

    def _place(self, field: int) -> int:
        """Return where a field stands; 0: it has its default."""
        slot = 4 + 2 * field
        if slot + 2 > self._size:
            return 0
        offset = _short(self._view, self._fields + slot)
        return self._at + offset if offset else 0

    def byte(self, field: int) -> int:
        place = self._place(field)
        return self._view[_checked(self._view, place)] if place else 0

    def number(self, field: int) -> int:
        """Return an unsigned number of 32 bits."""
        place = self._place(field)
        return _unsigned(self._view, place) if place else 0

    def numbers(self, field: int) -> List[int]:
        """Return a vector of signed numbers of 32 bits."""
        return self.vector(field, "i")

    def vector(self, field: int, kind: str) -> List[Any]:
        """Return a vector of numbers of a kind that `struct` knows."""
        at, count = self._vector(field)
        return list(struct.unpack_from(f"<{count}{kind}", self._view, at)) if count else []

    def table(self, field: int) -> "Optional[_Table]":
        """Return an inner table; None where it is not stated."""
        place = self._place(field)
        return _Table(self._view, place + _unsigned(self._view, place)) if place else None

    def text(self, field: int) -> str:
        at, count = self._vector(field, _MAX_NAME_BYTES)
        return self._view[at : at + count].decode("utf-8") if count else ""

    def tables(self, field: int) -> "List[_Table]":
        """Return a vector of tables."""
        at, count = self._vector(field)
        places = range(at, at + 4 * count, 4)
        return [_Table(self._view, place + _unsigned(self._view, place)) for place in places]

    def _vector(self, field: int, max_items: int = _MAX_ITEMS) -> Tuple[int, int]:
        place = self._place(field)
        if not place:
            return 0, 0
        at = place + _unsigned(self._view, place)
        count = _unsigned(self._view, at)
        if count > max_items:
            raise ValueError("too many items")
        return at + 4, count


def _unsigned(view: _View, at: int) -> int:
    return int(struct.unpack_from("<I", view, _checked(view, at))[0])


def _short(view: _View, at: int) -> int:
    return int(struct.unpack_from("<H", view, _checked(view, at))[0])


def _checked(view: _View, at: int) -> int:
    if not 0 < at + 1 <= len(view):
        raise ValueError("an offset leads out of the file")
    return at
