"""Our server, and bare peers, as processes of their own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Server:
    """A running server.

    Attributes:
        token: Of its admin; "" for peers.
    """

    url: str
    port: int
    process: "subprocess.Popen[bytes]"
    token: str = ""

    def call(self, method: str, path: str, body: object = None, **headers: str) -> object:
        """One JSON call."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read()[:500]!r}") from error

    def upload(self, path: Path) -> Mapping[str, object]:
        """Upload one small file."""
        boundary = "edgeyard-bench"
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; '
            f'filename="{path.name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
        ).encode()
        data = head + path.read_bytes() + f"\r\n--{boundary}--\r\n".encode()
        request = urllib.request.Request(self.url + "/v1/files", data=data, method="POST")
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", f"multipart/form-data; boundary={boundary}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.loads(answer.read())
        assert isinstance(found, dict)
        return found

    def wait(self, benchmark_id: str, timeout_s: float = 300.0) -> Mapping[str, object]:
        """Until the benchmark is at its end."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            found = self.call("GET", f"/v1/benchmarks/{benchmark_id}")
            assert isinstance(found, dict)
            if found["status"] in ("completed", "failed", "cancelled", "expired"):
                return found
            time.sleep(0.05)
        raise RuntimeError(f"{benchmark_id} did not end in {timeout_s} s")

    def resident_bytes(self) -> int:
        """Memory of the process and its children that are servers, by /proc (RssAnon)."""
        return sum(
            _anonymous_bytes(pid) for pid in (self.process.pid, *_children(self.process.pid))
        )


@contextmanager
def edgeyard(data_dir: Path, **environment: str) -> Iterator[Server]:
    """``edgeyard up`` on a free port."""
    port = free_port()
    command = [sys.executable, "-m", "edgeyard", "up", "--data-dir", str(data_dir)]
    log = (data_dir.parent / f"{data_dir.name}.log").open("ab")
    process = subprocess.Popen(
        [*command, "--port", str(port)],
        stdout=log,
        stderr=log,
        env={**os.environ, "EDGEYARD_LOG_LEVEL": "warning", **environment},
    )
    try:
        _ready(process, port, "/readyz")
        token = (data_dir / "admin.token").read_text().strip()
        yield Server(f"http://127.0.0.1:{port}", port, process, token)
    finally:
        _end(process)
        log.close()


@contextmanager
def peer(app: str, **environment: str) -> Iterator[Server]:
    """A bare app by uvicorn, started as ours is: one process, no access log."""
    port = free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "uvicorn", app, "--port", str(port)),
            *("--no-access-log", "--log-level", "warning"),
        ],
        env={**os.environ, **environment},
    )
    try:
        _ready(process, port, "/livez")
        yield Server(f"http://127.0.0.1:{port}", port, process)
    finally:
        _end(process)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ready(process: "subprocess.Popen[bytes]", port: int, path: str) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("the server did not become ready in 60 s")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _anonymous_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
