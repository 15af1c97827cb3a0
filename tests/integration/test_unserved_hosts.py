"""Boards of hosts that the settings of the cluster send no job to: seen, named, waited for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from edgeyard.devices.model import Host
from edgeyard.scheduler.clusters.nomad.access import NomadAccess
from edgeyard.scheduler.clusters.nomad.nodes import NodeReader
from edgeyard.scheduler.model.benchmark import Status, WaitingReason
from edgeyard.scheduler.twin.twin import BoardState
from tests.builders.engine import A, B, Lab
from tests.builders.nomad import Json, device, node

ACCESS = NomadAccess(name="lab", datacenters=("dc2", "lab-*"), node_pool="boards")


def hosts(access: NomadAccess, *nodes: Json) -> tuple[Host, ...]:
    """As Nomad reports these nodes to a server with this access."""
    reader = NodeReader("daiedge/edgedevice", access.why_unserved)
    return reader.hosts(json.dumps(nodes).encode())


def report(lab: Lab, monkeypatch: pytest.MonkeyPatch, found: Sequence[Host]) -> None:
    monkeypatch.setattr(lab.cluster, "hosts", lambda: tuple(found))


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (
            {"Datacenter": "dc1", "NodePool": "boards"},
            "its host pi-host is in datacenter dc1, and jobs go to dc2, lab-* only: "
            "see clusters.lab.datacenters",
        ),
        (
            {"Datacenter": "lab-1", "NodePool": "default"},
            "its host pi-host is in node pool default, and jobs go to boards: "
            "see clusters.lab.node_pool",
        ),
    ],
)
def test_a_benchmark_for_them_waits_with_the_setting_and_holds_no_board(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, place: Json, why: str
) -> None:
    out = hosts(ACCESS, node(device(A), device(B), **place))
    report(lab, monkeypatch, out)
    benchmark_id = lab.submit()
    lab.turn()
    shown = lab.show(benchmark_id)
    assert (shown.status, lab.cluster.dispatched) == (Status.PENDING, [])
    assert shown.waiting is not None
    assert shown.waiting.reason is WaitingReason.BOARD_OFFLINE
    assert why in shown.waiting.sentence
    views = lab.refresher.twin.views(drained={}, holders={})
    assert {(each.state, each.reason) for each in views} == {(BoardState.OFFLINE, why)}
    report(lab, monkeypatch, hosts(ACCESS, node(device(A), Datacenter="lab-1", NodePool="boards")))
    lab.turn()
    assert lab.show(benchmark_id).status is Status.SCHEDULED


def test_another_host_s_board_is_used_meanwhile(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    found = hosts(
        ACCESS,
        node(device(A), Datacenter="dc1", NodePool="boards"),
        node(device(B), ID="node-2", Name="other", Datacenter="dc2", NodePool="boards"),
    )
    report(lab, monkeypatch, found)
    benchmark_id = lab.submit()
    lab.turn()
    assert lab.show(benchmark_id).target_uid == B


def test_every_host_is_in_the_pool_all_and_what_nomad_does_not_state_excludes_none() -> None:
    everywhere = replace(ACCESS, datacenters=("*",), node_pool="all")
    (host,) = hosts(everywhere, node(device(A), Datacenter="dc1", NodePool="x"))
    assert host.ready
    (host,) = hosts(ACCESS, node(device(A)))
    assert host.ready
    (host,) = hosts(ACCESS, node(device(A), Status="down", Datacenter="dc1", NodePool="x"))
    assert host.ready_reason == "down"
