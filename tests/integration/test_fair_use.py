"""Credits, quota, lease and quarantine on a real server with its embedded cluster, by its CLI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.models import light
from deploy.process import Server, edgeyard
from edgeyard.scheduler.engine.quarantine import PROBE_MODEL

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("server")]

BOARD = "emumid-0001-0001"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with edgeyard(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


class Lab:
    """An operator at the command line, and a user over HTTP."""

    def __init__(self, server: Server, user: str) -> None:
        self._admin = server
        self.user = user
        self.cli("users", "create", user)
        token = self.json("tokens", "create", "--user", user)["token"]
        self.server = Server(server.url, server.port, server.process, str(token))
        self.model = str(self.server.upload(light("squeezenet"))["name"])

    def cli(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "edgeyard", *words],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "EDGEYARD_URL": self._admin.url,
                "EDGEYARD_TOKEN": self._admin.token,
                "EDGEYARD_COLUMNS": "80",
            },
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert all(len(line) <= 80 for line in done.stdout.splitlines()), done.stdout
        return done.stdout

    def json(self, *words: str) -> Any:
        found = json.loads(self.cli(*words, "--json"))
        if isinstance(found, list):
            (found,) = found
        return found

    def submit(self, **changes: object) -> str:
        body = {"model": self.model, "runtime": "ort", "benchmark_type": "TYPE1",
                "target": "emumid", "nb_inference": 20, "user_time": 100, **changes}  # fmt: skip
        made = self.server.call("POST", "/v1/benchmarks", body)
        return str(made["benchmark_id"])

    def reason(self, benchmark_id: str) -> str:
        waiting = self.server.show(benchmark_id)["waiting_reason"]
        return str(waiting["code"]) if isinstance(waiting, dict) else ""

    def events(self, benchmark_id: str) -> list[dict[str, Any]]:
        found = self.server.call("GET", f"/v1/benchmarks/{benchmark_id}/events")
        return list(found["items"])

    def account(self) -> Any:
        return self.json("users", "account", self.user)


def until(met: Callable[[], bool], timeout_s: float = 60.0) -> None:
    limit = time.monotonic() + timeout_s
    while not met():
        assert time.monotonic() < limit
        time.sleep(0.1)


def test_credits_are_spent_by_real_board_seconds_and_run_out(server: Server) -> None:
    lab = Lab(server, "ann")
    lab.cli("users", "credit", "ann", "250")
    lab.cli("rates", "set", "emumid", "2")
    first = lab.server.wait(lab.submit())
    assert first["status"] == "completed", first["failure"]
    account = lab.account()
    (charge,) = account["charges"]
    assert charge["reserved"] == 200
    assert charge["charged"] == pytest.approx(2 * charge["board_s"], abs=1e-5)
    assert 0 < charge["charged"] < 60
    assert account["credits"] == pytest.approx(250 - charge["charged"], abs=1e-9)
    assert account["reserved"] == 0
    lab.cli("users", "credit", "ann", "150")
    with pytest.raises(RuntimeError, match="may cost 200 credits"):
        lab.submit()
    lab.cli("users", "credit", "ann", "--", "+60")  # 210: one at a time, with 200 reserved
    two = [lab.submit(nb_inference=200) for _ in range(2)]
    until(lambda: any(lab.reason(each) == "budget" for each in two) or _ended(lab, two))
    assert [lab.server.wait(each)["status"] for each in two[:1]] == ["completed"]
    lab.cli("users", "credit", "ann", "none")
    assert lab.server.wait(two[1])["status"] == "completed"
    assert "no limit, 0 reserved" in lab.cli("users", "account", "ann")
    lab.cli("rates", "set", "emumid", "1")


def _ended(lab: Lab, ids: list[str]) -> bool:
    return all(lab.server.show(each)["status"] == "completed" for each in ids)


def test_a_user_has_no_more_on_boards_than_the_quota(server: Server) -> None:
    lab = Lab(server, "bob")
    lab.cli("users", "update", "bob", "--max-running", "1")
    ids = [lab.submit(nb_inference=100) for _ in range(3)]
    seen = 0
    while not _ended(lab, ids):
        running = lab.account()["running"]
        assert isinstance(running, int)
        seen = max(seen, running)
        assert running <= 1
    assert seen == 1
    reasons = {
        event["data"]["reason"]
        for each in ids
        for event in lab.events(each)
        if event["kind"] == "benchmark.waiting"
    }
    assert "quota" in reasons


def test_a_lease_admits_its_user_alone_and_frees_itself(server: Server) -> None:
    ann, eve = Lab(server, "lena"), Lab(server, "eve")
    made = ann.json("boards", "lease", BOARD, "--until", "+1 h", "--user", "lena")
    assert made["user_id"] == "lena"
    assert "lena" in ann.cli("boards", "leases")
    listed = json.loads(eve.cli("boards", "list", "--json"))
    leased = next(each for each in listed if each["target_uid"] == BOARD)
    assert leased["state"] == "leased"
    assert leased["reason"].startswith("leased to a user until ")
    waits = eve.submit(target_uid=BOARD)
    until(lambda: eve.reason(waits) == "reserved")
    admitted = ann.submit(target_uid=BOARD)
    assert ann.server.wait(admitted)["target_uid"] == BOARD
    assert eve.reason(waits) == "reserved"
    eve.cli("prioritise", waits, "9")
    assert eve.server.show(waits)["user_priority"] == 9
    ann.cli("boards", "release", BOARD)
    assert eve.server.wait(waits)["status"] == "completed"
    soon = ann.json("boards", "lease", BOARD, "--until", "+3 s", "--maintenance")
    assert soon["user_id"] is None
    after = eve.submit(target_uid=BOARD)
    assert eve.server.wait(after)["status"] == "completed"  # nobody released it


def test_a_quarantined_board_gets_nothing_until_the_quarantine_is_lifted(server: Server) -> None:
    lab = Lab(server, "quinn")
    shown = lab.json("boards", "quarantine", BOARD, "--reason", "smells of smoke")
    assert shown["state"] == "quarantined"
    waits = lab.submit(target_uid=BOARD)
    until(lambda: lab.reason(waits) == "board_unhealthy")
    assert "smells of smoke" in str(lab.server.show(waits)["waiting_reason"])
    other = lab.server.wait(lab.submit())
    assert other["target_uid"] != BOARD
    lab.cli("boards", "unquarantine", BOARD)
    assert lab.server.wait(waits)["target_uid"] == BOARD


def test_the_probe_runs_on_a_board(server: Server) -> None:
    lab = Lab(server, "pia")
    name = str(lab.server.upload(PROBE_MODEL)["name"])
    ended = lab.server.wait(lab.submit(model=name))
    assert ended["status"] == "completed", ended["failure"]
