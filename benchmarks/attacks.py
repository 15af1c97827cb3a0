"""What those who mean harm do to a server, each attack as a process of its own.

Everything comes from `ADDRESS`, so that limits per address do not reach those who are measured.
"""

import contextlib
import http.server
import json
import os
import resource
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import cycle
from pathlib import Path

from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.store import SqlStore

ADDRESS = "127.0.0.66"
PATIENCE_S = 10.0
"""For one answer; whoever attacks gives up then, and begins anew."""

SLOW_CONNECTIONS = 300
HALF_REQUESTS = 1_100
PENDING = 10_000
STREAMS, FOLLOWED_LOGS = 500, 100
LOOPS = 50
PARALLEL = 45
"""Requests of a few MiB at the same time."""
FILE_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Victim:
    """The server, and the token of the account that attacks it.

    Attributes:
        model: Name of a model that the account has uploaded.
        data_dir: Of the server; read and written by no attack but the one that needs a past.
    """

    port: int
    token: str
    model: str
    data_dir: str


Attack = Callable[[Victim, Callable[[], None]], None]
"""Attacks until it is killed; calls its second argument once the attack has its full force."""


def start(name: str, victim: Victim, ready: Callable[[], None]) -> None:
    """Run an attack in this process, below the priority of whom it attacks.

    An attacker has machines of its own; here it must not take the server's processor time.
    """
    os.nice(10)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ATTACKS[name](victim, ready)


def _connected(victim: Victim) -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", victim.port), PATIENCE_S, source_address=(ADDRESS, 0)
    )


def _head(victim: Victim, method: str, path: str, token: bool, kind: str, length: int) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    if token:
        lines.append(f"Authorization: Bearer {victim.token}")
    if length:
        lines += [f"Content-Type: {kind}", f"Content-Length: {length}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def send(
    victim: Victim,
    method: str,
    path: str,
    body: bytes = b"",
    kind: str = "application/json",
    token: bool = True,
) -> tuple[int, bytes]:
    """Make one request on a connection of its own; status 0 where there is no answer."""
    try:
        with _connected(victim) as connection:
            head = _head(victim, method, path, token, kind, len(body))
            with contextlib.suppress(OSError):  # the answer may come before the body is read
                connection.sendall(head + body)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
    except OSError:
        return 0, b""
    status, _, content = answer.partition(b"\r\n\r\n")
    return (int(status.split(b" ", 2)[1]), content) if status else (0, b"")


def submit(victim: Victim, **changes: object) -> str | None:
    """Submit a benchmark; its id, if it is accepted."""
    tree = {"model": victim.model, "runtime": "ort", "benchmark_type": "TYPE1", "target": "emuslow"}
    whole = {name: value for name, value in (tree | changes).items() if value is not None}
    status, answer = send(victim, "POST", "/v1/benchmarks", json.dumps(whole).encode())
    return str(json.loads(answer)["benchmark_id"]) if status == 202 else None


def _forever(count: int, work: Callable[[], object], pause_s: float = 0.0) -> None:
    def run() -> None:
        while True:
            work()
            time.sleep(pause_s)

    for _ in range(count):
        threading.Thread(target=run, daemon=True).start()


def _wait() -> None:
    while True:
        time.sleep(60)


