"""A closed loop of keep-alive clients on plain sockets: cheap enough not to be what is measured."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """What a loop saw.

    Attributes:
        latencies_s: One an answer.
        statuses: HTTP status by how often.
    """

    rate_per_s: float
    latencies_s: Sequence[float]
    statuses: dict[int, int]


def closed_loop(port: int, request: bytes, *, clients: int, requests: int) -> Load:
    """Send ``requests`` copies of one request by ``clients`` connections, each one at a time."""
    return asyncio.run(_closed_loop(port, request, clients, requests))


def post(path: str, body: bytes, token: str = "") -> bytes:
    """A POST of JSON as bytes on the wire."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
    )
    return (head + _authorization(token) + "\r\n").encode() + body


def get(path: str, token: str = "", cookie: str = "") -> bytes:
    """A GET as bytes on the wire; with a cookie, as a browser sends it."""
    browser = f"Cookie: {cookie}\r\nAccept-Encoding: gzip\r\n" if cookie else ""
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    return (head + browser + _authorization(token) + "\r\n").encode()


def _authorization(token: str) -> str:
    return f"Authorization: Bearer {token}\r\n" if token else ""


async def _closed_loop(port: int, request: bytes, clients: int, requests: int) -> Load:
    latencies: list[float] = []
    statuses: dict[int, int] = {}
    left = requests

    async def client() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while left > 0:
                left -= 1
                began = time.perf_counter()
                writer.write(request)
                status = await _answer(reader)
                latencies.append(time.perf_counter() - began)
                statuses[status] = statuses.get(status, 0) + 1
        finally:
            writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return Load(len(latencies) / (time.perf_counter() - began), latencies, statuses)


async def _answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    await reader.readexactly(length)
    return status
