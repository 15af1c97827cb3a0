"""A Nomad on loopback and an Edgeyard in front of it, as the figures need them."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import deploy.nomad
from deploy.process import Server, edgeyard, on_nomad
from edgeyard import testbed

CONNECTIONS = 4
"""To Nomad, or to the server: of ours and of the peer."""

UNPLACEABLE_MIB = 16 * 2**20
"""Memory that no host has: jobs are registered and looked at by Nomad, but never run, so that tasks
take no time of the two cores that are measured."""

Boards = Mapping[str, Sequence[object]]


def boards(family: str, count: int) -> Boards:
    """A host's ``target.json``."""
    return {family: [_board(f"{family}-0001-{number:04}") for number in range(1, count + 1)]}


def _board(target_uid: str) -> object:
    return {
        "target_uid": target_uid,
        "memory": {"ram": 4 * 2**30, "storage": 16 * 2**30},
        "engines": {"ort": {"version": "1", "supported_types": ["TYPE1", "TYPE2"]}},
    }


@contextmanager
def nomad(folder: Path, hosts: Sequence[Boards]) -> Iterator[testbed.LoopbackNomad]:
    """One server, and a client for each of the hosts."""
    build = Path(deploy.nomad.__file__).with_name("build")
    binary = subprocess.run([build], check=True, capture_output=True, text=True).stdout.strip()
    folder.mkdir()
    running = testbed.make(folder, binary, hosts).up()
    try:
        yield running
    finally:
        running.down()


@contextmanager
def server(
    data_dir: Path, cluster: testbed.LoopbackNomad, hosts: Sequence[Boards], **environment: str
) -> Iterator[Server]:
    """An Edgeyard that expects all boards of these hosts."""
    inventory = data_dir.with_suffix(".json")
    inventory.write_text(
        json.dumps({family: group for host in hosts for family, group in host.items()})
    )
    with edgeyard(data_dir, {**on_nomad(cluster, inventory), **environment}) as running:
        yield running


def submitted_at(cluster: testbed.LoopbackNomad) -> dict[str, float]:
    """When Nomad took each job in, seconds since the epoch, by job id."""
    found = cluster.call("GET", f"/v1/jobs?namespace={cluster.namespace}")
    return {each["ID"]: each["SubmitTime"] / 1e9 for each in found}


def clear(cluster: testbed.LoopbackNomad) -> None:
    """Purge all jobs and secrets, so that every measurement finds Nomad alike."""
    where = f"namespace={cluster.namespace}"
    for job_id in submitted_at(cluster):
        cluster.call("DELETE", f"/v1/job/{job_id.replace('/', '%2F')}?purge=true&{where}")
    secrets = cluster.call("GET", f"/v1/vars?{where}") or []
    for secret in secrets:
        cluster.call("DELETE", f"/v1/var/{secret['Path']}?{where}")
    cluster.call("PUT", "/v1/system/gc")
    time.sleep(1.0)  # evaluations of what went
