"""kill -9 of the server, anywhere: no benchmark is lost, none runs twice, none is half-written."""

import contextlib
import http.client
import multiprocessing
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import cast

import pytest

from deploy.process import Server, free_port, start
from tests.acceptance.test_main_path import description
from tests.acceptance.web import file_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

MOST_FAILPOINTS = 400


def _attempts(shown: Mapping[str, object]) -> list[Mapping[str, object]]:
    attempts = shown["attempts"]
    assert isinstance(attempts, list)
    return attempts


def test_a_killed_server_takes_its_tasks_with_it_and_tries_them_again(
    tmp_path: Path, squeezenet: Path
) -> None:
    server = start(tmp_path / "data")
    stored = server.upload(squeezenet)
    made = server.call(
        "POST",
        "/v1/benchmarks",
        description(str(stored["name"]), nb_inference=500, max_retries=0),
    )
    assert isinstance(made, dict)
    benchmark_id = str(made["benchmark_id"])
    server.wait(benchmark_id, ("running",))
    tasks = _tasks(tmp_path)
    assert tasks
    server.process.kill()
    server.process.wait()
    limit = time.monotonic() + 10
    while _tasks(tmp_path) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not _tasks(tmp_path), "tasks outlived the server"

    server = start(tmp_path / "data")
    try:
        ended = server.wait(benchmark_id)
        assert ended["status"] == "completed", ended
        assert [attempt["state"] for attempt in _attempts(ended)] == ["ended", "ended"]
        assert len(_reports(server, benchmark_id)) == 1
    finally:
        assert server.end() == 0


def test_a_clean_restart_changes_nothing(tmp_path: Path, squeezenet: Path) -> None:
    server = start(tmp_path / "data")
    stored = server.upload(squeezenet)
    made = server.call("POST", "/v1/benchmarks", description(str(stored["name"]), nb_inference=5))
    assert isinstance(made, dict)
    before = server.wait(str(made["benchmark_id"]))
    began = time.monotonic()
    assert server.end() == 0
    assert time.monotonic() - began < 10
    server = start(tmp_path / "data")
    try:
        assert server.show(str(made["benchmark_id"])) == _moved(before, server)
    finally:
        server.end()


@pytest.mark.parametrize("half", ["odd", "even"])
def test_the_server_may_die_at_every_step(
    half: str,
    tmp_path: Path,
    squeezenet: Path,
    record_property: Callable[[str, object], None],
    enter: Callable[[contextlib.AbstractContextManager[str]], str],
) -> None:
    """Kill it at the n-th commit, call or file step of its life: n = 1, 2, ... until none fires.

    Each n has a folder of its own: a first life that dies there, and a second that repairs it.
    """
    fired = 0
    web = enter(file_server(squeezenet.parent))
    for number in range(1 if half == "odd" else 2, MOST_FAILPOINTS, 2):
        folder = tmp_path / f"at-{number}"
        folder.mkdir()
        if not _dies_at(number, folder, squeezenet, f"{web}/{squeezenet.name}"):
            break
        fired += 1
        shutil.rmtree(folder)
    else:
        pytest.fail(f"failpoints still fire after {MOST_FAILPOINTS}")
    record_property("failpoints fired", fired)
    assert fired > 30