def bombs(model: str) -> Iterator[tuple[str, str, bytes, str]]:
    """Bodies that cost more than they should: method, path, body, Content-Type."""
    yaml, form = "application/yaml", "multipart/form-data; boundary=b"
    merges = "a0: &a0 {x: 1}\n" + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
    )
    aliases = "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    tree = {"model": model, "runtime": "ort", "benchmark_type": "TYPE1", "target": "emufast"}
    patterns = [
        {"attribute": "daiedge.family", "operator": "regexp", "value": "(" * 40 + ".*" + ")*" * 40},
        *(
            {"attribute": "daiedge.family", "operator": "regexp", "value": "(.?){160}" * 3 + "x"}
            for _ in range(30)
        ),
    ]
    for path in ("/v1/benchmarks", "/v1/runs/x/progress"):
        yield "POST", path, merges.encode(), yaml
        yield "POST", path, aliases.encode(), yaml
        yield "POST", path, b"- " * 120_000, yaml
        yield "POST", path, b"{a: " * 60_000, yaml
        yield "POST", path, b"\n".join(b"k%d: 1" % n for n in range(25_000)), yaml
        yield "POST", path, b"[" * 1_000_000, "application/json"
        yield "POST", path, b'{"extra": [' + b"0," * 500_000 + b"0]}", "application/json"
        yield "POST", path, b'{"a":' * 180_000, "application/json"
        yield "POST", path, b'"' + b"\\u0000" * 170_000 + b'"', "application/json"
        yield "POST", path, b"9" * 1_000_000, "application/json"
    for changes in (
        {"constraints": patterns},
        {"cron": "59 23 30 2 *"},
        {"cron": "*/1,*/2,*/3 0-23 29 2 sun"},
        {"tags": ["x" * 64] * 20, "extra": {"x": "y" * 60_000}},
        {"input": {f"i{n}": {"shape": [2**28]} for n in range(64)}},
    ):
        yield "POST", "/v1/benchmarks?dry_run", json.dumps(tree | changes).encode(), ""
    matrix = {"target": ["emufast"] * 300, "runtime": ["ort"] * 300, "model": [model] * 300}
    yield "POST", "/v1/campaigns", json.dumps({"matrix": matrix, "description": tree}).encode(), ""
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="%d"\r\n\r\nx\r\n'
    yield "POST", "/v1/files", b"".join(part % n for n in range(20_000)) + b"--b--\r\n", form
    yield "POST", "/v1/files", b"--b\r\n" + b"X-%d: y\r\n" * 100_000 + b"\r\n--b--\r\n", form
    yield "POST", "/v1/files", b"--b\r\nX: " + b"y" * 2**21 + b"\r\n\r\n--b--\r\n", form
    yield "POST", "/v1/files", b"--b\r\n" * 300_000, form
    yield "POST", "/v1/files", b"--" + b"-" * 2**21, "multipart/form-data; boundary=" + "-" * 70
    tags = b"".join(b"tag=%d&" % n for n in range(5_000)).decode()
    yield "GET", "/v1/benchmarks?" + tags, b"", ""


def model_bombs() -> Iterator[bytes]:
    """ONNX files that cost a reader more than they should."""
    graph = b""
    for _ in range(60):  # graphs within graphs
        attribute = b"\x32" + _length(graph) + graph
        node = b"\x2a" + _length(attribute) + attribute
        graph = b"\x0a" + _length(node) + node
    yield b"\x08\x08\x3a" + _length(graph) + graph
    nodes = b"\x0a\x00" * 1_000_000  # empty nodes, two bytes each
    yield b"\x08\x08\x3a" + _length(nodes) + nodes
    huge = b"\x2a\x0c\x08" + b"\xff" * 8 + b"\x7f\x10\x01"  # a tensor of 2^63 elements
    yield b"\x08\x08\x3a" + _length(huge) + huge


def _length(data: bytes) -> bytes:
    value, out = len(data), bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _uploaded(victim: Victim, name: str, content: bytes) -> int:
    head = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = head.encode() + content + b"\r\n--b--\r\n"
    return send(victim, "POST", "/v1/files", body, "multipart/form-data; boundary=b")[0]


