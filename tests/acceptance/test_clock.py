"""A real server on a machine whose clock is set under it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.process import TERMINAL, Server, edgeyard, start
from deploy.programs import CACHE
from tests.acceptance.test_main_path import description, submit

pytestmark = [pytest.mark.slow, pytest.mark.faketime, pytest.mark.timeout(900)]

HOUR_S = 3600
OBSERVED_S = 3.0
PATIENCE_S = 120.0


@dataclass(frozen=True)
class MachineClock:
    """The time of day as one process sees it; its monotonic clock goes on."""

    library: Path
    offset: Path

    def step(self, offset_s: int) -> None:
        """Set it to so many seconds ahead of the true time."""
        new = self.offset.with_suffix(".new")
        new.write_text(f"{offset_s:+d}\n")
        new.replace(self.offset)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self.library),
            "FAKETIME_TIMESTAMP_FILE": str(self.offset),
            "FAKETIME_CACHE_DURATION": "1",  # the file is read once a second
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


@pytest.fixture
def clock(tmp_path: Path) -> MachineClock:
    found = sorted(
        path
        for folder in (Path("/usr/lib"), CACHE / "root/usr/lib")
        for path in folder.glob("*/faketime/libfaketimeMT.so.1")
    )
    if not found:
        pytest.skip("libfaketime (Debian: faketime) is not installed")
    made = MachineClock(found[0], tmp_path / "offset")
    made.step(0)
    return made


@pytest.fixture
def server(tmp_path: Path, clock: MachineClock) -> Iterator[Server]:
    with edgeyard(tmp_path / "data", clock.environment) as running:
        yield running


def test_an_hour_for_three_seconds_ends_nothing_that_runs_or_waits(
    server: Server, clock: MachineClock, squeezenet: Path
) -> None:
    model = str(server.upload(squeezenet)["name"])
    running = submit(server, description(model, nb_inference=1_000_000, user_time="20m"))
    server.wait(running, ("running",))
    deadline = (datetime.now(UTC) + timedelta(minutes=30)).isoformat()
    here = {"target": None, "target_uid": server.show(running)["target_uid"]}
    waiting = [
        submit(server, description(model, nb_inference=5, deadline=deadline, **here)),
        submit(server, description(model, nb_inference=5, queue_timeout="30m", **here)),
    ]
    for offset_s in (HOUR_S, -HOUR_S):
        clock.step(offset_s)
        eventually(lambda: "was set" in clock_check(server), "the server sees the step")
        until = time.monotonic() + OBSERVED_S
        while time.monotonic() < until:
            assert server.show(running)["status"] == "running"
            assert not [each for each in waiting if server.show(each)["status"] in TERMINAL]
            time.sleep(0.1)
        clock.step(0)
        eventually(lambda: clock_check(server) == "", "the server sees that it is back")
    shown = server.show(running)
    assert shown["status"] == "running", shown
    server.call("POST", f"/v1/benchmarks/{running}/cancel")
    assert [server.wait(each)["status"] for each in waiting] == ["completed", "completed"]


def test_a_server_that_starts_again_while_the_clock_is_wrong_expires_nothing(
    tmp_path: Path, clock: MachineClock, squeezenet: Path
) -> None:
    with edgeyard(tmp_path / "data", clock.environment) as server:
        model = str(server.upload(squeezenet)["name"])
        now = datetime.now(UTC)
        times = {
            "start_time": (now + timedelta(minutes=20)).isoformat(),
            "deadline": (now + timedelta(minutes=40)).isoformat(),
        }
        waiting = submit(server, description(model, nb_inference=5, **times))
        eventually((tmp_path / "data" / "clock.json").exists, "the time is kept")
        server.process.kill()
        server.process.wait()
    offsets = itertools.count(HOUR_S, 10)

    def sees_the_step(server: Server) -> bool:
        clock.step(next(offsets))  # once more: it must not be believed while a busy machine starts
        return "was set" in clock_check(server)

    clock.step(next(offsets))
    server = start(tmp_path / "data", clock.environment, ready="/livez")
    try:
        eventually(lambda: sees_the_step(server), "the server sees the step and leads")
        until = time.monotonic() + OBSERVED_S
        while time.monotonic() < until:
            assert server.show(waiting)["status"] == "pending"
            time.sleep(0.1)
    finally:
        server.end()


def clock_check(server: Server) -> str:
    """What the server says of its clock, once it is ready."""
    try:
        reported = server.call("GET", "/readyz?verbose=1")
    except RuntimeError:
        return "not ready"
    return str(reported["checks"].get("clock", ""))


def eventually(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, f"not in {PATIENCE_S:g} s: {what}"
        time.sleep(0.05)
