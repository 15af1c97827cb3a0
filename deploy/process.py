"""An Edgeyard server as a process of its own: for the demo, the benchmarks and the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeyard.testbed import LoopbackNomad, saved
from edgeyard.testbed.agent import free_port as free_port

TERMINAL = ("completed", "failed", "cancelled", "expired")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server.

    Attributes:
        token: Of its admin; "" for others.
    """

    url: str
    port: int
    process: subprocess.Popen[bytes]
    token: str = ""

    def call(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """One JSON call; a `RuntimeError` with the answer where it is not a 2xx."""
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
            with error:  # it holds the connection, which a killed server leaves half read
                text = error.read()[:2000]
                raise RuntimeError(f"{method} {path}: {error.code} {text!r}") from error

    def text(self, path: str) -> str:
        """A plain text answer."""
        request = urllib.request.Request(self.url + path)
        request.add_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def upload(self, path: Path) -> Mapping[str, Any]:
        """Upload one small file."""
        boundary = "edgeyard-file"
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; '
            f'filename="{path.name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
        ).encode()
        data = head + path.read_bytes() + f"\r\n--{boundary}--\r\n".encode()
        request = urllib.request.Request(self.url + "/v1/files", data=data, method="POST")
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", f"multipart/form-data; boundary={boundary}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def submit(self, description: Mapping[str, object]) -> str:
        """Submit a benchmark, by default of latency on onnxruntime; its id."""
        body = {"runtime": "ort", "benchmark_type": "TYPE1", **description}
        return str(self.call("POST", "/v1/benchmarks", body)["benchmark_id"])

    def show(self, benchmark_id: str) -> dict[str, Any]:
        """A benchmark as the API shows it."""
        found: dict[str, Any] = self.call("GET", f"/v1/benchmarks/{benchmark_id}")
        return found

    def report(self, benchmark_id: str) -> dict[str, Any]:
        """The report of a benchmark's first attempt that has one."""
        results = self.call("GET", f"/v1/benchmarks/{benchmark_id}/results")
        found: dict[str, Any] = results["reports"][0]["report"]
        return found

    def wait(
        self, benchmark_id: str, until: tuple[str, ...] = TERMINAL, timeout_s: float = 300.0
    ) -> dict[str, Any]:
        """Until the benchmark's status is one of these."""
        limit = time.monotonic() + timeout_s
        while time.monotonic() < limit:
            found = self.show(benchmark_id)
            if found["status"] in until:
                return found
            if found["status"] in TERMINAL:
                break
            time.sleep(0.05)
        raise RuntimeError(f"{benchmark_id} did not become {' or '.join(until)}: {found}")

    def end(self) -> int:
        """Stop it as an operator would; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError("the server did not stop within 60 s of SIGTERM") from None


def start(
    data_dir: Path,
    environment: Mapping[str, str] | None = None,
    port: int | None = None,
    ready: str = "/readyz",
    python: Path | None = None,
) -> Server:
    """``edgeyard up`` with its log next to the data folder; returns when it is ready.

    Args:
        data_dir: Made if need be.
        environment: Added to this process's.
        port: None: any free one.
        ready: What is to answer first; ``/livez`` where the cluster is not fit for work.
        python: Of the environment to run; None: this one's.

    Raises:
        RuntimeError: It ended, or was not ready in 60 s; with the end of its log.
    """
    port = port or free_port()
    log_path = data_dir.parent / f"{data_dir.name}.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [
                *(str(python or sys.executable), "-m", "edgeyard", "up"),
                *("--data-dir", str(data_dir), "--port", str(port)),
            ],
            stdout=log,
            stderr=log,
            env={**os.environ, "EDGEYARD_LOG_LEVEL": "warning", **(environment or {})},
        )
    try:
        await_ready(process, port, ready)
    except RuntimeError as error:
        process.kill()
        process.wait()
        raise RuntimeError(f"{error}\n{log_path.read_text()[-3000:]}") from None
    kept = data_dir / "admin.token"  # not where another server has made the admin
    token = kept.read_text().strip() if kept.exists() else ""
    return Server(f"http://127.0.0.1:{port}", port, process, token)


def on_nomad(nomad: LoopbackNomad, inventory: Path) -> dict[str, str]:
    """Settings of a server for a test bed's Nomad, with its least rights.

    Args:
        inventory: Path of the boards that it is to expect.
    """
    return {
        "EDGEYARD_DRIVER": "raw_exec",
        # The hosts are this machine.
        "EDGEYARD_RAW_EXEC_COMMAND": f"{sys.executable},-m,edgeyard.devices.runner",
        "EDGEYARD_INVENTORY": str(inventory),
        **in_cluster(address=nomad.address, token=nomad.token, namespace=nomad.namespace),
        "EDGEYARD_LOST_GRACE_S": "2",
    }


def in_cluster(**settings: object) -> dict[str, str]:
    """Return settings of the test bed's cluster as variables of the environment."""
    prefix = f"EDGEYARD_CLUSTERS__{saved.CLUSTER.upper()}__"
    return {f"{prefix}{name.upper()}": str(value) for name, value in settings.items()}


@contextmanager
def edgeyard(
    data_dir: Path,
    environment: Mapping[str, str] | None = None,
    *,
    python: Path | None = None,
) -> Iterator[Server]:
    """A server for the length of a ``with`` block; see `start` for arguments."""
    server = start(data_dir, environment, python=python)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end()


def await_ready(process: subprocess.Popen[bytes], port: int, path: str) -> None:
    """Until the server answers; raises RuntimeError if it ends or takes over 60 s."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2):
                return
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            time.sleep(0.05)
    raise RuntimeError("the server did not become ready in 60 s")