def _bomb(victim: Victim, ready: Callable[[], None]) -> None:
    """Parser bombs of strangers and of a submitter, and models that are bombs."""
    bodies = list(bombs(victim.model))
    names = []
    for number, content in enumerate(model_bombs()):
        names.append(f"bomb-{number}.onnx")
        _uploaded(victim, names[-1], content)
    turn, lock = (
        cycle([(body, token) for body in bodies for token in (False, True)]),
        threading.Lock(),
    )

    def throw() -> None:
        with lock:
            (method, path, body, kind), token = next(turn)
        send(victim, method, path, body, kind or "application/json", token)

    _forever(4, throw)
    models = cycle(names)
    _forever(1, lambda: submit(victim, model=next(models), target="emufast", max_retries=0), 2)
    ready()
    _wait()


def _drip(victim: Victim, ready: Callable[[], None]) -> None:
    """Uploads of a byte now and then, by strangers too; sources that send as slowly."""
    with _source() as url:
        for number in range(20):
            submit(victim, model=None, model_url=f"{url}/drip/{number}")
        slow: list[socket.socket] = []
        part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        ready_at = time.monotonic() + 2
        reported = False
        while True:
            while len(slow) < SLOW_CONNECTIONS:
                try:
                    connection = _connected(victim)
                    token = len(slow) % 2 == 0
                    kind = "multipart/form-data; boundary=b"
                    head = _head(victim, "POST", "/v1/files", token, kind, 10**9)
                    connection.sendall(head + part)
                    slow.append(connection)
                except OSError:
                    break
            if not reported and time.monotonic() > ready_at:
                reported = True
                ready()
            time.sleep(0.5)
            alive = []
            for connection in slow:
                try:
                    connection.sendall(b"x")
                    alive.append(connection)
                except OSError:
                    connection.close()
            slow = alive


def _half_requests(victim: Victim, ready: Callable[[], None]) -> None:
    """Connections that send half a head, opened again as soon as they are closed."""
    half = b"GET /livez HTTP/1.1\r\nHost: 127"
    reported = False
    with selectors.DefaultSelector() as open_ones:
        while True:
            missing = HALF_REQUESTS - len(open_ones.get_map())
            for _ in range(min(missing, 200)):
                try:
                    connection = _connected(victim)
                    connection.sendall(half)
                except OSError:
                    break
                connection.setblocking(False)
                open_ones.register(connection, selectors.EVENT_READ)
            if not reported and missing <= 200:
                reported = True
                ready()
            for key, _ in open_ones.select(0.1):
                open_ones.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]


def _pending(victim: Victim, ready: Callable[[], None]) -> None:
    """One user with 10,000 pending benchmarks, who goes on to submit, list and ask."""
    first = submit(victim)
    assert first is not None
    store = SqlStore(f"sqlite:///{victim.data_dir}/edgeyard.db")
    with store.read() as uow:
        model = uow.benchmarks.get(first)
    for start in range(0, PENDING, 500):
        with store.write() as uow:
            for number in range(start, start + 500):
                uow.benchmarks.add(
                    replace(
                        model,
                        benchmark_id=f"pending-{number}",
                        status=Status.PENDING,
                        submit_time=model.submit_time + timedelta(microseconds=number),
                    )
                )
    store.close()
    member = {"model": victim.model, "runtime": "ort", "benchmark_type": "TYPE1"}
    campaign = {"matrix": {"target": ["emufast", "emumid", "emuslow"]}, "description": member}
    body = json.dumps(campaign).encode()
    paths = cycle(
        [
            "/v1/benchmarks?limit=1000&total",
            "/v1/queue",
            "/metrics",
            "/v1/benchmarks/pending-9999/explanation?changes",
            "/v1/benchmarks/pending-9999",
        ]
    )
    _forever(2, lambda: send(victim, "GET", next(paths)))
    _forever(1, lambda: submit(victim))
    _forever(1, lambda: send(victim, "POST", "/v1/campaigns", body))
    ready()
    _wait()


