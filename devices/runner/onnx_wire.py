"""The wire format of ONNX files: protocol buffers (protobuf.dev, "Encoding"), read and written.

No schema: a message is its fields in order, and what isn't touched keeps its bytes. Only the
standard library and NumPy; Python 3.10.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from edgeyard.errors import RunFailed

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT = 2**64

_MAX_KEY = 2**32 - 1
"""Other readers keep the lower 32 bits of a key: they would see another field than we do."""


class Field(NamedTuple):
    """One field as it stands on the wire.

    Attributes:
        value: Integer of a varint, else the bytes.
    """

    number: int
    wire: int
    value: int | memoryview

    def content(self) -> memoryview:
        """Return the bytes of a string, a message or packed numbers.

        Raises:
            RunFailed: ``user_model``: this is a number.
        """
        if not isinstance(self.value, memoryview) or self.wire != _BYTES:
            raise not_onnx(f"field {self.number} is a number instead of text or a message")
        return self.value

    def text(self) -> str:
        """Return a string."""
        return _text(self.content())

    def integers(self, limit: int) -> list[int]:
        """Values of a repeated integer field, packed or not; no more than one over ``limit``.

        Raises:
            RunFailed: ``user_model``: it is of another type, which other readers skip: they would
                see other numbers than we do.
        """
        if isinstance(self.value, int):
            return [self.value]
        if self.wire != _BYTES:
            raise not_onnx(f"field {self.number} is not an integer")
        values: list[int] = []
        position = 0
        while position < len(self.value) and len(values) <= limit:
            value, position = _read_varint(self.value, position)
            values.append(value)
        return values


class Message:
    """A message whose fields can be read, replaced, added; the untouched keep order and bytes."""

    def __init__(self, data: bytes | memoryview = b"") -> None:
        self.fields: list[Field | tuple[int, "Message"]] = list(fields_of(memoryview(data)))

    def strings(self, number: int) -> list[str]:
        """Return every value of a repeated string field."""
        return [_text(value) for value in _bytes_of(self, number)]

    def string(self, number: int) -> str:
        """Return a string field, "" where absent."""
        found = self.strings(number)
        return found[-1] if found else ""

    def integer(self, number: int, default: int = 0) -> int:
        """Return a varint field."""
        found = self.integers(number, limit=1)
        return found[-1] if found else default

    def integers(self, number: int, limit: int) -> list[int]:
        """Values of a repeated integer field; no more than about ``limit``."""
        values: list[int] = []
        for entry in self.fields:
            if isinstance(entry, Field) and entry.number == number and len(values) <= limit:
                values.extend(entry.integers(limit))
        return values

    def content(self, number: int) -> memoryview:
        """Return a bytes field, empty where absent."""
        found = _bytes_of(self, number)
        return found[-1] if found else memoryview(b"")

    def floating(self, number: int, default: float) -> float:
        """Return a float field."""
        found = [value for value in _bytes_of(self, number) if len(value) == 4]
        return float(np.frombuffer(found[-1], "<f4")[0]) if found else default

    def messages(self, number: int) -> list["Message"]:
        """Return every message of a field; changing one of them changes this message."""
        found: list[Message] = []
        for index, entry in enumerate(self.fields):
            if entry[0] != number:
                continue
            value = entry[-1]
            if isinstance(value, memoryview):
                value = Message(value)
                self.fields[index] = (number, value)
            if isinstance(value, Message):
                found.append(value)
        return found

    def add(self, number: int, value: "int | bytes | str | Message") -> None:
        """Append a field."""
        if isinstance(value, Message):
            self.fields.append((number, value))
        elif isinstance(value, int):
            self.fields.append(Field(number, _VARINT, value))
        else:
            data = value.encode() if isinstance(value, str) else value
            self.fields.append(Field(number, _BYTES, memoryview(data)))

    def drop(self, number: int) -> None:
        """Remove every occurrence of a field."""
        self.fields = [entry for entry in self.fields if entry[0] != number]

    def replace_string(self, number: int, position: int, text: str) -> None:
        """Change the ``position``-th value of a repeated string field."""
        places = [index for index, entry in enumerate(self.fields) if entry[0] == number]
        self.fields[places[position]] = Field(number, _BYTES, memoryview(text.encode()))

    def chunks(self) -> list[bytes | memoryview]:
        """Yield the encoded message in parts, so that weights are not copied."""
        parts: list[bytes | memoryview] = []
        for entry in self.fields:
            if isinstance(entry, Field):
                parts.extend(_encoded(entry))
            else:
                inner = entry[1].chunks()
                length = sum(len(part) for part in inner)
                parts.append(_varint(entry[0] << 3 | _BYTES) + _varint(length))
                parts.extend(inner)
        return parts

    def encode(self) -> bytes:
        """Return the message as bytes."""
        return b"".join(self.chunks())


def fields_of(view: memoryview) -> Iterator[Field]:
    """Yield the fields of one message, in order, without copying them.

    Raises:
        RunFailed: ``user_model``: this is no protocol buffer.
    """
    position, end = 0, len(view)
    while position < end:
        key, position = _read_varint(view, position)
        if key > _MAX_KEY:
            raise not_onnx("it has a field number that is too large")
        number, wire = key >> 3, key & 7
        if number == 0:
            raise not_onnx("it has the field number 0, which does not exist")
        if wire == _VARINT:
            value, position = _read_varint(view, position)
            yield Field(number, wire, value)
            continue
        if wire == _BYTES:
            length, position = _read_varint(view, position)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise not_onnx(f"it has the unknown field type {wire}")
        if length > end - position:
            raise not_onnx("one of its fields reaches past its end")
        yield Field(number, wire, view[position : position + length])
        position += length


def _bytes_of(message: Message, number: int) -> list[memoryview]:
    return [
        entry.value
        for entry in message.fields
        if entry[0] == number and isinstance(entry, Field) and isinstance(entry.value, memoryview)
    ]


def _text(value: memoryview) -> str:
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise not_onnx("one of its names is not UTF-8") from error


def _read_varint(view: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(view) or shift > 63:
            raise not_onnx("it ends within a number")
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % _MAX_VARINT, position
        shift += 7


def _varint(value: int) -> bytes:
    value %= _MAX_VARINT  # negative integers are written as their two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encoded(entry: Field) -> list[bytes | memoryview]:
    key = _varint(entry.number << 3 | entry.wire)
    if isinstance(entry.value, int):
        return [key + _varint(entry.value)]
    if entry.wire == _BYTES:
        return [key + _varint(len(entry.value)), entry.value]
    return [key, entry.value]


def not_onnx(found: str) -> RunFailed:
    """Return the failure of a file that is no ONNX file, or a damaged one.

    Args:
        found: What is wrong, for example "it ends within a field".
    """
    return RunFailed("user_model", f"the model is damaged or not a valid ONNX file: {found}")
