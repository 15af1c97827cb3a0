"""What becomes of running benchmarks when parts of the Nomad cluster go and come back."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from deploy.process import in_cluster, on_nomad, start
from edgeyard import testbed
from edgeyard.errors import ClusterUnreachable
from edgeyard.scheduler.clusters.nomad import NomadAccess, NomadCluster
from edgeyard.scheduler.clusters.nomad.retry import RetryPolicy
from edgeyard.scheduler.model.benchmark import LIVE
from edgeyard.testbed import LoopbackNomad
from tests.builders.cluster import TOKEN, a_job, eventually, listening
from tests.nomad_cluster import HEARTBEAT_S, entry, nomad_binary, running_nomad

pytestmark = [pytest.mark.nomad, pytest.mark.slow, pytest.mark.xdist_group("nomad-outages")]

MODEL = Path(__file__).parents[2] / "deploy/demo/digits.onnx"
FIRST, SECOND = "rpi4b-0001-0001", "rpi4b-0002-0001"
LONG_RUN_S = 600.0  # a run that outlasts an outage, on a busy machine
PATIENCE_S = 180.0  # a host's news reach the server after 10-15 s, and each step waits for some
SETTLED_S = 5.0
"""A host whose agent has just started may be ready, down, and ready again with its next heartbeat:
Nomad's registration of a node writes the status that it had read before."""


