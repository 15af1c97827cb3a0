"""kill -9 of the server, anywhere: no benchmark is lost, none runs twice, none is half-written."""

import contextlib
import http.client
import os
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from deploy.process import Server, start
from tests.acceptance.lives import a_life, attempts_of, good_reports
from tests.acceptance.test_main_path import description
from tests.acceptance.web import file_server
from tests.builders.networks import blobs, gemm, saved

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

MAX_FAILPOINTS = 400


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
    benchmark_id = str(made["benchmark_id"])
    server.wait(benchmark_id, ("running",))
    tasks = _tasks(tmp_path)
    assert tasks
    server.process.kill()
    server.process.wait()
    limit = time.monotonic() + 60
    while _tasks(tmp_path) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not _tasks(tmp_path), "tasks outlived the server"

    server = start(tmp_path / "data")
    try:
        ended = server.wait(benchmark_id)
        assert ended["status"] == "completed", ended
        assert [attempt["state"] for attempt in attempts_of(ended)] == ["ended", "ended"]
        assert len(good_reports(server, benchmark_id)) == 1
    finally:
        assert server.end() == 0


def test_a_clean_restart_changes_nothing(tmp_path: Path, squeezenet: Path) -> None:
    server = start(tmp_path / "data")
    stored = server.upload(squeezenet)
    made = server.call("POST", "/v1/benchmarks", description(str(stored["name"]), nb_inference=5))
    before = server.wait(str(made["benchmark_id"]))
    began = time.monotonic()
    assert server.end() == 0
    assert time.monotonic() - began < 10
    server = start(tmp_path / "data")
    try:
        after = server.show(str(made["benchmark_id"]))
        # how old the cluster's answer is that this one rests on
        assert after.pop("age_s") < 60.0
        del before["age_s"]
        assert after == _moved(before, server)
    finally:
        server.end()


@pytest.mark.parametrize("half", ["odd", "even"])
def test_the_server_may_die_at_every_step(
    half: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    enter: Callable[[contextlib.AbstractContextManager[str]], str],
) -> None:
    """Kill it at the n-th commit, call or file step of its life: n = 1, 2, ... until none fires.

    Each n has a folder of its own: a first life that dies there, and a second that repairs it. The
    benchmark measures the accuracy of a small network: its task is launched once, which latencies
    are not. Each half goes through two rows of steps side by side: a server that starts or ends
    mostly waits.
    """
    model = saved(gemm(), tmp_path)
    x, y = blobs(rows=8)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    web = enter(file_server(tmp_path))

    def fired_from(first: int) -> int:
        for count, number in enumerate(range(first, MAX_FAILPOINTS, 4)):
            folder = tmp_path / f"at-{number}"
            folder.mkdir()
            if not _dies_at(number, folder, tmp_path / "data.npz", f"{web}/{model.name}"):
                return count
            shutil.rmtree(folder)
        raise AssertionError(f"failpoints still fire after {MAX_FAILPOINTS}")

    with ThreadPoolExecutor(2, "deaths") as rows:
        fired = sum(rows.map(fired_from, (1, 3) if half == "odd" else (2, 4)))
    record_property("failpoints fired", fired)
    assert fired > 30


def _dies_at(number: int, folder: Path, dataset: Path, url: str) -> bool:
    """One life with a death at step ``number`` and one without; whether the death came."""
    key = f"submission-{number}"
    benchmark_id = None
    server = None
    with a_life(folder / "data", number) as life:
        try:
            server = life.ready()
            server.upload(dataset)
            made = _submit(server, url, key)
            benchmark_id = str(made["benchmark_id"])
            server.wait(benchmark_id)
        except (RuntimeError, OSError, http.client.HTTPException):
            life.wait(60)
        died = life.end() == 137
    with a_life(folder / "data") as life:
        server = life.ready()
        # The client repeats what it has no answer for, under the same key.
        server.upload(dataset)
        again = _submit(server, url, key)
        assert benchmark_id in (None, again["benchmark_id"]), number
        benchmark_id = str(again["benchmark_id"])
        ended = server.wait(benchmark_id)
        assert ended["status"] == "completed", (number, ended)
        listed = server.call("GET", "/v1/benchmarks?total=true")
        assert listed["total"] == 1, (number, listed)
        good = [a for a in attempts_of(ended) if a["state"] == "ended" and a["failure"] is None]
        assert len(good) == 1, (number, ended)
        assert len(good_reports(server, benchmark_id)) == 1, number
        _all_boards_are_free(server, number)
        assert life.end() == 0
    return died


def _all_boards_are_free(server: Server, number: int) -> None:
    """Soon: what is shown of the boards is as old as the last look at the cluster."""
    limit = time.monotonic() + 60
    while True:
        boards = server.call("GET", "/v1/boards")
        if all(board["state"] != "busy" for board in boards["items"]):
            return
        assert time.monotonic() < limit, (number, boards)
        time.sleep(0.1)


def _submit(server: Server, url: str, key: str) -> Mapping[str, object]:
    """A model that the server has to fetch: a further way on which it may die."""
    made: Mapping[str, object] = server.call(
        "POST",
        "/v1/benchmarks",
        description(
            "net.onnx",
            model_url=url,
            benchmark_type="TYPE2",
            dataset="data.npz",
            nb_inference=None,
            max_retries=0,
        ),
        Idempotency_Key=key,
    )
    return made


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
