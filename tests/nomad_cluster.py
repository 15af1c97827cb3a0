"""A real Nomad for the tests that are marked `nomad`: one server, three clients, a dozen boards."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from deploy.process import on_nomad
from edgeyard import testbed
from edgeyard.errors import ConfigError
from edgeyard.scheduler.clusters.nomad import NomadAccess
from edgeyard.testbed.binary import find_nomad
from tests.reruns import restored_before_rerun

ORT = {"ort": ["TYPE1", "TYPE2"]}
ALL = {"ort": ["TYPE1", "TYPE2", "TYPE3"]}
BOTH = {"ort": ["TYPE1"], "tflite": ["TYPE1", "TYPE3"]}
GIB = 2**30

HEARTBEAT_S = 5.0
"""On a busy machine hosts that live must not be given up, nor dead ones at once."""

_PLUGIN = """#!{python}
# Edgeyard's own plugin, which tells some boards' further attributes beside what it knows.
from edgeyard.devices.edgedevice import service
from edgeyard.devices.edgedevice.__main__ import main

FURTHER = {further!r}
plain = service.attributes_of
service.attributes_of = lambda board: {{**FURTHER.get(board.target_uid, {{}}), **plain(board)}}
main()
"""

FURTHER: Mapping[str, Mapping[str, object]] = {
    "rpi4b-0001-0001": {"soc.vendor": "broadcom", "soc.cores": 4, "npu": False}
}


def entry(
    target_uid: str, engines: Mapping[str, Sequence[str]] = ORT, *, ram_bytes: int = 4 * GIB
) -> dict[str, object]:
    """A board of a ``target.json``."""
    return {
        "target_uid": target_uid,
        "memory": {"ram": ram_bytes, "storage": 16 * GIB},
        "engines": {
            name: {"version": "1", "supported_types": list(types)}
            for name, types in engines.items()
        },
    }


HOSTS: tuple[Mapping[str, Sequence[Mapping[str, object]]], ...] = (
    {
        "rpi4b": [entry("rpi4b-0001-0001"), entry("rpi4b-0001-0002", BOTH)],
        "rpi5": [entry("rpi5-0001-0001", ram_bytes=8 * GIB)],
        "x86": [entry("x86-0001-0001", ALL)],
    },
    {"rpi5": [entry(f"rpi5-0002-{number:04}") for number in range(1, 5)]},
    {"jetsonorinnano": [entry(f"jetsonorinnano-0003-{number:04}", BOTH) for number in range(1, 5)]},
)


def nomad_binary() -> str:
    """The Nomad of `make nomad`; skips where there is none."""
    try:
        return str(find_nomad())
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def nomad_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testbed.LoopbackNomad]:
    """A cluster that all tests of this process share: they end and purge their own jobs."""
    folder = tmp_path_factory.mktemp("nomad")
    plugin = folder / "plugin"
    plugin.write_text(_PLUGIN.format(python=sys.executable, further=FURTHER))
    plugin.chmod(0o755)
    made = testbed.make(
        folder / "cluster", nomad_binary(), HOSTS, plugin=plugin, heartbeat_s=HEARTBEAT_S
    )
    with running_nomad(made) as cluster:
        yield cluster


@contextlib.contextmanager
def running_nomad(cluster: testbed.LoopbackNomad) -> Iterator[testbed.LoopbackNomad]:
    """Start a cluster that several tests share; a test that is run again finds it as it was."""
    cluster.up()
    try:
        with restored_before_rerun(lambda: restore(cluster)):
            yield cluster
    finally:
        cluster.down()


def restore(cluster: testbed.LoopbackNomad) -> None:
    """Undo what a test that failed half-way may have done to a cluster."""
    for agent in cluster.agents:
        if pid := agent.pid:
            os.kill(pid, signal.SIGCONT)
    cluster.start()
    for node in cluster.call("GET", "/v1/nodes"):
        path = f"/v1/node/{node['ID']}/drain"
        cluster.call("POST", path, {"DrainSpec": None, "MarkEligible": True})
    clear(cluster)


def access_of(cluster: testbed.LoopbackNomad) -> NomadAccess:
    """With the least-privilege token."""
    return NomadAccess(
        address=cluster.address, token=cluster.token, namespace=cluster.namespace, timeout_s=10.0
    )


def settings_of(
    cluster: testbed.LoopbackNomad,
    inventory: Path,
    *,
    without: Collection[str] = (),
    offline: Collection[str] = (),
) -> dict[str, str]:
    """Environment of a server on it, whose inventory is written here.

    Args:
        without: Boards that the inventory does not name.
        offline: Boards that the inventory names and no host reports.
    """
    merged: dict[str, list[object]] = {}
    for host in HOSTS:
        for family, boards in host.items():
            known = [each for each in boards if str(each["target_uid"]) not in without]
            merged.setdefault(family, []).extend(known)
    for target_uid in offline:
        merged.setdefault(target_uid.split("-", 1)[0], []).append(entry(target_uid))
    inventory.write_text(json.dumps(merged))
    return on_nomad(cluster, inventory)


def clear(cluster: testbed.LoopbackNomad) -> None:
    """Stop and purge all jobs, and wait until nothing runs."""
    where = f"namespace={cluster.namespace}"
    jobs = cluster.call("GET", f"/v1/jobs?{where}")
    for job in jobs:
        name = job["ID"].replace("/", "%2F")
        cluster.call("DELETE", f"/v1/job/{name}?purge=true&{where}")
    from tests.builders.cluster import eventually

    def idle() -> bool:
        found = cluster.call("GET", f"/v1/allocations?{where}")
        return not any(each["ClientStatus"] in ("pending", "running") for each in found)

    if jobs:
        eventually(idle, "no allocation runs")
    for variable in cluster.call("GET", f"/v1/vars?{where}") or ():
        cluster.call("DELETE", f"/v1/var/{variable['Path']}?{where}")