def _streams(victim: Victim, ready: Callable[[], None]) -> None:
    """Many followed streams of events and logs, opened again when they are closed."""
    ids = [found for _ in range(5) if (found := submit(victim, target="rpi4b"))]
    running = submit(victim, nb_inference=1_000_000, user_time=800)
    until = time.monotonic() + 30
    while running is not None and time.monotonic() < until:
        _, shown = send(victim, "GET", f"/v1/benchmarks/{running}")
        if shown and json.loads(shown).get("status") == "running":
            break
        time.sleep(0.2)
    paths = cycle([f"/v1/benchmarks/{each}/events" for each in ids] or ["/v1/queue"])
    wanted = [next(paths) for _ in range(STREAMS)]
    wanted += [f"/v1/benchmarks/{running}/logs?follow=1"] * FOLLOWED_LOGS
    reported = False
    with selectors.DefaultSelector() as open_ones:
        while True:
            for path in wanted[:100]:
                request = _head(victim, "GET", path, True, "", 0)
                try:
                    connection = _connected(victim)
                    connection.sendall(request[:-2] + b"Accept: text/event-stream\r\n\r\n")
                except OSError:
                    break
                connection.setblocking(False)
                open_ones.register(connection, selectors.EVENT_READ, path)
                wanted.pop(0)
            if not reported and not wanted:
                reported = True
                ready()
            for key, _ in open_ones.select(0.1):
                assert isinstance(key.fileobj, socket.socket)
                try:
                    if key.fileobj.recv(65536):
                        continue
                except OSError:
                    pass
                open_ones.unregister(key.fileobj)
                key.fileobj.close()
                wanted.append(key.data)
            if not reported and len(wanted) < STREAMS // 2 and time.monotonic() > until:
                reported = True  # refused: that is an answer too
                ready()
            if wanted and reported:
                time.sleep(0.1)


def _redirects(victim: Victim, ready: Callable[[], None]) -> None:
    """Models whose URLs redirect for ever, to nowhere, and to themselves."""
    with _source() as url:
        kinds = cycle(["loop", "nowhere", "long"])

        def ask() -> None:
            submit(victim, model=None, model_url=f"{url}/{next(kinds)}/0", max_retries=0)

        for _ in range(LOOPS):
            ask()
        _forever(2, ask, 0.05)
        ready()
        _wait()


def _full_disk(victim: Victim, ready: Callable[[], None]) -> None:
    """Uploads until the disk takes no more, and then still more."""
    numbers = iter(range(10**9))
    refused = 0
    while refused < 3:
        content = os.urandom(FILE_BYTES)
        refused += _uploaded(victim, f"ballast-{next(numbers)}", content) not in (200, 201)
    _forever(2, lambda: _uploaded(victim, f"more-{next(numbers)}", os.urandom(FILE_BYTES)), 0.02)
    ready()
    _wait()


def _scenarios(victim: Victim, ready: Callable[[], None]) -> None:
    """Scenarios of a few MiB, of which most is nothing, from many connections at once."""
    head = b'{"name":"x","world":"nodes","duration_s":50,"nodes":{"nodes":['
    empty = head + b"{}," * 750_000 + b"{}]}}"
    lists = head.replace(b'"nodes":[', b'"jobs":[') + b"[]," * 750_000 + b"[]]}}"
    _send_at_once(victim, "POST", lambda _: "/v1/scenarios", cycle([empty, lists]), ready)


def _campaign_checks(victim: Victim, ready: Callable[[], None]) -> None:
    """Checks of the largest matrices, each member with patterns and inputs to check."""
    patterns = [
        {"attribute": "daiedge.family", "operator": "regexp", "value": f"({n}|.?){{40}}x"}
        for n in range(4)
    ]
    shared = {"benchmark_type": "TYPE1", "runtime": "ort", "constraints": patterns}
    shared["input"] = {f"i{n}": {"shape": [2, 3]} for n in range(64)}  # type: ignore[assignment]
    matrix = {
        "target": ["emufast", "emumid", "emuslow", "rpi4b"],
        "model": [f"model-{n}.onnx" for n in range(250)],
    }
    body = json.dumps({"matrix": matrix, "description": shared}).encode()
    _send_at_once(victim, "POST", lambda _: "/v1/campaigns/check", cycle([body]), ready)


