"""What a server finds on a real Nomad that ran on without it, or that others use."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deploy.process import Server, start
from edgeyard.testbed import LoopbackNomad
from tests.acceptance.lives import attempts_of, good_reports
from tests.builders.cluster import eventually
from tests.nomad_cluster import clear, settings_of

pytestmark = [pytest.mark.nomad, pytest.mark.slow, pytest.mark.xdist_group("nomad")]

MODEL = Path(__file__).parents[2] / "deploy/demo/digits.onnx"
FIRST, SECOND = "rpi4b-0001-0001", "rpi4b-0001-0002"
FOREIGN = "benchmark-rpi4b-ort-20260101000000-abcdefghij"
PATIENCE_S = 240.0

LONG = 60_000
"""Timed runs of the small network: some seconds, so that a server can be stopped meanwhile."""


class Lab:
    """A server on Nomad that is killed and started again."""

    def __init__(self, nomad: LoopbackNomad, folder: Path, upload_timeout_s: int) -> None:
        self.nomad = nomad
        self.data_dir = folder / "data"
        self._port: int | None = None
        self._server: Server | None = None
        self._settings = {
            **settings_of(nomad, folder / "inventory.json"),
            "EDGEYARD_UPLOAD_TIMEOUT_S": str(upload_timeout_s),
        }

    @property
    def server(self) -> Server:
        assert self._server is not None
        return self._server

    def start(self) -> None:
        self._server = start(self.data_dir, self._settings, self._port)
        self._port = self._server.port

    def kill(self) -> None:
        if self._server is not None:
            self._server.process.kill()
            self._server.process.wait()

    def submit(self, **changes: object) -> str:
        return self.server.submit(
            {
                "model": MODEL.name,
                "target": "rpi4b",
                "nb_inference": 20,
                "max_retries": 0,
                **changes,
            }
        )

    def allocations(self, job_id: object) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.nomad.call(
            "GET", f"/v1/job/{job_id}/allocations?namespace={self.nomad.namespace}"
        )
        return found

    def runs(self, job_id: object) -> bool:
        return [each["ClientStatus"] for each in self.allocations(job_id)] == ["running"]

    def items(self, path: str) -> list[dict[str, Any]]:
        found = self.server.call("GET", path)
        items: list[dict[str, Any]] = found["items"]
        return items

    def board(self, uid: str) -> Mapping[str, object]:
        found: Mapping[str, object] = self.server.call("GET", f"/v1/boards/{uid}")
        return found


@pytest.fixture
def lab(
    nomad_cluster: LoopbackNomad, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Lab]:
    """A lab whose tasks try to upload for as many seconds as the test's parameter says."""
    clear(nomad_cluster)
    made = Lab(nomad_cluster, tmp_path, request.param)
    try:
        made.start()
        made.server.upload(MODEL)
        yield made
    finally:
        made.kill()
        clear(nomad_cluster)


def until(predicate: Callable[[], bool], what: str) -> None:
    eventually(predicate, what, PATIENCE_S)


@pytest.mark.parametrize("lab", [3], indirect=True)
def test_a_result_is_claimed_when_the_server_was_away_for_longer_than_its_task_waits(
    lab: Lab,
) -> None:
    benchmark_id = lab.submit(nb_inference=LONG)
    lab.server.wait(benchmark_id, ("running",), timeout_s=PATIENCE_S)
    (attempt,) = attempts_of(lab.server.show(benchmark_id))
    until(lambda: lab.runs(attempt["job_id"]), "Nomad knows that it runs")
    lab.kill()

    def gave_up() -> bool:
        (found,) = lab.allocations(attempt["job_id"])
        return bool(found["ClientStatus"] == "failed")

    until(gave_up, "its task has given up uploading")
    lab.start()
    ended = lab.server.wait(benchmark_id, timeout_s=PATIENCE_S)
    assert ended["status"] == "completed", ended
    (only,) = attempts_of(ended)
    assert (only["job_id"], only["failure"]) == (attempt["job_id"], None)
    assert len(good_reports(lab.server, benchmark_id)) == 1


