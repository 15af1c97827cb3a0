"""The runner gets its task from the server, for the token of a schedule that Nomad started."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeyard.devices.runner.__main__ import EXIT_NOT_TAKEN_UP
from edgeyard.devices.runner.exchange import GIVE_UP_AFTER_S, NotTakenUp, take_up
from edgeyard.devices.runner.spec import exchange_url, read_spec
from edgeyard.scheduler.clusters import exits
from edgeyard.scheduler.model.benchmark import FailureCategory
from tests.fakes.api_server import Answer, FakeServer

PATH = "/v1/runs/cron-0123456789abcdef-1/exchange"
ALLOCATION = "4a1e6a2c-0000-0000-0000-000000000001"
SPEC = {
    "version": 1,
    "benchmark_id": "rpi4b-ort-20260101000000-abcdefghij",
    "engine": "ort",
    "model": {"filename": "net.onnx"},
}
TASK = {"spec": SPEC}
NOT_YET = Answer({"detail": "the run is not known yet"}, 503)


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def environ(folder: Path, server: FakeServer) -> dict[str, str]:
    (folder / "spec.json").write_text(
        json.dumps({"version": 1, "exchange_url": f"{server.url}{PATH}"})
    )
    return {"NOMAD_TASK_DIR": str(folder), "NOMAD_ALLOC_ID": ALLOCATION}


def taken_up(folder: Path, server: FakeServer, time: Time) -> tuple[str, dict[str, str]]:
    found = environ(folder, server)
    url = exchange_url(found)
    assert url is not None
    return take_up(url, "eys_shared", found, sleep=time.sleep, clock=time.clock), found


def test_the_task_replaces_the_address_and_the_token_is_the_run_s_own(
    server: FakeServer, tmp_path: Path
) -> None:
    server.on("POST", PATH, TASK)
    token, found = taken_up(tmp_path, server, Time())
    (asked,) = server.of("POST", PATH)
    assert asked.headers["authorization"] == "Bearer eys_shared"
    digest = hashlib.sha256(token.encode()).hexdigest()
    assert asked.json == {"allocation_id": ALLOCATION, "token_sha256": digest}
    assert token.encode() not in asked.body
    assert exchange_url(found) is None
    spec = read_spec(found, token)
    assert (spec.benchmark_id, spec.token) == (SPEC["benchmark_id"], token)


@pytest.mark.parametrize(
    "trouble",
    [
        NOT_YET,
        Answer({}, 429),
        Answer({}, 500),
        Answer(b'{"spec": {"version"', cut=True),
        Answer(b"<html>"),
        Answer({"spec": None}),
        Answer({"spec": {"exchange_url": "http://elsewhere.test/"}}),
    ],
)
def test_what_may_pass_is_asked_again_with_the_same_token(
    server: FakeServer, tmp_path: Path, trouble: Answer
) -> None:
    server.on("POST", PATH, trouble, trouble, TASK)
    taken_up(tmp_path, server, Time())
    asked = [each.json for each in server.of("POST", PATH)]
    assert len(asked) == 3
    assert asked[0] == asked[1] == asked[2]


@pytest.mark.parametrize("status", [401, 403, 409, 422])
def test_a_refusal_is_final(server: FakeServer, tmp_path: Path, status: int) -> None:
    server.on("POST", PATH, Answer({"detail": "no"}, status))
    with pytest.raises(NotTakenUp, match=str(status)):
        taken_up(tmp_path, server, Time())
    assert len(server.of("POST", PATH)) == 1
    assert "exchange_url" in (tmp_path / "spec.json").read_text()


def test_a_server_that_stays_away_is_not_waited_for_for_ever(
    server: FakeServer, tmp_path: Path
) -> None:
    server.on("POST", PATH, NOT_YET)
    time = Time()
    with pytest.raises(NotTakenUp, match="in time"):
        taken_up(tmp_path, server, time)
    assert time.now_s <= GIVE_UP_AFTER_S


def test_no_redirect_gets_the_token(server: FakeServer, tmp_path: Path) -> None:
    moved = Answer({}, 307, {"Location": f"{server.url}/elsewhere"})
    server.on("POST", PATH, moved, TASK)
    taken_up(tmp_path, server, Time())
    assert server.of("POST", "/elsewhere") == []


def test_its_exit_says_that_it_never_began() -> None:
    assert exits.EXIT_NOT_TAKEN_UP == EXIT_NOT_TAKEN_UP
    failure = exits.failure_of(EXIT_NOT_TAKEN_UP)
    assert failure is not None
    assert failure.category is FailureCategory.CLUSTER
