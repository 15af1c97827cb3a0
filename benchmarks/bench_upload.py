"""2 GB up and down against a bare route that streams and hashes."""

import hashlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.servers import peer, resident_bytes
from benchmarks.tables import Row, median
from deploy.process import Server, edgeyard

SIZE_BYTES = 2 * 10**9
ROUNDS = 3
_CHUNK = 1 << 20


def run() -> list[Row]:
    """Up and down, ours and the peer's in turn."""
    with tempfile.TemporaryDirectory(prefix="edgeyard-bench-") as name:
        folder = Path(name)
        source = folder / "big.bin"
        digest = _make(source)
        (folder / "peer").mkdir()
        ours, theirs, growth = [], [], 0
        with (
            edgeyard(folder / "data") as server,
            peer("benchmarks.peers:app", PEER_FOLDER=str(folder / "peer")) as bare,
        ):
            _warm(server, folder)
            before = resident_bytes(server)
            with _peak(server) as peak:
                for _ in range(ROUNDS):
                    began = time.perf_counter()
                    file_id = _upload(server, source, digest)
                    _download(server.port, f"/v1/files/{file_id}/content", server.token)
                    ours.append(2 * SIZE_BYTES / (time.perf_counter() - began) / 1e6)
                    server.call("DELETE", f"/v1/files/{file_id}")
                    began = time.perf_counter()
                    _send(bare.port, "/files", source, b"", b"", "")
                    _download(bare.port, "/files", "")
                    theirs.append(2 * SIZE_BYTES / (time.perf_counter() - began) / 1e6)
            growth = max(peak) - before
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        return [
            Row(
                "memory growth",
                growth / 2**20,
                "MiB",
                note=f"anonymous memory of the server's processes, highest seen; {ROUNDS} x 2 GB "
                "up and down",
            ),
            Row(
                "throughput",
                median(ours),
                "MB/s",
                median(theirs),
                median(ratios),
                "peer: bare route that streams, hashes and syncs; 1 process, 1 connection each; "
                f"up and down together, {ROUNDS} rounds",
            ),
        ]


def _make(path: Path) -> str:
    digest = hashlib.sha256()
    block = os.urandom(_CHUNK)
    with path.open("wb") as out:
        left = SIZE_BYTES
        while left:
            chunk = (len(str(left)).to_bytes(2, "big") + block)[: min(left, _CHUNK)]
            out.write(chunk)
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()


def _warm(server: Server, folder: Path) -> None:
    small = folder / "small.bin"
    small.write_bytes(b"warm" * 100_000)
    server.upload(small)


def _upload(server: Server, source: Path, digest: str) -> str:
    boundary = "edgeyard-bench"
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="big.bin"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode()
    answer = _send(
        server.port, "/v1/files", source, head, f"\r\n--{boundary}--\r\n".encode(), server.token
    )
    assert digest.encode() in answer, answer[-500:]
    return answer.split(b'"file_id":"')[1].split(b'"')[0].decode()


def _send(port: int, path: str, source: Path, head: bytes, tail: bytes, token: str) -> bytes:
    kind = "multipart/form-data; boundary=edgeyard-bench" if head else "application/octet-stream"
    length = len(head) + source.stat().st_size + len(tail)
    request = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {length}\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port)) as connection, source.open("rb") as file:
        connection.sendall(request.encode() + head)
        connection.sendfile(file)
        connection.sendall(tail)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    assert answer.split(b" ", 2)[1] in (b"200", b"201"), answer[:500]
    return answer


def _download(port: int, path: str, token: str) -> None:
    request = (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    )
    total = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request.encode())
        while chunk := connection.recv(_CHUNK):
            total += len(chunk)
    assert total > SIZE_BYTES, total


@contextmanager
def _peak(server: Server) -> Iterator[list[int]]:
    """Collect the server's memory twenty times a second."""
    seen = [resident_bytes(server)]
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.05):
            seen.append(resident_bytes(server))

    thread = threading.Thread(target=watch, name="memory")
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