@pytest.mark.parametrize("lab", [600], indirect=True)
def test_a_job_that_an_older_backup_does_not_know_is_adopted_with_its_result(
    lab: Lab, tmp_path: Path
) -> None:
    """And one under our names that is nobody's holds its board until an operator stops it."""
    earlier = lab.submit()
    assert lab.server.wait(earlier, timeout_s=PATIENCE_S)["status"] == "completed"
    lab.server.call("POST", f"/v1/boards/{FIRST}/drain", {"reason": "a new fan"})
    benchmark_id = lab.submit(nb_inference=LONG, target=None, target_uid=FIRST)
    database = lab.data_dir / "edgeyard.db"
    backup = tmp_path / "backup.db"
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(backup)) as copy:
        source.backup(copy)
    lab.server.call("POST", f"/v1/boards/{FIRST}/resume")
    lab.server.wait(benchmark_id, ("running",), timeout_s=PATIENCE_S)
    (attempt,) = attempts_of(lab.server.show(benchmark_id))
    until(lambda: lab.runs(attempt["job_id"]), "Nomad knows that it runs")
    lab.kill()
    for path in database.parent.glob(f"{database.name}*"):
        path.unlink()
    backup.rename(database)
    foreign_job(lab.nomad)

    lab.start()
    until(
        lambda: [each["job_id"] for each in lab.items("/v1/strays")] == [FOREIGN],
        "only the other one is a stray",
    )
    ended = lab.server.wait(benchmark_id, timeout_s=PATIENCE_S)
    assert ended["status"] == "completed", ended
    (only,) = attempts_of(ended)
    assert (only["job_id"], only["target_uid"], only["failure"]) == (
        attempt["job_id"],
        FIRST,
        None,
    )
    assert len(lab.allocations(attempt["job_id"])) == 1
    assert len(good_reports(lab.server, benchmark_id)) == 1

    waits = lab.submit(target=None, target_uid=SECOND)
    until(lambda: lab.board(SECOND)["state"] == "busy", "its board is held")
    assert "does not know" in str(lab.board(SECOND)["reason"])
    ready = lab.server.call("GET", "/readyz?verbose")
    assert "edgeyard strays" in json.dumps(ready["checks"]["strays"])
    assert lab.server.show(waits)["status"] == "pending"
    assert lab.runs(FOREIGN)  # it is left alone
    lab.server.call("POST", f"/v1/strays/{FOREIGN}/stop")
    assert lab.server.wait(waits, timeout_s=PATIENCE_S)["status"] == "completed"


def foreign_job(nomad: LoopbackNomad) -> None:
    """A live job under our names, on the second board, of which no database knows."""
    constraint = {"LTarget": "${device.attr.target_uid}", "Operand": "=", "RTarget": SECOND}
    device = {"Name": "daiedge/edgedevice", "Count": 1, "Constraints": [constraint]}
    task = {
        "Name": "bootstrap-job",
        "Driver": "raw_exec",
        "Config": {"command": "/bin/sleep", "args": ["600"]},
        "Resources": {"CPU": 50, "MemoryMB": 32, "Devices": [device]},
    }
    job = {"ID": FOREIGN, "Type": "batch", "Namespace": nomad.namespace, "Datacenters": ["*"]}
    group = {"Name": "bootstrap", "Count": 1, "Tasks": [task]}
    nomad.call("PUT", "/v1/jobs", {"Job": {**job, "TaskGroups": [group]}})
    eventually(
        lambda: bool(
            [each for each in _allocations(nomad, FOREIGN) if each["ClientStatus"] == "running"]
        ),
        "the other job runs",
        PATIENCE_S,
    )


def _allocations(nomad: LoopbackNomad, job_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = nomad.call(
        "GET", f"/v1/job/{job_id}/allocations?namespace={nomad.namespace}"
    )
    return found