def _dies_at(number: int, folder: Path, model: Path, url: str) -> bool:
    """One life with a death at step ``number`` and one without; whether the death came."""
    key = f"submission-{number}"
    benchmark_id = None
    server = None
    with _process(folder / "data", number) as life:
        try:
            server = life.ready()
            server.upload(model)
            made = _submit(server, url, key)
            benchmark_id = str(made["benchmark_id"])
            server.wait(benchmark_id, timeout_s=60)
        except (RuntimeError, OSError, http.client.HTTPException):
            life.process.join(10)
        died = life.end() == 137
    with _process(folder / "data", 0) as life:
        server = life.ready()
        # The client repeats what it has no answer for, under the same key.
        server.upload(model)
        again = _submit(server, url, key)
        assert benchmark_id in (None, again["benchmark_id"]), number
        benchmark_id = str(again["benchmark_id"])
        ended = server.wait(benchmark_id, timeout_s=60)
        assert ended["status"] == "completed", (number, ended)
        listed = server.call("GET", "/v1/benchmarks?total=true")
        assert isinstance(listed, dict)
        assert listed["total"] == 1, (number, listed)
        good = [a for a in _attempts(ended) if a["state"] == "ended" and a["failure"] is None]
        assert len(good) == 1, (number, ended)
        assert len(_reports(server, benchmark_id)) == 1, number
        _all_boards_are_free(server, number)
        assert life.end() == 0
    return died


def _all_boards_are_free(server: Server, number: int) -> None:
    """Soon: what is shown of the boards is as old as the last look at the cluster."""
    limit = time.monotonic() + 10
    while True:
        boards = server.call("GET", "/v1/boards")
        assert isinstance(boards, dict)
        if all(board["state"] != "busy" for board in boards["items"]):
            return
        assert time.monotonic() < limit, (number, boards)
        time.sleep(0.1)


@dataclass
class _Life:
    """A server in a process of its own, forked from one that has imported everything."""

    process: BaseProcess
    data_dir: Path
    port: int

    def ready(self) -> Server:
        until = time.monotonic() + 30
        while self.process.is_alive() and time.monotonic() < until:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2).close()
            except OSError:
                time.sleep(0.02)
                continue
            token = (self.data_dir / "admin.token").read_text().strip()
            return Server(f"http://127.0.0.1:{self.port}", self.port, _no_process(), token)
        raise RuntimeError(f"not ready: exit status {self.process.exitcode}")

    def end(self) -> int | None:
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(20)
        return self.process.exitcode


@contextlib.contextmanager
def _process(data_dir: Path, failpoint: int) -> Iterator[_Life]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["edgeyard.benchmark_api.main"])
    port = free_port()
    process = context.Process(target=_serve, args=(data_dir, port, failpoint))
    process.start()
    try:
        yield _Life(process, data_dir, port)
    finally:
        process.kill()
        process.join()


def _serve(data_dir: Path, port: int, failpoint: int) -> None:
    from edgeyard import failpoints
    from edgeyard.benchmark_api.main import serve

    log = os.open(data_dir.parent / "server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= {"EDGEYARD_LOG_LEVEL": "warning", "EDGEYARD_ALLOW_HOSTS": "127.0.0.1"}
    if failpoint:
        failpoints.arm(failpoint)
    raise SystemExit(serve(data_dir, port))


def _no_process() -> "subprocess.Popen[bytes]":
    """The server's process is the test's to end, not the handle's."""
    return cast("subprocess.Popen[bytes]", None)


def _submit(server: Server, url: str, key: str) -> Mapping[str, object]:
    """A model that the server has to fetch: a further way on which it may die."""
    made = server.call(
        "POST",
        "/v1/benchmarks",
        description("net.onnx", model_url=url, nb_inference=5, max_retries=0),
        Idempotency_Key=key,
    )
    assert isinstance(made, dict)
    return made


def _reports(server: Server, benchmark_id: str) -> list[object]:
    results = server.call("GET", f"/v1/benchmarks/{benchmark_id}/results")
    assert isinstance(results, dict)
    reports = results["reports"]
    assert isinstance(reports, list)
    return [each for each in reports if each["report"]["status"] == "ok"]


def _moved(shown: dict[str, object], server: Server) -> dict[str, object]:
    """The same benchmark, its links on the port of another server."""
    import json
    import re

    text = re.sub(r"http://127\.0\.0\.1:\d+", server.url, json.dumps(shown))
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def _tasks(folder: Path) -> list[int]:
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            if os.readlink(f"/proc/{pid}/cwd").startswith(str(folder / "data")):
                found.append(pid)
        except OSError:
            continue
    return found
