"""Attributes of Nomad's nodes: read one by one, seldom, and handed to decisions by name."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from edgeyard.devices.model import Host
from edgeyard.errors import ClusterUnreachable
from edgeyard.plugins.testing import board, pending
from edgeyard.scheduler.clusters.nomad.node_attributes import (
    MAX_CHARACTERS,
    READ_S,
    READ_TOGETHER,
    REFRESH_INTERVAL_S,
    RETRY_INTERVAL_S,
    NodeAttributes,
    attributes_of_node,
)
from edgeyard.scheduler.clusters.nomad.nodes import hosts_of
from edgeyard.scheduler.model.benchmark import Constraint, WaitingReason
from edgeyard.scheduler.twin.twin import Twin
from tests.builders.decision import cycle, places

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
A, B = "rpi4b-0001-0001", "rpi4b-0001-0002"
ARCH = "${attr.cpu.arch}"


def listed(name: str) -> Host:
    (host,) = hosts_of([{"ID": name, "Name": name, "NodeClass": "edge"}], "daiedge/edgedevice")
    return host


class Nodes:
    """Answers with the rack of each node."""

    def __init__(self) -> None:
        self.rack = "one"
        self.asked: list[str] = []
        self.broken = ""
        self.now_s = 0.0
        self.takes_s = 0.0

    def __call__(self, node_id: str) -> dict[str, object]:
        self.asked.append(node_id)
        self.now_s += self.takes_s
        if self.broken and node_id.startswith(self.broken):
            raise ClusterUnreachable("no answer")
        return {"Attributes": {"cpu.arch": "arm64"}, "Meta": {"rack": self.rack}}


def test_a_node_has_its_class_its_attributes_and_its_metadata() -> None:
    (host,) = NodeAttributes(Nodes()).added([listed("a")])
    assert host.attributes["${node.class}"] == "edge"
    assert host.attributes[ARCH] == "arm64"
    assert host.attributes["${meta.rack}"] == "one"


def test_what_no_constraint_can_name_or_compare_is_left_out() -> None:
    node = {
        "Attributes": {"cpu.arch": "arm64", "a b": "x", "n": 1, "long": "x" * (MAX_CHARACTERS + 1)},
        "Meta": None,
    }
    assert attributes_of_node(node) == {ARCH: "arm64"}
    assert attributes_of_node({}) == {}


def test_a_node_is_read_again_only_when_it_changed_and_seldom() -> None:
    nodes = Nodes()
    known = NodeAttributes(nodes, lambda: nodes.now_s)
    first = listed("a")
    (before,) = known.added([first])
    (again,) = known.added([first])
    assert again is before  # so that nothing that was made of it is made anew
    changed = listed("a")
    nodes.rack, nodes.now_s = "two", REFRESH_INTERVAL_S - 1
    assert known.added([changed])[0].attributes["${meta.rack}"] == "one"
    assert nodes.asked == ["a"]
    nodes.now_s = REFRESH_INTERVAL_S
    assert known.added([changed])[0].attributes["${meta.rack}"] == "two"
    nodes.now_s = 10 * REFRESH_INTERVAL_S
    known.added([changed])
    assert nodes.asked == ["a", "a"]


def test_a_large_lab_is_read_at_once_and_again_in_parts() -> None:
    nodes = Nodes()
    known = NodeAttributes(nodes, lambda: nodes.now_s)
    names = [f"n{number}" for number in range(READ_TOGETHER + 3)]
    assert all(ARCH in each.attributes for each in known.added([listed(name) for name in names]))
    assert (nodes.asked, known.incomplete) == (names, False)
    nodes.now_s = REFRESH_INTERVAL_S
    hosts = [listed(name) for name in names]
    known.added(hosts)
    assert (len(nodes.asked), known.incomplete) == (len(names) + READ_TOGETHER, True)
    known.added(hosts)
    assert (len(nodes.asked), known.incomplete) == (2 * len(names), False)
    known.added(hosts[:1])  # the others are forgotten
    known.added(hosts[1:2])
    assert nodes.asked[-1] == "n1"


def test_slow_nodes_are_read_in_parts() -> None:
    nodes = Nodes()
    nodes.takes_s = READ_S / 2
    known = NodeAttributes(nodes, lambda: nodes.now_s)
    hosts = [listed(name) for name in "abc"]
    assert [each.attributes_read for each in known.added(hosts)] == [True, True, False]
    assert known.incomplete
    assert all(each.attributes_read for each in known.added(hosts))
    assert (nodes.asked, known.incomplete) == (["a", "b", "c"], False)


def test_a_node_that_can_t_be_read_hides_no_other_and_is_tried_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nodes = Nodes()
    nodes.broken = "a"
    known = NodeAttributes(nodes, lambda: nodes.now_s)
    hosts = [listed("a"), listed("b"), listed("c")]
    for _ in range(3):
        assert [ARCH in each.attributes for each in known.added(hosts)] == [False, True, True]
        assert not known.incomplete
    assert nodes.asked == ["a", "b", "c"]
    assert "no answer" in str([vars(each) for each in caplog.records])
    nodes.now_s = RETRY_INTERVAL_S
    known.added(hosts)
    assert nodes.asked == ["a", "b", "c", "a"]
    known.added(hosts[1:])  # which forgets when it failed
    nodes.broken = ""
    assert known.added(hosts)[0].attributes[ARCH] == "arm64"


def test_a_node_that_can_t_be_read_again_keeps_what_is_known() -> None:
    nodes = Nodes()
    known = NodeAttributes(nodes, lambda: nodes.now_s)
    known.added([listed("a")])
    nodes.broken, nodes.now_s = "a", REFRESH_INTERVAL_S
    (host,) = known.added([listed("a")])
    assert (host.attributes[ARCH], host.attributes_read) == ("arm64", True)


@pytest.mark.parametrize("operator", ["=", "!=", "is_not_set", "is_set"])
def test_no_constraint_holds_for_a_node_that_is_not_read_yet(operator: str) -> None:
    twin = Twin([board(A)])
    twin.refresh([replace(listed("h1"), ready=True, boards=(board(A),))], NOW)
    snapshot = twin.snapshot(NOW, drained={}, holders={}, node_attributes=frozenset({ARCH}))
    own = (Constraint(attribute=ARCH, operator=operator, value="x"),)
    result = cycle(snapshot, [pending("b-1", constraints=own)])
    assert places(result) == {}
    assert not result.never
    assert "not read yet" in result.waiting["b-1"].sentence
    of_list = frozenset({"${node.class}"})  # known from the list
    snapshot = twin.snapshot(NOW, drained={}, holders={}, node_attributes=of_list)
    own = (Constraint(attribute="${node.class}", operator="=", value="edge"),)
    assert places(cycle(snapshot, [pending("b-2", constraints=own)])) == {"b-2": A}


def test_the_snapshot_has_the_attributes_of_nodes_that_are_named_and_no_others() -> None:
    twin = Twin([board(A), board(B)])
    machines = {"h1": "arm64", "h2": "amd64"}
    twin.refresh(
        [
            Host(name, name, True, (each,), attributes={ARCH: arch, "${node.class}": "x"})
            for (name, arch), each in zip(machines.items(), (board(A), board(B)), strict=True)
        ],
        NOW,
    )
    plain = twin.snapshot(NOW, drained={}, holders={})
    assert not any(ARCH in each for each in plain.attributes)
    named = twin.snapshot(NOW, drained={}, holders={}, node_attributes=frozenset({ARCH}))
    assert [each.get(ARCH) for each in named.attributes] == ["arm64", "amd64"]
    assert not any("${node.class}" in each for each in named.attributes)

    own = (Constraint(attribute=ARCH, operator="=", value="amd64"),)
    assert places(cycle(named, [pending("b-1", constraints=own)])) == {"b-1": B}
    nowhere = (Constraint(attribute=ARCH, operator="=", value="riscv64"),)
    result = cycle(named, [pending("b-2", constraints=nowhere)])
    assert places(result) == {}
    waiting = result.waiting["b-2"]
    assert waiting.reason is WaitingReason.CLUSTER_CONSTRAINT
    assert "${attr.cpu.arch} = riscv64" in waiting.sentence
