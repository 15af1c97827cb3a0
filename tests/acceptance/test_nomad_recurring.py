"""A schedule whose starts are left to a real Nomad."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deploy.process import Server, start
from edgeyard.scheduler.clusters.nomad.allocations import moment
from edgeyard.testbed import LoopbackNomad
from tests.acceptance.lives import attempts_of, good_reports
from tests.builders.cluster import eventually
from tests.nomad_cluster import clear, settings_of

pytestmark = [
    pytest.mark.nomad,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("nomad"),
]

MODEL = Path(__file__).parents[2] / "deploy/demo/digits.onnx"
BOARD = "rpi4b-0001-0001"
EVERY_S = 3
PATIENCE_S = 240.0

RUNS = 3_000
"""Timed runs of the small network: long enough that a server is often killed while one measures."""


class Lab:
    """A server on Nomad that is killed and started again."""

    def __init__(self, nomad: LoopbackNomad, folder: Path) -> None:
        self._nomad = nomad
        self._data_dir = folder / "data"
        self._port: int | None = None
        self._settings = settings_of(nomad, folder / "inventory.json")
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        assert self._server is not None
        return self._server

    def start(self) -> None:
        self._server = start(self._data_dir, self._settings, self._port)
        self._port = self._server.port  # its tasks look for it where they knew it

    def kill(self) -> None:
        if self._server is not None:
            self._server.process.kill()
            self._server.process.wait()

    def scheduled(self, **changes: object) -> str:
        body = {
            "model": MODEL.name,
            "runtime": "ort",
            "benchmark_type": "TYPE1",
            "target_uid": BOARD,
            "nb_inference": 20,
            "cron": f"*/{EVERY_S} * * * * * *",
            "cron_by": "nomad",
            "prohibit_overlap": True,
            **changes,
        }
        made = self.server.call("POST", "/v1/benchmarks", body)
        return str(made["schedule_id"])

    def benchmarks(self, schedule_id: str) -> list[dict[str, Any]]:
        """Of a schedule, oldest first, whole."""
        found = self.server.call("GET", f"/v1/benchmarks?schedule_id={schedule_id}&limit=500")
        return [self.server.show(each["benchmark_id"]) for each in reversed(found["items"])]

    def completed(self, schedule_id: str) -> list[dict[str, Any]]:
        return [each for each in self.benchmarks(schedule_id) if each["status"] == "completed"]

    def jobs(self, schedule_id: str) -> list[dict[str, Any]]:
        where = f"namespace={self._nomad.namespace}&prefix=benchmark-{schedule_id}-"
        found: list[dict[str, Any]] = self._nomad.call("GET", f"/v1/jobs?{where}")
        return found

    def runs(self, schedule_id: str) -> list[dict[str, Any]]:
        return [each for each in self.jobs(schedule_id) if each["ParentID"]]

    def allocations(self, schedule_id: str) -> list[dict[str, Any]]:
        found = self._nomad.call("GET", f"/v1/allocations?namespace={self._nomad.namespace}")
        return [each for each in found if each["JobID"].startswith(f"benchmark-{schedule_id}-")]

    def running(self, schedule_id: str) -> bool:
        return any(each["ClientStatus"] == "running" for each in self.allocations(schedule_id))

    def text_of(self, job_id: str) -> str:
        name = job_id.replace("/", "%2F")
        return json.dumps(
            self._nomad.call("GET", f"/v1/job/{name}?namespace={self._nomad.namespace}")
        )


@pytest.fixture
def lab(nomad_cluster: LoopbackNomad, tmp_path: Path) -> Iterator[Lab]:
    clear(nomad_cluster)
    made = Lab(nomad_cluster, tmp_path)
    try:
        made.start()
        made.server.upload(MODEL)
        yield made
    finally:
        made.kill()
        clear(nomad_cluster)


def until(predicate: Callable[[], bool], what: str) -> None:
    eventually(predicate, what, PATIENCE_S)


def test_nomad_starts_a_schedule_whose_server_comes_and_goes(lab: Lab) -> None:
    """Every few seconds, each run a benchmark with a result of its own; then it is deleted."""
    schedule_id = lab.scheduled(nb_inference=RUNS)
    until(lambda: len(lab.completed(schedule_id)) >= 2, "two runs have results")
    until(lambda: lab.running(schedule_id), "another one runs")
    lab.kill()
    known = {each["ID"] for each in lab.runs(schedule_id)}
    lab.start()
    before = len(lab.completed(schedule_id))
    until(lambda: len(lab.completed(schedule_id)) >= before + 2, "it goes on")
    until(lambda: {each["ID"] for each in lab.runs(schedule_id)} > known, "there are new runs")

    until(lambda: lab.running(schedule_id), "one runs")
    lab.server.call("DELETE", f"/v1/schedules/{schedule_id}")

    def is_stopped() -> bool:
        return all(each["Stop"] for each in lab.jobs(schedule_id) if not each["ParentID"])

    until(is_stopped, "Nomad starts no more")
    until(
        lambda: all(
            each["status"] in ("completed", "failed") for each in lab.benchmarks(schedule_id)
        ),
        "what ran has ended by itself",
    )
    until(lambda: not lab.running(schedule_id), "nothing runs")

    def adopted() -> list[str]:
        return [str(attempts_of(each)[0]["job_id"]) for each in lab.benchmarks(schedule_id)]

    def all_are_known() -> bool:
        """Whatever started is a benchmark, but for runs that ended while no server was there."""
        shown = lab.server.call("GET", f"/v1/schedules/{schedule_id}")
        started = {each["ID"] for each in lab.runs(schedule_id)}
        return len(started - set(adopted())) == int(shown["skipped"])

    until(all_are_known, "each run is a benchmark")
    assert len(set(adopted())) == len(adopted())
    for each in lab.completed(schedule_id):
        (good,) = good_reports(lab.server, each["benchmark_id"])
        report = good["report"]
        assert report["target_id"] == each["target_uid"] == BOARD
        assert report["inference_latency"]["p50"] > 0
    assert len(lab.completed(schedule_id)) >= 4

    # No two runs of it were on a board at the same time.
    spans = []
    for each in lab.allocations(schedule_id):
        for task in (each["TaskStates"] or {}).values():
            began, ended = moment(task["StartedAt"]), moment(task["FinishedAt"])
            if began is not None and ended is not None:
                spans.append((began, ended))
    assert all(ended <= began for (_, ended), (began, _) in pairwise(sorted(spans)))
    text = "".join(lab.text_of(each["ID"]) for each in lab.jobs(schedule_id))
    assert "eys_" not in text
    assert "eyu_" not in text
