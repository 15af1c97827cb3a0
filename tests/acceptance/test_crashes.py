"""kill -9 of the server, anywhere: no benchmark is lost, none runs twice, none is half-written."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from deploy.process import Server, free_port, start
from tests.acceptance.test_main_path import description

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


def test_the_server_may_die_at_every_step(
    tmp_path: Path, squeezenet: Path, record_property: Callable[[str, object], None]
) -> None:
    """Life after life on one data folder, the n-th killed at its n-th commit, call or file step.

    A life repairs what the last one left, takes a submission (repeated under its key until it is
    answered), runs it to its end and stops cleanly; the first that nothing kills ends the test.
    """
    port = free_port()
    submitted: list[str] = []
    fired = 0
    for number in range(1, MOST_FAILPOINTS):
        if not _life(number, tmp_path / "data", port, squeezenet, submitted):
            break
        fired += 1
    else:
        pytest.fail(f"failpoints still fire after {MOST_FAILPOINTS}")
    record_property("failpoints fired", fired)
    assert fired > 50
    server = start(tmp_path / "data", {}, port)
    try:
        _nothing_was_lost_or_done_twice(server, submitted)
    finally:
        assert server.end() == 0
    assert not list((tmp_path / "data/files").rglob("*.part"))


def _life(number: int, data_dir: Path, port: int, model: Path, submitted: list[str]) -> bool:
    """One life with a death at step ``number``; whether the death came.

    ``submitted`` gets the id of each benchmark that the server said it had.
    """
    server: Server | None = None
    try:
        server = start(data_dir, {"EDGEYARD_FAILPOINT": str(number)}, port)
        for benchmark_id in submitted[-1:]:
            server.wait(benchmark_id, timeout_s=60)
        file_name = str(server.upload(model)["name"])
        made = _submit(server, file_name, f"submission-{len(submitted)}")
        submitted.append(str(made["benchmark_id"]))
        server.wait(submitted[-1], timeout_s=60)
        return server.end() == 137
    except (RuntimeError, OSError) as error:
        if server is None:
            assert "status 137" in str(error), error  # noqa: PT017
        else:
            assert server.process.wait(10) == 137, error  # noqa: PT017
        return True


def _nothing_was_lost_or_done_twice(server: Server, submitted: list[str]) -> None:
    # The last submission may have been taken without an answer: its key was never repeated.
    listed = server.call("GET", "/v1/benchmarks?total=true&limit=200")
    assert isinstance(listed, dict)
    assert len(set(submitted)) == len(submitted)
    assert listed["total"] == len(submitted), (listed["total"], len(submitted))
    for benchmark_id in submitted:
        ended = server.wait(benchmark_id, timeout_s=60)
        assert ended["status"] == "completed", ended
        good = [a for a in _attempts(ended) if a["state"] == "ended" and a["failure"] is None]
        assert len(good) == 1, ended
        assert len(_reports(server, benchmark_id)) == 1, benchmark_id
    boards = server.call("GET", "/v1/boards")
    assert isinstance(boards, dict)
    assert all(board["state"] != "busy" for board in boards["items"]), boards


def _submit(server: Server, model: str, key: str) -> Mapping[str, object]:
    made = server.call(
        "POST",
        "/v1/benchmarks",
        description(model, nb_inference=5, max_retries=0),
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
