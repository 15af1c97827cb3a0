"""What Nomad's hosts tell of themselves: boards, the plugin, drivers, versions and clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from edgeyard.devices.model import Host
from edgeyard.scheduler.clusters.nomad.doctor.asking import Answer, Asker, NoAnswer
from edgeyard.scheduler.model.finding import Finding

LEAST_VERSION = (1, 11, 2)
"""Earlier ones have known bugs in dispatch and in the accounting of devices."""

MOST_CLOCK_DIFFERENCE_S = 2.0
"""Starts are kept to the second, by Nomad's clock; reports tell times by their host's."""

_PROBLEM = "daiedge/boardsfile"  # the plugin's word about a boards file that it can't use
_ASKED_AT_ONCE = 8
_MOST_NAMED = 20

Json = Mapping[str, object]
T = TypeVar("T")


def version_finding(version: str, who: str) -> Finding:
    """Of an agent."""
    least = ".".join(map(str, LEAST_VERSION))
    numbers = tuple(int(part) for part in version.split("-")[0].split(".") if part.isdigit())
    if len(numbers) != 3:
        return Finding(check="nomad version", state="unknown", found=f"{who} does not tell its own")
    if numbers < LEAST_VERSION:
        return Finding(
            check="nomad version",
            state="warning",
            found=f"{who}: {version}, which has bugs in the accounting of devices",
            fix=f"update it to {least} or later",
        )
    return Finding(check="nomad version", state="ok", found=f"{who}: {version}")


def host_findings(
    nodes: Sequence[Json], hosts: Sequence[Host], device: str, driver: str
) -> Iterator[Finding]:
    """The plugin, hosts that are out, drivers and versions.

    Args:
        nodes: As Nomad tells them; ``hosts`` is the same, read.
        device: ``vendor/type`` of the plugin.
        driver: That jobs name.
    """
    with_boards = [host for host in hosts if host.boards]
    told = ", ".join(f"{host.name} ({len(host.boards)} boards)" for host in _few(with_boards))
    told += _more(len(with_boards))
    if with_boards:
        yield Finding(check="plugin", state="ok", found=f"{device} on {told}")
    else:
        yield Finding(
            check="plugin",
            state="problem",
            found=f"no host has boards of {device}; there are {len(hosts)} hosts",
            fix="install edgeyard-device-plugin on the lab hosts: docs/how-to/lab-hosts.md",
        )
    yield from _without_plugin(nodes, hosts, device)
    for host in _few([host for host in with_boards if not host.ready]):
        yield Finding(
            check="host",
            state="warning",
            found=f"{host.name} is {host.ready_reason}: its {len(host.boards)} boards are out",
            fix=_FIXES.get(host.ready_reason, "see why it does not report"),
        )
    by_id = {host.host_id: host for host in with_boards if host.ready}
    used = [node for node in nodes if str(node.get("ID")) in by_id]
    yield from _drivers(used, driver)
    for version, names in sorted(_by_version(used).items()):
        finding = version_finding(version, ", ".join(_few(names)) + _more(len(names)))
        if finding.state != "ok":
            yield finding


_FIXES = {
    "draining": "nomad node drain -disable NODE, once it is done",
    "ineligible": "nomad node eligibility -enable NODE",
    "down": "start its Nomad client, or look after its network",
}


def _without_plugin(nodes: Sequence[Json], hosts: Sequence[Host], device: str) -> Iterator[Finding]:
    troubled = set()
    for node in nodes:
        for group in _groups(node):
            if f"{group.get('Vendor')}/{group.get('Type')}" == _PROBLEM:
                troubled.add(str(node.get("ID")))
                instances = group.get("Instances")
                first = instances[0] if isinstance(instances, list) and instances else {}
                why = str(first.get("HealthDescription") or "") if isinstance(first, dict) else ""
                yield Finding(
                    check="boards file",
                    state="problem",
                    found=f"{node.get('Name')}: {why}",
                    fix="correct the boards file there; it is read again by itself",
                )
    bare = [host.name for host in hosts if not host.boards and host.host_id not in troubled]
    if bare and len(bare) < len(hosts):
        yield Finding(
            check="plugin",
            state="ok",
            found=f"no boards on {', '.join(_few(bare))}{_more(len(bare))}",
            fix=f"if there should be: its agent's log, under device_mgr, tells why not ({device})",
        )


def _drivers(nodes: Sequence[Json], driver: str) -> Iterator[Finding]:
    good = []
    for node in nodes:
        drivers = node.get("Drivers")
        said = drivers.get(driver) if isinstance(drivers, Mapping) else None
        if isinstance(said, Mapping) and said.get("Detected") and said.get("Healthy"):
            good.append(node)
            continue
        why = str(said.get("HealthDescription") or "") if isinstance(said, Mapping) else ""
        yield Finding(
            check="driver",
            state="problem",
            found=f"{node.get('Name')} has no healthy {driver}" + (f": {why}" if why else ""),
            fix=_DRIVER_FIXES.get(driver, "enable it there"),
        )
    if good:
        yield Finding(
            check="driver", state="ok", found=f"{driver} on {len(good)} of {len(nodes)} hosts"
        )


_DRIVER_FIXES = {
    "docker": "start Docker there, or set EDGEYARD_DRIVER=raw_exec",
    "raw_exec": 'enable it there (plugin "raw_exec"), or set EDGEYARD_DRIVER=docker',
}


def clock_findings(asker: Asker, answer: Answer, hosts: Sequence[Host]) -> Iterator[Finding]:
    """How far Nomad's clock and those of its hosts are from ours.

    Args:
        answer: Of Nomad's server, with its time.
    """
    if answer.date is not None:
        at = answer.date.timestamp()  # cut to whole seconds
        yield _clock("Nomad's server", at, at + 1.0, answer.asked_at)
    with ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="doctor") as pool:
        found = list(pool.map(lambda host: _clock_of(asker, host), hosts))
    agreeing = [host.name for host, one in zip(hosts, found, strict=True) if one.state == "ok"]
    if agreeing:
        names = f"{', '.join(_few(agreeing))}{_more(len(agreeing))}"
        yield Finding(check="clock", state="ok", found=f"agrees with ours: {names}")
    yield from (one for one in found if one.state != "ok")


def _clock_of(asker: Asker, host: Host) -> Finding:
    try:
        answer = asker.ask("/v1/client/stats", node_id=host.host_id)
    except NoAnswer as error:
        return Finding(check="clock", state="unknown", found=f"of {host.name}: {error}")
    told = answer.at("Timestamp")  # its own clock, nanoseconds
    if not isinstance(told, int):
        return Finding(check="clock", state="unknown", found=f"of {host.name}: {answer.said}")
    return _clock(host.name, told / 1e9, told / 1e9, answer.asked_at)


def _clock(who: str, low: float, high: float, asked_at: tuple[float, float]) -> Finding:
    """Args: ``low`` to ``high``: where its clock stood at some moment of ``asked_at``."""
    before, after = asked_at
    ahead, behind = max(0.0, low - after), max(0.0, before - high)
    difference = max(ahead, behind)
    if difference <= MOST_CLOCK_DIFFERENCE_S:
        return Finding(check="clock", state="ok", found=f"{who}'s agrees with ours")
    return Finding(
        check="clock",
        state="warning",
        found=f"{who} is {difference:.0f} s {'ahead' if ahead > behind else 'behind'}",
        fix="let all follow NTP: starts and reports tell times by these clocks",
    )


def _by_version(nodes: Sequence[Json]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in nodes:
        found.setdefault(str(node.get("Version") or ""), []).append(str(node.get("Name")))
    return found


def _groups(node: Json) -> list[Json]:
    resources = node.get("NodeResources")
    groups = resources.get("Devices") if isinstance(resources, Mapping) else None
    return [each for each in groups or () if isinstance(each, Mapping)]


def _few(items: Sequence[T]) -> Sequence[T]:
    return items[:_MOST_NAMED]


def _more(count: int) -> str:
    return f" and {count - _MOST_NAMED} more" if count > _MOST_NAMED else ""
