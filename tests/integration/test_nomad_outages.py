"""What is left when parts of a Nomad cluster go: each test has a cluster of its own to break."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeyard.devices import testbed
from edgeyard.devices.model import Board, Host
from edgeyard.devices.testbed import LoopbackNomad
from edgeyard.errors import ClusterUnreachable
from edgeyard.scheduler.clusters.nomad import NomadAccess, NomadCluster
from edgeyard.scheduler.clusters.nomad.retry import RetryPolicy
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.ports import JobRun
from tests.builders.cluster import Submitter, a_job, eventually, on
from tests.nomad_cluster import entry, nomad_binary

pytestmark = [pytest.mark.nomad, pytest.mark.slow, pytest.mark.xdist_group("nomad")]

FIRST, SECOND = "rpi4b-0001-0001", "rpi4b-0002-0001"
UNTIL_TOLD = (
    "import os, time; print(os.getpid(), flush=True)\n"
    "while not os.path.exists({flag!r}): time.sleep(0.05)"
)


@pytest.fixture
def nomad(tmp_path: Path) -> Iterator[LoopbackNomad]:
    hosts = ({"rpi4b": [entry(FIRST)]}, {"rpi4b": [entry(SECOND)]})
    running = testbed.up(tmp_path / "nomad", nomad_binary(), hosts)
    yield running
    running.down()


@pytest.fixture
def lab(nomad: LoopbackNomad) -> Iterator[Submitter]:
    # All rights, since a server that lost its data knows no other token.
    access = NomadAccess(
        address=nomad.address, token=nomad.management, namespace=nomad.namespace, timeout_s=3.0
    )
    quick = RetryPolicy(first_s=0.05, longest_s=0.5, trips_at=1000)
    lab = Submitter(NomadCluster(access, retry=quick))
    yield lab
    lab.cluster.close()


def hosts(lab: Submitter) -> dict[str, Host]:
    return {host.name: host for host in lab.cluster.hosts()}


def board(lab: Submitter, uid: str) -> Board | None:
    found = [each for host in lab.cluster.hosts() for each in host.boards]
    return next((each for each in found if each.target_uid == uid), None)


def answers(lab: Submitter) -> bool:
    try:
        lab.cluster.states(["benchmark-1"])
    except ClusterUnreachable:
        return False
    return True


def test_a_host_that_dies_fails_its_job_as_the_board_s_fault_and_it_runs_nowhere_else(
    lab: Submitter, nomad: LoopbackNomad, tmp_path: Path
) -> None:
    lab.dispatch(a_job(UNTIL_TOLD.format(flag=str(tmp_path / "flag"))))
    eventually(lambda: lab.log().strip().isdigit(), "it runs")
    name = "client-0" if lab.state().target_uid == FIRST else "client-1"
    client = next(each for each in nomad.clients if each.name == name)
    pid = int(lab.log())
    client.kill()
    ended = lab.until("benchmark-1", JobRun.ENDED)
    assert ended.failure is not None
    assert ended.failure.category is FailureCategory.BOARD_FAULT
    assert name in ended.failure.sentence
    assert not hosts(lab)[name].ready
    assert hosts(lab)[name].ready_reason == "down"
    eventually(lambda: nomad_job(nomad, "benchmark-1")["Stop"] is True, "it is not placed again")
    client.start()  # back again, it ends what is left of the task
    eventually(lambda: hosts(lab)[name].ready, "the host is back")
    eventually(lambda: not alive(pid), "what was left of the task is gone")
    assert lab.state().failure == ended.failure


def test_a_server_that_restarts_loses_nothing(
    lab: Submitter, nomad: LoopbackNomad, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    lab.dispatch(a_job(UNTIL_TOLD.format(flag=str(flag)), on(FIRST)))
    lab.until("benchmark-1", JobRun.RUNNING)
    with listening(lab) as hints:
        eventually(lambda: "" in hints, "the stream is there")
        nomad.server.kill()
        with pytest.raises(ClusterUnreachable):
            lab.cluster.states(["benchmark-1"])
        nomad.server.start()
        eventually(lambda: answers(lab), "it answers again")
        assert lab.state().run is JobRun.RUNNING
        eventually(lambda: hints.count("") >= 2, "everything is looked at after the gap")
        flag.touch()
        assert lab.until("benchmark-1", JobRun.ENDED).failure is None
        eventually(lambda: "benchmark-1" in hints, "events are heard again")


def test_a_server_that_lost_its_data_knows_no_job_and_takes_new_ones(
    lab: Submitter, nomad: LoopbackNomad
) -> None:
    lab.run(a_job("pass"))
    with listening(lab) as hints:
        eventually(lambda: "" in hints, "the stream is there")
        nomad.server.kill()
        shutil.rmtree(nomad.server.folder / "data")
        nomad.server.start()
        testbed.set_up_rights(nomad)
        eventually(lambda: answers(lab), "it answers again")
        assert lab.cluster.states(["benchmark-1"]) == {}
        for client in nomad.clients:  # they wait for an index that is far beyond the new ones
            client.end()
            client.start()
        nomad.await_boards(2)
        assert board(lab, FIRST) is not None
        del hints[:]
        assert lab.run(a_job("pass", on(FIRST), job_id="benchmark-2"), job_id="benchmark-2")
        # Indexes began again, far below the last one that was heard.
        eventually(lambda: "benchmark-2" in hints, "events are heard again")


def test_a_host_that_is_drained_or_ineligible_is_out_and_says_so(
    lab: Submitter, nomad: LoopbackNomad
) -> None:
    node_id = hosts(lab)["client-0"].host_id
    nomad.call("POST", f"/v1/node/{node_id}/eligibility", {"Eligibility": "ineligible"})
    eventually(lambda: hosts(lab)["client-0"].ready_reason == "ineligible", "it is out")
    assert hosts(lab)["client-1"].ready
    nomad.call("POST", f"/v1/node/{node_id}/eligibility", {"Eligibility": "eligible"})
    eventually(lambda: hosts(lab)["client-0"].ready, "it is back")


def test_a_drained_host_s_job_ends_and_is_not_moved_by_nomad(
    lab: Submitter, nomad: LoopbackNomad, tmp_path: Path
) -> None:
    lab.dispatch(a_job(UNTIL_TOLD.format(flag=str(tmp_path / "flag"))))
    lab.until("benchmark-1", JobRun.RUNNING)
    name = "client-0" if lab.state().target_uid == FIRST else "client-1"
    drain = {"DrainSpec": {"Deadline": -1, "IgnoreSystemJobs": True}, "MarkEligible": False}
    nomad.call("POST", f"/v1/node/{hosts(lab)[name].host_id}/drain", drain)
    ended = lab.until("benchmark-1", JobRun.ENDED)
    assert not ended.stopped
    assert ended.failure is not None
    assert ended.failure.category is FailureCategory.CLUSTER
    assert f"{name} was drained" in ended.failure.sentence
    eventually(lambda: nomad_job(nomad, "benchmark-1")["Status"] == "dead", "it is not moved")
    assert lab.state() == ended


def test_a_board_that_is_pulled_out_shows_within_a_probe(
    lab: Submitter, nomad: LoopbackNomad
) -> None:
    assert board(lab, FIRST) is not None
    nomad.boards(0, {"rpi4b": []})

    def out() -> bool:
        seen = board(lab, FIRST)
        return seen is None or not seen.healthy

    eventually(out, "it is out")
    nomad.boards(0, {"rpi4b": [entry(FIRST)]})
    eventually(lambda: (seen := board(lab, FIRST)) is not None and seen.healthy, "it is back")


def nomad_job(nomad: LoopbackNomad, job_id: str) -> dict[str, object]:
    found = nomad.call("GET", f"/v1/job/{job_id}?namespace={nomad.namespace}")
    assert isinstance(found, dict)
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def listening(lab: Submitter) -> Iterator[list[str]]:
    hints: list[str] = []
    stop = threading.Event()

    def listen() -> None:
        for hint in lab.cluster.events(stop):
            hints.append(hint)

    listener = threading.Thread(target=listen, name="listener")
    listener.start()
    try:
        yield hints
    finally:
        stop.set()
        listener.join(10)
        assert not listener.is_alive()
