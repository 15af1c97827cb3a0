"""How long others wait while somebody attacks the server: ``/livez``, and another user's submit."""

import json
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np

from benchmarks import attacks
from benchmarks.models import light
from benchmarks.tables import Row
from deploy.process import Server, edgeyard

QUIET_S = 10.0
ATTACK_S = 20.0
READY_S = 180.0
"""For an attack to get to its full force."""
LIVEZ_PAUSE_S, SUBMIT_PAUSE_S = 0.03, 0.1
PATIENCE_S = 10.0
"""No answer by then counts as one after so long."""


def run() -> list[Row]:
    """Each attack on a server of its own, after the same server without it."""
    livez: list[Row] = []
    submit: list[Row] = []
    for name in attacks.NAMES:
        with tempfile.TemporaryDirectory(prefix="edgeyard-abuse-") as folder:
            calm, attacked, peak_mib = _measured(name, Path(folder))
        peer = "peer: the same server before; a connection of its own each"
        rows = (("livez", livez), ("other user submit", submit))
        for (title, into), ours, before in zip(rows, attacked, calm, strict=True):
            into.append(
                Row(
                    f"{title} p99 {name}",
                    ours.p99_ms,
                    "ms",
                    before.p99_ms,
                    ours.p99_ms / before.p99_ms,
                    f"{peer}; {len(ours.latencies_s)} answers, slowest {ours.slowest_ms:.0f} ms, "
                    f"others than 200 and 202: {ours.failed}; "
                    f"the server's memory: up to {peak_mib:.0f} MiB",
                )
            )
    return [*livez, *submit]


@dataclass
class Latencies:
    """What one kind of caller waited.

    Attributes:
        failed: Answers that were refusals, or did not come.
    """

    latencies_s: list[float] = field(default_factory=list)
    failed: int = 0

    @property
    def p99_ms(self) -> float:
        """In ms."""
        return float(np.quantile(self.latencies_s, 0.99)) * 1000

    @property
    def slowest_ms(self) -> float:
        """In ms."""
        return max(self.latencies_s) * 1000


def _measured(
    name: str, folder: Path
) -> tuple[tuple[Latencies, Latencies], tuple[Latencies, Latencies], float]:
    limit = attacks.LIMITED_DESCRIPTORS.get(name)
    python = None if limit is None else attacks.wrapper(folder, sys.executable, limit)
    environment = {"EDGEYARD_ALLOW_HOSTS": f"{attacks.ADDRESS}/32"}
    with (
        _data_dir(folder, attacks.SMALL_DISK_MIB.get(name)) as data_dir,
        edgeyard(data_dir, environment, python=python) as server,
    ):
        attacker, other = _account(server, "mallory"), _account(server, "bob")
        model = attacker.upload(light("squeezenet"))
        other.upload(light("squeezenet"))
        _measure_latencies(other, 2.0)  # warms it up
        calm = _measure_latencies(other, QUIET_S)
        victim = attacks.Victim(
            server.port, attacker.token, str(model["name"]), str(data_dir.resolve())
        )
        with _attack(name, victim):
            attacked = _measure_latencies(other, ATTACK_S)
        peak_mib = _peak_mib(server)
    return calm, attacked, peak_mib


def _peak_mib(server: Server) -> float:
    """The most memory that the server's process has held (VmHWM)."""
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel states no VmHWM")


def _account(server: Server, user_id: str) -> Server:
    """The server as a new user sees it."""
    server.call("POST", "/v1/users", {"user_id": user_id})
    made = server.call("POST", "/v1/tokens", {"user_id": user_id})
    return Server(server.url, server.port, server.process, str(made["token"]))


@contextmanager
def _data_dir(folder: Path, size_mib: int | None) -> Iterator[Path]:
    """The folder of the server's data; on a file system of its own where a size is given."""
    data_dir = folder / "data"
    if size_mib is None:
        yield data_dir
        return
    data_dir.mkdir()
    size = f"size={size_mib}m,mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(data_dir)], check=True)
    try:
        yield data_dir
    finally:
        subprocess.run(["umount", "-l", str(data_dir)], check=True)


@contextmanager
def _attack(name: str, victim: attacks.Victim) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_run, args=(name, victim, ready), daemon=True)
    process.start()
    try:
        until = time.monotonic() + READY_S
        while not ready.wait(0.2):
            if not process.is_alive():
                raise RuntimeError(f"the attack {name!r} ended before it began")
            if time.monotonic() > until:
                raise RuntimeError(f"the attack {name!r} was not ready in {READY_S:g} s")
        yield
        assert process.is_alive(), f"the attack {name!r} ended too early"
    finally:
        process.kill()
        process.join()


def _run(name: str, victim: attacks.Victim, ready: Event) -> None:
    attacks.start(name, victim, ready.set)


def _measure_latencies(other: Server, seconds: float) -> tuple[Latencies, Latencies]:
    """How long ``/livez`` and submissions of a user who does nothing bad take."""
    body = json.dumps(
        {
            "model": "light_squeezenet.onnx",
            "runtime": "ort",
            "benchmark_type": "TYPE1",
            "target": "rpi4b",
        }
    ).encode()
    submit = (
        "POST /v1/benchmarks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {other.token}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + body
    livez = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    found = Latencies(), Latencies()
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_ask, args=(other.port, request, status, pause_s, until, waits))
        for request, status, pause_s, waits in (
            (livez, 200, LIVEZ_PAUSE_S, found[0]),
            (submit, 202, SUBMIT_PAUSE_S, found[1]),
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _ask(
    port: int, request: bytes, wanted: int, pause_s: float, until: float, waits: Latencies
) -> None:
    while time.monotonic() < until:
        began = time.perf_counter()
        status = 0
        try:
            with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
                connection.sendall(request)
                answer = b""
                while chunk := connection.recv(65536):
                    answer += chunk
            status = int(answer.split(b" ", 2)[1]) if answer else 0
        except OSError:
            pass
        took_s = time.perf_counter() - began
        # A refusal is quick, but no answer to what was asked for.
        waits.latencies_s.append(took_s if status == wanted else PATIENCE_S)
        waits.failed += status != wanted
        time.sleep(pause_s)
