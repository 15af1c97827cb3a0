"""What takes long of one user keeps no other waiting, and fills no memory."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeyard.benchmark_api.routes import campaigns
from edgeyard.simulator import routes
from tests.builders.api import MODEL, Api, running

pytestmark = pytest.mark.one_database("what is counted is in memory")

PLACES = 3
SCENARIO = {
    "name": "small",
    "world": "nodes",
    "duration_s": 50,
    "nodes": {
        "nodes": [{"count": 2, "cpu_cores": 48, "memory_mb": 1000}],
        "jobs": [{"job_id": "j", "submit_s": 0, "run_s": 1, "cpus": 1}],
    },
}
DESCRIPTION: dict[str, object] = {
    "model": "model.onnx",
    "runtime": "ort",
    "benchmark_type": "TYPE1",
}
MATRIX = {"matrix": {"target": ["rpi4b"]}, "description": DESCRIPTION}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("heavy"), heavy_requests_per_user=PLACES) as found:
        for who in ("alice", "bob"):
            found.upload(who=who)
        yield found


class Gate:
    """Stops work in its middle until it is opened."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self._open = threading.Event()
        self._lock = threading.Lock()

    def around(self, work: Callable[..., Any], whose: str) -> Callable[..., Any]:
        """The work, which waits at the gate if it is of this user's."""

        def gated(*given: Any, **more: Any) -> Any:
            callers = [each.user_id for each in given if hasattr(each, "user_id")]
            if whose in callers:
                with self._lock:
                    self.inside += 1
                    self.most = max(self.most, self.inside)
                try:
                    assert self._open.wait(60)
                finally:
                    with self._lock:
                        self.inside -= 1
            return work(*given, **more)

        return gated

    def open(self) -> None:
        self._open.set()


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def send(api: Api, who: str, path: str, body: object) -> httpx.Response:
    """One request on a connection of its own."""
    method = "PUT" if path.startswith("/v1/simulations/") else "POST"
    headers = {"Authorization": f"Bearer {api.tokens[who]}"}
    return httpx.request(
        method, api.url + path, json=body, headers=headers, timeout=60, verify=False
    )


RUN = {"scenario": "small", "policy": "default", "seed": 1}
HEAVY = [
    (routes, "_add", "/v1/scenarios", SCENARIO),
    (routes, "_save", "/v1/simulations/run-1", RUN),
    (campaigns, "_submit", "/v1/campaigns?dry_run", MATRIX),
    (campaigns, "_check_matrix", "/v1/campaigns/check", MATRIX),
]


@pytest.mark.parametrize(("module", "name", "path", "body"), HEAVY)
def test_one_users_heavy_work_keeps_nobody_waiting(
    api: Api, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, path: str, body: object
) -> None:
    assert send(api, "alice", "/v1/scenarios", SCENARIO).status_code in (200, 201)
    gate = Gate()
    monkeypatch.setattr(module, name, gate.around(getattr(module, name), "alice"))
    with ThreadPoolExecutor(45) as pool:
        flood: list[Future[httpx.Response]] = [
            pool.submit(send, api, "alice", path, body) for _ in range(45)
        ]
        until(lambda: sum(each.done() for each in flood) == 45 - PLACES)
        held = [each for each in flood if not each.done()]
        answers = [each.result() for each in flood if each not in held]
        assert {each.status_code for each in answers} == {429}
        assert {each.headers["retry-after"] for each in answers} == {"2"}
        assert "heavy_requests_per_user" in answers[0].json()["detail"]
        for who in ("alice", "bob"):  # what is not heavy has threads of its own
            assert api.as_(who).get("/v1/files").status_code == 200
            assert api.as_(who).post("/v1/files", files={"file": ("m.onnx", MODEL)}).is_success
        assert api.as_("bob").get("/readyz").status_code == 200
        own = path.replace("run-1", "run-of-bob")
        assert send(api, "bob", own, body).is_success  # and others have their turn
        gate.open()
        done = [each.result() for each in held]
    assert sum(each.is_success for each in done) == PLACES
    assert gate.most == 1
    assert send(api, "alice", path, body).is_success


MANY = {f"k{number}": number for number in range(30_000)}
"""Values of a body that is no megabyte, and takes its thread for a while."""


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/benchmarks", DESCRIPTION),
        ("/v1/benchmarks/check", DESCRIPTION),
        ("/v1/tokens", {}),
        ("/v1/files/names", {}),
    ],
)
def test_bodies_of_many_values_are_for_what_is_heavy_alone(
    api: Api, path: str, more: dict[str, object]
) -> None:
    refused = send(api, "alice", path, {**more, "extra": MANY})
    assert refused.status_code == 422
    assert "too many values" in refused.text
    checked = {**MATRIX, "description": {**DESCRIPTION, "extra": MANY}}
    answer = send(api, "alice", "/v1/campaigns/check", checked)
    assert "is too large" in answer.text  # its values were read


@contextmanager
def half_sent(api: Api, who: str, size_bytes: int) -> Iterator[socket.socket]:
    """A scenario of which all but the last byte has been sent."""
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(
            f"POST /v1/scenarios HTTP/1.1\r\nHost: {host}\r\nContent-Length: {size_bytes}\r\n"
            f"Authorization: Bearer {api.tokens[who]}\r\n"
            "Content-Type: application/json\r\n\r\n".encode()
        )
        connection.sendall(b" " * (size_bytes - 1))
        yield connection


def test_bodies_of_one_user_take_no_more_memory_than_they_may(tmp_path: Path) -> None:
    with running(tmp_path, open_body_bytes_per_user=2**20) as api, ExitStack() as stack:

        def held() -> bool:
            stack.enter_context(half_sent(api, "alice", 2**19))
            answer = send(api, "alice", "/v1/scenarios", {**SCENARIO, "description": "x" * 2**19})
            return answer.status_code == 429 and "open_body_bytes_per_user" in answer.text

        until(held)
        assert api.as_().get("/v1/me").status_code == 200
        large = {**SCENARIO, "description": "x" * 2**19}
        assert send(api, "bob", "/v1/scenarios", large).is_success
        stack.close()
        until(lambda: send(api, "alice", "/v1/scenarios", large).is_success)
        beyond = {**SCENARIO, "description": "y" * 2**21}  # a single one has its own limit
        assert send(api, "alice", "/v1/scenarios", beyond).is_success


def test_a_scenario_of_nothing_is_refused_before_it_is_read(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MAX_OBJECTS", 50)
    read = []
    monkeypatch.setattr(routes, "parse_object", lambda *given: read.append(given))
    tree = json.loads(json.dumps(SCENARIO))
    tree["nodes"]["nodes"] *= 60
    answer = send(api, "alice", "/v1/scenarios", tree)
    assert answer.status_code == 422, answer.text
    assert "50 of them objects" in answer.text
    assert read == []
