"""What a Nomad tells when its server restarts, or a host is taken out by its operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgeyard import testbed
from edgeyard.devices.model import Host
from edgeyard.errors import ClusterUnreachable
from edgeyard.scheduler.clusters.nomad import NomadCluster
from edgeyard.scheduler.clusters.nomad.retry import RetryPolicy
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.ports import JobRun
from edgeyard.testbed import LoopbackNomad
from tests.builders.cluster import Submitter, a_job, eventually, listening, on
from tests.nomad_cluster import access_of, clear, entry, nomad_binary, running_nomad

pytestmark = [pytest.mark.nomad, pytest.mark.slow, pytest.mark.xdist_group("nomad-outages")]

FIRST, SECOND = "rpi4b-0001-0001", "rpi4b-0002-0001"
UNTIL_TOLD = (
    "import os, time; print(os.getpid(), flush=True)\n"
    "while not os.path.exists({flag!r}): time.sleep(0.05)"
)


@pytest.fixture(scope="module")
def nomad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackNomad]:
    """One of its own: its server is killed."""
    hosts = ({"rpi4b": [entry(FIRST)]}, {"rpi4b": [entry(SECOND)]})
    made = testbed.make(tmp_path_factory.mktemp("nomad") / "nomad", nomad_binary(), hosts)
    with running_nomad(made) as cluster:
        yield cluster


@pytest.fixture
def lab(nomad: LoopbackNomad) -> Iterator[Submitter]:
    clear(nomad)
    quick = RetryPolicy(first_s=0.05, max_s=0.5, trips_at=1000)
    lab = Submitter(NomadCluster(replace(access_of(nomad), timeout_s=3.0), retry=quick))
    yield lab
    lab.cluster.close()


def hosts(lab: Submitter) -> dict[str, Host]:
    return {host.name: host for host in lab.cluster.hosts()}


def answers(lab: Submitter) -> bool:
    try:
        lab.cluster.states(["benchmark-1"])
    except ClusterUnreachable:
        return False
    return True


def test_a_server_that_restarts_loses_nothing(
    lab: Submitter, nomad: LoopbackNomad, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    lab.dispatch(a_job(UNTIL_TOLD.format(flag=str(flag)), on(FIRST)))
    lab.until("benchmark-1", JobRun.RUNNING)
    with listening(lab.cluster) as hints:
        eventually(lambda: "" in hints, "the stream is there")
        nomad.server.kill()
        with pytest.raises(ClusterUnreachable):
            lab.cluster.states(["benchmark-1"])
        nomad.server.start()
        eventually(lambda: answers(lab), "it answers again")
        assert lab.state().run is JobRun.RUNNING
        eventually(lambda: hints.count("") >= 2, "everything is looked at after the gap")
        before = len(hints)
        flag.touch()
        assert lab.until("benchmark-1", JobRun.ENDED).failure is None
        # A young server may close the stream once more: then everything is looked at instead.
        heard = {"benchmark-1", ""}
        eventually(lambda: bool(heard & set(hints[before:])), "events are heard again")


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
    assert ended.stopped
    assert ended.failure is not None
    assert ended.failure.category is FailureCategory.CLUSTER
    assert f"{name} was drained, or" in ended.failure.sentence
    eventually(lambda: nomad_job(nomad, "benchmark-1")["Status"] == "dead", "it is not moved")
    assert lab.state() == ended
    undo = {"DrainSpec": None, "MarkEligible": True}
    nomad.call("POST", f"/v1/node/{hosts(lab)[name].host_id}/drain", undo)
    eventually(lambda: hosts(lab)[name].ready, "it is back")


def nomad_job(nomad: LoopbackNomad, job_id: str) -> dict[str, object]:
    found: dict[str, object] = nomad.call("GET", f"/v1/job/{job_id}?namespace={nomad.namespace}")
    return found
