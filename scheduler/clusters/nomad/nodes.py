"""Nomad's nodes and what runs on them → hosts with boards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from edgeyard.devices.attributes import board_from_attributes
from edgeyard.devices.model import TARGET_UID_PATTERN, AttributeValue, Board, Host
from edgeyard.errors import ConfigError

logger = logging.getLogger(__name__)

Json = Mapping[str, object]


class _Attribute(msgspec.Struct, gc=False):
    """An attribute; one of the first four fields is set."""

    String: str | None = None
    Int: int | None = None
    Float: float | None = None
    Bool: bool | None = None
    Unit: str | None = None

    def value(self) -> AttributeValue | None:
        if self.String is not None:
            return self.String
        found = self.Int if self.Int is not None else self.Float
        found = self.Bool if found is None else found
        # With a unit it compares with no plain number; as text it doesn't either.
        return found if found is None or not self.Unit else f"{found} {self.Unit}"


class _Instance(msgspec.Struct):
    ID: str = ""
    Healthy: bool = False
    HealthDescription: str | None = None


class _Group(msgspec.Struct):
    Vendor: str = ""
    Type: str = ""
    Attributes: dict[str, _Attribute | None] | None = None
    Instances: list[_Instance] | None = None


class _Resources(msgspec.Struct):
    Devices: list[_Group] | None = None


class _Node(msgspec.Struct):
    """The part of a node that is parsed; most of the answer is skipped."""

    ID: str = ""
    Name: str = ""
    Status: str = ""
    Drain: bool = False
    SchedulingEligibility: str = ""
    NodeClass: str = ""
    NodePool: str = ""
    Datacenter: str = ""
    NodeResources: _Resources | None = None


WhyUnserved = Callable[[str, str], str]

_TEXTS = msgspec.json.Decoder(list[msgspec.Raw])
_NODE = msgspec.json.Decoder(_Node)


class NodeReader:
    """Parses ``/v1/nodes?resources=true``, each unchanged node once. Thread-safe."""

    def __init__(
        self, device: str, why_unserved: WhyUnserved = lambda datacenter, pool: ""
    ) -> None:
        """Read hosts as `hosts_of` does.

        Args:
            device: Of the boards, as for `hosts_of`.
            why_unserved: Why no job goes to hosts of a datacenter and a node pool, to follow "its
                host X is"; "" where jobs may.
        """
        self._vendor, _, self._kind = device.partition("/")
        self._why_unserved = why_unserved
        self._known: dict[int, Host] = {}

    def hosts(self, content: bytes) -> tuple[Host, ...]:
        """Raise ValueError if the answer is not a list of nodes."""
        found: dict[int, Host] = {}
        known = self._known
        for text in _TEXTS.decode(content):
            # Not by its ModifyIndex: a server that lost its data counts from the start again.
            key = hash(bytes(text))
            found[key] = known.get(key) or self._host(_NODE.decode(text))
        self._known = found
        return tuple(found.values())

    def _host(self, node: _Node) -> Host:
        host = _host(node, self._vendor, self._kind)
        # Where Nomad does not state them, it decides where jobs go.
        named = node.Datacenter and node.NodePool
        why = self._why_unserved(node.Datacenter, node.NodePool) if named and host.ready else ""
        return replace(host, ready=False, ready_reason=why) if why else host


def hosts_of(nodes: Sequence[Json], device: str) -> tuple[Host, ...]:
    """Return every node with the boards that its device plugin announces.

    A node without resources or devices (it just joined, or its plugin is starting) has no boards.

    Args:
        device: ``vendor/type`` of the plugin.

    Raises:
        ValueError: One is no node.
    """
    vendor, _, kind = device.partition("/")
    return tuple(_host(msgspec.convert(node, _Node), vendor, kind) for node in nodes)


def with_holders(
    hosts: Sequence[Host], allocations: Sequence[Json], device: str, reason: Callable[[Json], str]
) -> tuple[Host, ...]:
    """Return the hosts, with every board marked as busy that an allocation holds.

    Args:
        hosts: All of them.
        allocations: Those whose task may run, with their resources.
        device: ``vendor/type`` of the plugin.
        reason: Why a board is busy that this allocation holds, in words.
    """
    vendor, _, kind = device.partition("/")
    holders = {
        (str(allocation.get("NodeID")), uid): reason(allocation)
        for allocation in allocations
        for uid in devices_of(allocation, vendor, kind)
    }
    if not holders:
        return tuple(hosts)
    touched = {node_id for node_id, _ in holders}
    return tuple(
        replace(host, boards=tuple(_held(board, host, holders) for board in host.boards))
        if host.host_id in touched
        else host
        for host in hosts
    )


def devices_of(allocation: Json, vendor: str, kind: str) -> list[str]:
    """Return the boards that an allocation holds, as far as Nomad reports them."""
    return [
        str(uid)
        for task in _values(_at(allocation, "AllocatedResources", "Tasks"))
        for group in _items(_at(task, "Devices"))
        if _at(group, "Vendor") == vendor and _at(group, "Type") == kind
        for uid in _items(_at(group, "DeviceIDs"))
    ]


def _host(node: _Node, vendor: str, kind: str) -> Host:
    reason = _why_not_ready(node)
    name = node.Name or node.ID
    groups = (node.NodeResources and node.NodeResources.Devices) or ()
    boards: list[Board] = []
    rejected: list[tuple[str, str]] = []
    for group in groups:
        if (group.Vendor, group.Type) == (vendor, kind):
            boards += _boards(group, name, rejected)
            continue
        why = f"{name} reports it as a device {group.Vendor}/{group.Type}, not {vendor}/{kind}"
        rejected += [
            (each.ID, why) for each in group.Instances or () if TARGET_UID_PATTERN.match(each.ID)
        ]
    return Host(
        host_id=node.ID,
        name=name,
        ready=not reason,
        ready_reason=reason,
        boards=tuple(boards),
        rejected=tuple(rejected),
        attributes={
            "${node.unique.id}": node.ID,
            "${node.unique.name}": node.Name,
            "${node.class}": node.NodeClass,
            "${node.pool}": node.NodePool,
            "${node.datacenter}": node.Datacenter,
        },
        attributes_read=False,  # the list leaves the others out
    )


def _why_not_ready(node: _Node) -> str:
    if node.Status != "ready":
        return node.Status or "unknown"
    if node.Drain:
        return "draining"
    return "ineligible" if node.SchedulingEligibility not in ("", "eligible") else ""


def _boards(group: _Group, host: str, rejected: list[tuple[str, str]]) -> list[Board]:
    """Return the boards of a device group; the plugin gives each board its own group.

    Args:
        rejected: What is none is added here, with the reason.
    """
    attributes = {
        name: value
        for name, each in (group.Attributes or {}).items()
        if each is not None and (value := each.value()) is not None
    }
    found = []
    for instance in group.Instances or ():
        uid = instance.ID
        reason = "" if instance.Healthy else instance.HealthDescription or "its host says so"
        try:
            board = board_from_attributes(
                attributes, healthy=instance.Healthy, health_reason=reason
            )
        except ConfigError as error:
            logger.warning(
                "a device is not a board",
                extra={"event": "board.unreadable", "host": host, "board": uid, "why": str(error)},
            )
            rejected.append((uid, f"what {host} reports of it is not a board: {error}"))
            continue
        if board.target_uid != uid:
            logger.warning(
                "a device's id is not its board's",
                extra={"event": "board.misnamed", "host": host, "board": uid},
            )
            rejected.append((uid, f"{host} reports it in the group of {board.target_uid}"))
            continue
        # Who holds it is Nomad's to say: the board's own word comes late. But where our token may
        # not see the job, that word is all there is.
        working = board.busy or bool(board.progress)
        found.append(replace(board, busy=False, reports_task=True) if working else board)
    return found


def _held(board: Board, host: Host, holders: Mapping[tuple[str, str], str]) -> Board:
    reason = holders.get((host.host_id, board.target_uid))
    return board if reason is None else replace(board, busy=True, busy_reason=reason)


def _at(value: object, *path: str) -> object:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _values(value: object) -> Sequence[object]:
    return list(value.values()) if isinstance(value, Mapping) else ()