class Lab:
    """Two hosts with a board each, and a server that uses them."""

    def __init__(
        self, nomad: LoopbackNomad, data_dir: Path, environment: Mapping[str, str], usb: Path
    ) -> None:
        """Start the server; `end` it."""
        self.nomad, self.usb = nomad, usb
        self._data_dir, self._environment = data_dir, environment
        self.server = start(data_dir, environment)
        self.model = str(self.server.upload(MODEL)["name"])

    def end(self) -> None:
        """End the server, unless that was done."""
        if self.server.process.poll() is None:
            assert self.server.end() == 0

    @contextlib.contextmanager
    def giving_up_after(self, lost_after_s: int) -> Iterator[None]:
        """With a server that waits this long for a host, not the default of 10 minutes.

        A test in which a host comes back must not depend on how long this machine takes to start
        its agent.
        """
        changed = {**self._environment, **in_cluster(lost_after_s=lost_after_s)}
        self.end()
        self.server = start(self._data_dir, changed)
        try:
            yield
        finally:
            self.end()
            self.server = start(self._data_dir, self._environment)

    def submit(self, **changes: object) -> str:
        return self.server.submit(
            {
                "model": self.model,
                "target": "rpi4b",
                "nb_inference": 1_000_000,  # until it is cancelled
                **changes,
            }
        )

    def running(self, **changes: object) -> str:
        """A benchmark that runs, as Nomad's server knows, too.

        Edgeyard may know it earlier, from the task itself: hosts report to Nomad in batches. A job
        that Nomad still takes for pending when its host goes is lost at once, never unknown.
        """
        benchmark_id = self.submit(**changes)
        self.server.wait(benchmark_id, ("running",), timeout_s=PATIENCE_S)
        (attempt,) = self.attempts(benchmark_id)
        self.eventually(
            lambda: self.client_status(attempt["job_id"]) == "running", "Nomad knows that it runs"
        )
        return benchmark_id

    def client_status(self, job_id: object) -> str:
        """Of the job's only allocation."""
        return str(self.allocation(job_id)["ClientStatus"])

    def allocation(self, job_id: object) -> dict[str, Any]:
        """The job's only one."""
        found = self.nomad.call(
            "GET", f"/v1/job/{job_id}/allocations?namespace={self.nomad.namespace}"
        )
        (allocation,) = found
        return dict(allocation)

    def runs_as(self, benchmark_id: str, number: int) -> bool:
        """Return whether this attempt, its newest, runs, as Nomad's server knows, too."""
        found = self.attempts(benchmark_id)
        return (
            len(found) == number
            and found[-1]["state"] == "running"
            and self.client_status(found[-1]["job_id"]) == "running"
        )

    def attempts(self, benchmark_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.show(benchmark_id)["attempts"]
        return found

    def second_attempt(self, benchmark_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The failed first one, and the second, which runs; it is cancelled."""

        def runs() -> bool:
            found = self.attempts(benchmark_id)
            return len(found) == 2 and found[1]["state"] == "running"

        self.eventually(runs, "it is tried again")
        first, second = self.attempts(benchmark_id)
        self.cancel(benchmark_id)
        return first, second

    def events(self, benchmark_id: str, kind: str) -> list[dict[str, Any]]:
        found = self.server.call("GET", f"/v1/benchmarks/{benchmark_id}/events?limit=1000")
        return [each for each in found["items"] if each["kind"] == kind]

    def cancel(self, benchmark_id: str) -> None:
        self.server.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")
        self.eventually(lambda: self.attempts(benchmark_id)[-1]["state"] == "ended", "it ends")
        assert self.server.show(benchmark_id)["status"] == "cancelled"

    def recover(self) -> None:
        """Start the agents and cancel the benchmarks that a failed test left behind."""
        for agent in self.nomad.agents:
            if agent.pid is None:
                agent.start()
        found = self.server.call("GET", "/v1/benchmarks?limit=100")
        for each in found["items"]:
            if each["status"] in LIVE:
                self.server.call("POST", f"/v1/benchmarks/{each['benchmark_id']}/cancel")

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.nomad.call(
            "GET", f"/v1/job/{job_id}?namespace={self.nomad.namespace}"
        )
        return found

    def boards(self) -> dict[str, str]:
        """State by board."""
        found = self.server.call("GET", "/v1/boards")
        return {each["target_uid"]: each["state"] for each in found["items"]}

    def all_idle(self) -> None:
        """Wait until all boards are, and stay so."""
        since_s: float | None = None

        def settled() -> bool:
            nonlocal since_s
            if set(self.boards().values()) != {"idle"}:
                since_s = None
                return False
            since_s = since_s or time.monotonic()
            return time.monotonic() >= since_s + SETTLED_S

        self.eventually(settled, "all is well")

    def eventually(self, predicate: Callable[[], bool], what: str) -> None:
        """Wait until something holds; where it never does, say what is seen instead."""
        try:
            eventually(predicate, what, PATIENCE_S)
        except AssertionError as error:
            nodes = self.nomad.call("GET", "/v1/nodes")
            seen = {
                "boards": self.boards(),
                "nodes": {node["Name"]: node["Status"] for node in nodes},
                "agents": {agent.name: agent.pid for agent in self.nomad.agents},
                "benchmarks": self.server.call("GET", "/v1/benchmarks?limit=2"),
            }
            raise AssertionError(f"{error}; seen: {json.dumps(seen, indent=1)}") from error


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("outages")
    usb = folder / "ttyUSB0"
    usb.touch()
    attached = entry(FIRST)
    attached["engines"]["ort"]["devices"] = [str(usb)]  # type: ignore[index]
    hosts = ({"rpi4b": [attached]}, {"rpi4b": [entry(SECOND)]})
    inventory = folder / "inventory.json"
    inventory.write_text(json.dumps({"rpi4b": [entry(FIRST), entry(SECOND)]}))
    made = testbed.make(folder / "nomad", nomad_binary(), hosts, heartbeat_s=HEARTBEAT_S)
    with running_nomad(made) as nomad:
        lab = Lab(nomad, folder / "data", settings(nomad, inventory), usb)
        try:
            yield lab
        finally:
            lab.end()


def settings(nomad: LoopbackNomad, inventory: Path) -> dict[str, str]:
    return {**on_nomad(nomad, inventory), "EDGEYARD_BOARD_GRACE_S": "1"}


@pytest.fixture
def lab(built: Lab) -> Lab:
    built.recover()
    built.all_idle()
    return built


def test_a_board_that_is_pulled_out_mid_run_is_given_up_for_another(lab: Lab) -> None:
    benchmark_id = lab.running(target=None, target_uid=FIRST, max_retries=1, binding="filtered")
    lab.usb.unlink()
    try:
        lab.eventually(lambda: lab.attempts(benchmark_id)[0]["state"] == "ended", "it is given up")
        (first, *_) = lab.attempts(benchmark_id)
        assert first["failure"]["category"] == "board_fault"
        assert f"{lab.usb} is gone" in first["failure"]["sentence"]
        assert lab.boards() == {FIRST: "unhealthy", SECOND: "idle"}
        assert lab.server.show(benchmark_id)["status"] == "pending"  # it is pinned to that board
        lab.server.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")
        other = lab.running()
        assert lab.attempts(other)[0]["target_uid"] == SECOND
        lab.cancel(other)
    finally:
        lab.usb.touch()


def test_a_host_whose_agent_is_killed_fails_its_benchmark_which_runs_on_the_other(
    lab: Lab,
) -> None:
    with lab.giving_up_after(30):
        benchmark_id = lab.running(max_retries=1)
        (attempt,) = lab.attempts(benchmark_id)
        client = lab.nomad.clients[0 if attempt["target_uid"] == FIRST else 1]
        tasks = tasks_of(client.folder)
        assert tasks
        client.kill()
        first, second = lab.second_attempt(benchmark_id)
    assert first["failure"]["category"] == "board_fault"
    assert client.name in first["failure"]["sentence"]
    assert {first["target_uid"], second["target_uid"]} == {FIRST, SECOND}
    assert lab.job(first["job_id"])["Stop"]  # Nomad does not place it again
    client.start()  # back again, it ends what is left of the task
    lab.eventually(lambda: not tasks & tasks_of(client.folder), "the old task is gone")


@pytest.mark.timeout(900)
def test_a_host_whose_agent_is_away_for_a_while_costs_no_run(lab: Lab) -> None:
    benchmark_id = lab.running(target_uid=SECOND, nb_inference=200_000, max_retries=0)
    (attempt,) = lab.attempts(benchmark_id)
    client = lab.nomad.clients[1]
    client.kill()
    lab.eventually(
        lambda: lab.client_status(attempt["job_id"]) == "unknown",
        "Nomad does not hear from the host",
    )
    client.start()
    ended = lab.server.wait(benchmark_id, timeout_s=LONG_RUN_S)
    assert ended["status"] == "completed", ended["failure"]
    assert [each["number"] for each in lab.attempts(benchmark_id)] == [1]


def test_a_benchmark_whose_result_is_safe_does_not_wait_for_its_host_s_agent(lab: Lab) -> None:
    benchmark_id = lab.running(target_uid=SECOND, nb_inference=10_000, max_retries=0)
    (attempt,) = lab.attempts(benchmark_id)
    client = lab.nomad.clients[1]
    client.kill()
    try:
        ended = lab.server.wait(benchmark_id, timeout_s=LONG_RUN_S)
        assert ended["status"] == "completed", ended["failure"]
        assert lab.client_status(attempt["job_id"]) in ("running", "unknown")  # Nomad knows no end
        (attempt,) = lab.attempts(benchmark_id)
        took = datetime.fromisoformat(attempt["result_at"]) - datetime.fromisoformat(
            attempt["started_at"]
        )
        ends = [each["data"] for each in lab.events(benchmark_id, "attempt.state")]
        assert ends[-1]["run_s"] == pytest.approx(took.total_seconds(), abs=0.01)
    finally:
        client.start()
    lab.eventually(
        lambda: lab.client_status(attempt["job_id"]) == "complete", "Nomad hears of the end"
    )
    assert len(lab.attempts(benchmark_id)) == 1


def test_what_an_operator_stops_or_drains_in_nomad_costs_no_retry(lab: Lab) -> None:
    benchmark_id = lab.running(max_retries=0)
    (first,) = lab.attempts(benchmark_id)
    lab.nomad.call("POST", f"/v1/allocation/{lab.allocation(first['job_id'])['ID']}/stop", {})
    lab.eventually(lambda: lab.runs_as(benchmark_id, 2), "it runs again")
    second = lab.attempts(benchmark_id)[1]
    node_id = lab.allocation(second["job_id"])["NodeID"]
    drain = {"DrainSpec": {"Deadline": -1, "IgnoreSystemJobs": True}, "MarkEligible": False}
    lab.nomad.call("POST", f"/v1/node/{node_id}/drain", drain)
    try:
        lab.eventually(lambda: lab.runs_as(benchmark_id, 3), "it runs on the other host")
    finally:
        lab.nomad.call(
            "POST", f"/v1/node/{node_id}/drain", {"DrainSpec": None, "MarkEligible": True}
        )
    third = lab.attempts(benchmark_id)[2]
    assert third["target_uid"] != second["target_uid"]
    lab.nomad.call("DELETE", f"/v1/job/{third['job_id']}?namespace={lab.nomad.namespace}")
    lab.eventually(lambda: lab.runs_as(benchmark_id, 4), "a stopped job runs again, too")
    moved = "was drained, or the allocation was stopped in Nomad"
    for attempt, how in zip(
        lab.attempts(benchmark_id), (moved, moved, "an operator stopped its job"), strict=False
    ):
        assert attempt["failure"]["category"] == "cluster"
        assert how in attempt["failure"]["sentence"]
    lab.cancel(benchmark_id)


def test_a_host_that_dies_before_a_task_began_costs_no_try(lab: Lab) -> None:
    client = lab.nomad.clients[1]
    client.kill()
    benchmark_id = lab.submit(target_uid=SECOND, max_retries=0, nb_inference=5)

    def reported() -> bool:
        found = lab.attempts(benchmark_id)
        return bool(found) and found[0]["state"] == "ended"

    lab.eventually(reported, "Nomad gives the host up")
    assert "was lost before it began" in lab.attempts(benchmark_id)[0]["failure"]["sentence"]
    assert lab.server.show(benchmark_id)["status"] == "pending"
    client.start()
    assert lab.server.wait(benchmark_id, timeout_s=PATIENCE_S)["status"] == "completed"


def test_a_nomad_server_that_restarts_costs_nothing(lab: Lab) -> None:
    benchmark_id = lab.running(max_retries=0)
    lab.nomad.server.kill()
    meanwhile = lab.submit(nb_inference=5)  # is taken
    lab.nomad.server.start()
    assert lab.server.wait(meanwhile, timeout_s=PATIENCE_S)["status"] == "completed"
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt["state"] == "running"
    lab.cancel(benchmark_id)


def test_a_nomad_server_that_lost_its_data_costs_an_attempt(built: Lab, tmp_path: Path) -> None:
    """The last one here: the cluster is another one afterwards, and knows no token but one."""
    built.all_idle()
    built.end()
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps({"rpi4b": [entry(FIRST), entry(SECOND)]}))
    rights = {
        **settings(built.nomad, inventory),
        **in_cluster(token=built.nomad.management),
    }
    lab = Lab(built.nomad, tmp_path / "data", rights, built.usb)
    try:
        lab.all_idle()
        _loses_its_data(lab)
    finally:
        lab.end()


def _loses_its_data(lab: Lab) -> None:
    access = NomadAccess(
        address=lab.nomad.address, token=lab.nomad.management, namespace=lab.nomad.namespace
    )
    quick = RetryPolicy(first_s=0.05, max_s=0.5, trips_at=1000)
    benchmark_id = lab.running(max_retries=1)
    with contextlib.closing(NomadCluster(access, retry=quick)) as cluster, listening(cluster) as it:
        eventually(lambda: "" in it, "the stream is there")
        lab.nomad.server.kill()
        with pytest.raises(ClusterUnreachable):
            cluster.states(["benchmark-1"])
        shutil.rmtree(lab.nomad.server.folder / "data")
        lab.nomad.server.start()
        testbed.set_up_rights(lab.nomad)
        eventually(lambda: lab.attempts(benchmark_id)[0]["state"] == "ended", "it is lost")
        for client in lab.nomad.clients:  # they wait for an index that is far beyond the new ones
            client.end()
            client.start()
        first, second = lab.second_attempt(benchmark_id)
        assert first["failure"]["category"] == "cluster"
        assert "no longer knows its job" in first["failure"]["sentence"]
        assert second["job_id"] != first["job_id"]
        # Indexes began again, far below the last one that was heard.
        del it[:]
        cluster.dispatch("benchmark-1", a_job("pass"), {TOKEN: "t"})
        eventually(lambda: "benchmark-1" in it, "events are heard again")


def tasks_of(folder: Path) -> set[int]:
    """Processes that run in the folder of a client's tasks."""
    found = set()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/cwd").startswith(f"{folder}/data/alloc/"):
                found.add(pid)
    return found
