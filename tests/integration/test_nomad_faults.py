"""A real Nomad behind a network that loses, repeats, delays and invents."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from edgeyard.errors import ClusterUnreachable, JobExists
from edgeyard.scheduler.clusters.nomad import NomadCluster
from edgeyard.scheduler.clusters.nomad.retry import RetryPolicy
from edgeyard.scheduler.ports import JobRun
from edgeyard.testbed import LoopbackNomad
from tests.builders.cluster import PRINT_TOKEN, TOKEN, a_job, eventually, on, where
from tests.fakes.fault_proxy import (
    Choose,
    Fault,
    FaultProxy,
    StreamFault,
    any_stream,
    seldom,
)
from tests.nomad_cluster import access_of, clear

pytestmark = [pytest.mark.nomad, pytest.mark.xdist_group("nomad")]

QUICK = RetryPolicy(first_s=0.01, max_s=0.2, trips_at=1000)
ID, BOARD = "benchmark-1", "rpi5-0002-0001"


@pytest.fixture
def proxy(nomad_cluster: LoopbackNomad) -> Iterator[FaultProxy]:
    clear(nomad_cluster)
    with FaultProxy(nomad_cluster.address, silence_s=0.6) as proxy:
        yield proxy
    clear(nomad_cluster)


@pytest.fixture
def cluster(nomad_cluster: LoopbackNomad, proxy: FaultProxy) -> Iterator[NomadCluster]:
    access = replace(access_of(nomad_cluster), address=proxy.address, timeout_s=0.3)
    cluster = NomadCluster(access, retry=QUICK)
    yield cluster
    cluster.close()


def once(fault: Fault, method: str, path: str) -> Choose:
    """The fault on the first call of that kind."""
    left = [fault]

    def choose(asked: str, url: str) -> Fault | None:
        return left.pop() if left and asked == method and url.startswith(path) else None

    return choose


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/jobs?"), ("POST", "/v1/jobs/parse"), ("PUT", "/v1/var/")]
)
def test_a_dispatch_survives_any_one_fault_and_registers_once(
    cluster: NomadCluster, proxy: FaultProxy, fault: Fault, method: str, path: str
) -> None:
    proxy.choose = once(fault, method, path)
    cluster.dispatch(ID, a_job(PRINT_TOKEN), {TOKEN: "t"})
    assert proxy.done == {fault: 1}
    eventually(lambda: cluster.states([ID])[ID].run is JobRun.ENDED, "it ends")
    assert cluster.states([ID])[ID].failure is None
    assert cluster.logs(ID, "stdout", 0).data == b"t\n"
    with pytest.raises(JobExists):
        cluster.dispatch(ID, a_job("print('second')"), {TOKEN: "other"})


@pytest.mark.parametrize("fault", list(Fault))
def test_idempotent_calls_are_retried(
    cluster: NomadCluster, proxy: FaultProxy, fault: Fault
) -> None:
    cluster.dispatch(ID, a_job("pass", where("family", "=", "rpi9")), {TOKEN: "t"})

    def queued() -> bool:
        return cluster.states([ID])[ID].run is JobRun.QUEUED

    def all_boards() -> bool:
        return sum(len(host.boards) for host in cluster.hosts()) == 12

    def stopped() -> bool:
        cluster.stop(ID)
        return True

    asked: list[tuple[str, str, Callable[[], bool]]] = [
        ("GET", "/v1/jobs", queued),
        ("GET", "/v1/allocations", queued),
        ("GET", "/v1/nodes", all_boards),
        ("GET", "/v1/allocations", all_boards),
        ("DELETE", "/v1/job/", stopped),
    ]
    for method, path, ask in asked:
        proxy.choose = once(fault, method, path)
        assert ask()
    eventually(lambda: cluster.states([ID])[ID].stopped, "it is stopped")


def test_a_wrong_index_does_not_hide_a_change_for_long(
    cluster: NomadCluster, proxy: FaultProxy, nomad_cluster: LoopbackNomad
) -> None:
    proxy.choose = lambda method, path: Fault.WRONG_INDEX
    cluster.dispatch(ID, a_job("import time; time.sleep(60)", on(BOARD)), {TOKEN: "t"})

    def busy() -> bool:
        boards = [board for host in cluster.hosts() for board in host.boards]
        return [board.target_uid for board in boards if board.busy] == [BOARD]

    eventually(busy, "the board is busy: allocations have no part in the index of nodes")


def test_without_an_answer_calls_raise_cluster_unreachable(
    cluster: NomadCluster, proxy: FaultProxy
) -> None:
    proxy.choose = lambda method, path: Fault.ERROR_BEFORE
    with pytest.raises(ClusterUnreachable, match="500"):
        cluster.dispatch(ID, a_job("pass"), {TOKEN: "t"})
    with pytest.raises(ClusterUnreachable):
        cluster.states([ID])
    with pytest.raises(ClusterUnreachable):
        cluster.hosts()


@pytest.mark.parametrize("fault", [None, *StreamFault])
def test_events_lead_to_every_job_however_the_stream_is_spoiled(
    cluster: NomadCluster, proxy: FaultProxy, fault: StreamFault | None
) -> None:
    """The first stream is spoiled, later ones are whole: what was missed is looked at."""
    left = [fault]
    proxy.choose_stream = lambda: left.pop() if left else None
    stop = threading.Event()
    seen: list[str] = []
    everything = threading.Event()

    def listen() -> None:
        for hint in cluster.events(stop):
            seen.append(hint)
            everything.set()

    listener = threading.Thread(target=listen, name="listener")
    listener.start()
    try:
        assert everything.wait(10)
        assert seen[0] == ""
        ids = [f"benchmark-{number}" for number in range(6)]
        for job_id in ids:
            cluster.dispatch(job_id, a_job("pass", job_id=job_id), {TOKEN: "t"})
        if fault is StreamFault.LOST:
            # What no event tells, the engine's full look of every few seconds finds.
            eventually(lambda: all_ended(cluster, ids), "all end")
        else:
            eventually(lambda: set(ids) <= set(seen), "each is named")
        if fault in (StreamFault.CUT, StreamFault.GARBAGE):
            eventually(lambda: seen.count("") >= 2, "all are looked at after the break")
    finally:
        stop.set()
        listener.join(5)
    assert not listener.is_alive()
    assert set(seen) <= {*ids, ""}


def all_ended(cluster: NomadCluster, ids: list[str]) -> bool:
    return all(state.run is JobRun.ENDED for state in cluster.states(ids).values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_fleet_of_jobs_runs_once_each_on_a_bad_network(
    cluster: NomadCluster, proxy: FaultProxy, nomad_cluster: LoopbackNomad, seed: int
) -> None:
    ids = [f"benchmark-{number}" for number in range(40)]
    proxy.choose, proxy.choose_stream = seldom(seed, 0.25), any_stream(seed)
    for job_id in ids:
        hcl = a_job("pass", where("family", "=", "rpi5"), job_id=job_id)
        for _ in range(20):
            try:
                cluster.dispatch(job_id, hcl, {TOKEN: "t"})
            except ClusterUnreachable:
                continue
            except JobExists:
                pass
            break
    proxy.choose = lambda method, path: None
    eventually(lambda: all_ended(cluster, ids), "all end")
    assert set(cluster.states(ids)) == set(ids)
    assert sum(proxy.done.values()) > 20
    allocations = nomad_cluster.call("GET", "/v1/allocations?namespace=edgeyard")
    ran = sorted(each["JobID"] for each in allocations if each["JobID"] in ids)
    assert ran == sorted(ids)
