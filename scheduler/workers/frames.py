"""Messages between the server and a worker.

A frame is a kind (one byte) and a length (eight bytes, little-endian), then that many bytes. What
the server sends is pickled: the worker may trust it. What a worker answers is never unpickled: it
is JSON text, or bare float32 numbers, of a length that is bounded beforehand.
"""

from __future__ import annotations

import pickle
import socket
import struct
import time
from enum import IntEnum

_HEAD = struct.Struct("<BQ")
_COUNT = struct.Struct("<Q")

MAX_TEXT_BYTES = 65_536


class Frame(IntEnum):
    """The kind of a message."""

    HELLO = 0  # worker: JSON, what the scorer says of itself
    ASK = 1  # server: pickled batch and pairs
    SCORES = 2  # worker: float32, little-endian
    FAILED = 3  # worker: what its scorer raised, as text


class BrokenFrameError(Exception):
    """The other side violates the protocol."""


def send(link: socket.socket, kind: Frame, *parts: bytes | memoryview) -> None:
    """Send one frame.

    Raises:
        TimeoutError: Not within the time-out that the socket has.
        OSError: The other side is gone.
    """
    size = sum(len(part) for part in parts)
    link.sendall(_HEAD.pack(kind, size))
    for part in parts:
        link.sendall(part)


def receive(
    link: socket.socket, *, max_bytes: int, until_s: float | None = None
) -> tuple[Frame, bytearray]:
    """Receive the next frame.

    Args:
        link: The connection.
        max_bytes: A longer one is refused, unread.
        until_s: Of ``time.monotonic()``; None: no limit.

    Raises:
        TimeoutError: There was none in time.
        BrokenFrameError: It is too long, or of no known kind.
        EOFError: The other side is gone.
    """
    kind, size = _HEAD.unpack(_exactly(link, _HEAD.size, until_s))
    if size > max_bytes:
        raise BrokenFrameError(f"a message of {size} bytes where {max_bytes} are the most")
    try:
        known = Frame(kind)
    except ValueError:
        raise BrokenFrameError(f"a message of kind {kind}") from None
    return known, _exactly(link, size, until_s)


def pickled(value: object) -> list[bytes | memoryview]:
    """Pickle a value as parts of a frame, without copying arrays (protocol 5, PEP 574)."""
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    raws = [buffer.raw() for buffer in buffers]
    sizes = [len(body), *(len(raw) for raw in raws)]
    head = _COUNT.pack(len(sizes)) + b"".join(_COUNT.pack(size) for size in sizes)
    return [head, body, *raws]


def unpickled(data: bytearray) -> object:
    """Restore a value of `pickled`. Only for workers, which trust their server."""
    view = memoryview(data)
    (count,) = _COUNT.unpack_from(view)
    start = _COUNT.size * (count + 1)
    parts: list[memoryview] = []
    for (size,) in _COUNT.iter_unpack(view[_COUNT.size : start]):
        parts.append(view[start : start + size])
        start += size
    return pickle.loads(parts[0], buffers=parts[1:])


def _exactly(link: socket.socket, size: int, until_s: float | None) -> bytearray:
    data = bytearray(size)
    got = 0
    while got < size:
        if until_s is not None:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            link.settimeout(left_s)
        count = link.recv_into(memoryview(data)[got:])
        if not count:
            raise EOFError
        got += count
    return data
