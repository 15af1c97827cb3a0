"""Files that are ONNX models as far as the server looks into them, of any size."""

from __future__ import annotations


def a_model_file(size_bytes: int = 1500, fill: bytes = b"w") -> bytes:
    """The smallest model, an empty graph, with a description that makes it this large."""
    head, graph = b"\x08\x08", b"\x3a\x00"  # IR version 8; an empty graph
    room = size_bytes - len(head) - len(graph)
    for width in range(1, 6):
        text_bytes = room - 1 - width
        if text_bytes >= 0 and len(length := _varint(text_bytes)) == width:
            text = (fill * (text_bytes // len(fill) + 1))[:text_bytes]
            return head + b"\x32" + length + text + graph
    raise ValueError(f"no model has {size_bytes} bytes")


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(found + bytes([number]))