def _importers(victim: Victim, ready: Callable[[], None]) -> None:
    """Imported logs as scenarios, and what simulations elsewhere measured, a few MiB each."""
    rows = [
        {"job_id": f"j{n}", "submit_s": float(n), "run_s": 10.5, "cpus": 1.0} for n in range(34_000)
    ]
    nodes = {"nodes": [{"count": 2, "cpu_cores": 48, "memory_mb": 1000}], "jobs": rows}
    log = {"name": "log", "world": "nodes", "duration_s": 50, "nodes": nodes}
    names = iter(range(10**9))
    tree = {"name": "of", "world": "nodes", "duration_s": 50, "nodes": {**nodes, "jobs": rows[:1]}}
    assert send(victim, "POST", "/v1/scenarios", json.dumps(tree).encode())[0] in (200, 201)
    metrics = {f"m{n}": n / 7 for n in range(40_000)}
    run = {"scenario": "of", "policy": "x", "seed": 1, "metrics": metrics}
    bodies = cycle([json.dumps(run).encode(), json.dumps(log).encode()])
    paths = ("/v1/scenarios", "/v1/simulations/import-{}")

    def path(body: bytes) -> str:
        return paths[body.startswith(b'{"scenario"')].format(next(names) % 50)

    _send_at_once(victim, None, path, bodies, ready)


def _send_at_once(
    victim: Victim,
    method: str | None,
    path: Callable[[bytes], str],
    bodies: Iterator[bytes],
    ready: Callable[[], None],
) -> None:
    """Keep `PARALLEL` requests under way; no method: PUT to simulations, POST to all else."""
    lock = threading.Lock()

    def throw() -> None:
        with lock:
            body = next(bodies)
            to = path(body)
        chosen = method or ("PUT" if to.startswith("/v1/simulations") else "POST")
        status, _ = send(victim, chosen, to, body)
        if status == 429:
            time.sleep(0.2)  # as its Retry-After says, but sooner

    _forever(PARALLEL, throw)
    time.sleep(2)
    ready()
    _wait()


class _Source(http.server.BaseHTTPRequestHandler):
    """A web server that never gives what it is asked for."""

    def do_GET(self) -> None:
        _, kind, number = ([*self.path.split("/"), "", ""])[:3]
        if kind == "drip":
            self.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            with contextlib.suppress(OSError):
                while True:
                    self.connection.sendall(b"x")
                    time.sleep(0.5)
            return
        self.send_response(302)
        following = int(number) + 1 if number.isdecimal() else 0
        if kind == "loop":
            self.send_header("Location", f"/loop/{following}")
        elif kind == "long":
            self.send_header("Location", f"/long/{following}" + "?" + "x" * 60_000)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def _source() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer((ADDRESS, 0), _Source)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{ADDRESS}:{server.server_address[1]}"


ATTACKS: dict[str, Attack] = {
    "bomb": _bomb,
    "drip": _drip,
    "half requests": _half_requests,
    "pending": _pending,
    "streams": _streams,
    "redirects": _redirects,
    "full disk": _full_disk,
    "scenarios": _scenarios,
    "campaign checks": _campaign_checks,
    "importers": _importers,
}

NAMES: Sequence[str] = tuple(ATTACKS)

LIMITED_DESCRIPTORS = {"half requests": 1024}
"""Attacks on a server that may open only so many files."""

SMALL_DISK_MIB = {"full disk": 192}
"""Attacks on a server whose data folder is a file system of this size."""


def wrapper(folder: Path, python: str, descriptors: int) -> Path:
    """Write a program that runs this Python with a limit on open files."""
    path = folder / "python-limited"
    path.write_text(f'#!/bin/sh\nulimit -n {descriptors}\nexec {python} "$@"\n')
    path.chmod(0o755)
    return path
