"""What Nomad's hosts report: boards, the plugin, drivers, versions and clocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from edgeyard.devices.model import Host
from edgeyard.scheduler.clusters.nomad.access import NomadAccess
from edgeyard.scheduler.clusters.nomad.doctor.client import Answer, DoctorClient, NoAnswer
from edgeyard.scheduler.model.finding import Finding, by_reason, named

MIN_VERSION = (1, 11, 2)
"""Earlier ones have known bugs in dispatch and in the accounting of devices."""

MAX_CLOCK_DIFFERENCE_S = 2.0
"""Nomad's clock gives starts in whole seconds; reports have times of their host's clock."""

_NO_QUEUE = "passthrough"
"""Type of the batch queue of a node pool that has none."""

_PROBLEM = "daiedge/boardsfile"  # the plugin's word about a boards file that it can't use
_ASKED_AT_ONCE = 8

Json = Mapping[str, object]


def version_finding(version: str, who: str) -> Finding:
    """Return the finding about the version of a Nomad agent."""
    min_version = ".".join(map(str, MIN_VERSION))
    numbers = tuple(int(part) for part in version.split("-")[0].split(".") if part.isdigit())
    if len(numbers) != 3:
        return Finding(
            check="nomad version", state="unknown", found=f"{who} does not report its own"
        )
    if numbers < MIN_VERSION:
        return Finding(
            check="nomad version",
            state="warning",
            found=f"{who}: {version}, which has bugs in the accounting of devices",
            fix=f"update it to {min_version} or later",
        )
    return Finding(check="nomad version", state="ok", found=f"{who}: {version}")


def host_findings(
    nodes: Sequence[Json], hosts: Sequence[Host], device: str, driver: str
) -> Iterator[Finding]:
    """Yield the plugin, hosts that are out, drivers and versions.

    Args:
        nodes: As Nomad reports them; ``hosts`` are the same, parsed.
        device: ``vendor/type`` of the plugin.
        driver: That jobs name.
    """
    with_boards = [host for host in hosts if host.boards]
    if with_boards:
        hosts_text = named([f"{host.name} ({_boards(len(host.boards))})" for host in with_boards])
        yield Finding(check="plugin", state="ok", found=f"{device} on {hosts_text}")
    else:
        yield Finding(
            check="plugin",
            state="problem",
            found=f"no host has boards of {device}; there are {len(hosts)} hosts",
            fix="install edgeyard-device-plugin on the lab hosts: docs/how-to/lab-hosts.md",
        )
    yield from _without_plugin(nodes, hosts, device)
    out = [host for host in with_boards if not host.ready]
    for reason, names in by_reason((host.name, host.ready_reason) for host in out).items():
        boards = sum(len(host.boards) for host in out if host.ready_reason == reason)
        yield Finding(
            check="host",
            state="warning",
            found=f"{reason}: {named(names)}; {_boards(boards)} out",
            fix=_FIXES.get(reason, "see why it does not report"),
        )
    by_id = {host.host_id: host for host in with_boards if host.ready}
    used = [node for node in nodes if str(node.get("ID")) in by_id]
    yield from _drivers(used, driver)
    for version, names in sorted(_by_version(used).items()):
        finding = version_finding(version, named(names))
        if finding.state != "ok":
            yield finding


_FIXES = {
    "draining": "nomad node drain -disable NODE, once it is done",
    "ineligible": "nomad node eligibility -enable NODE",
    "down": "start its Nomad client, or look after its network",
}


def _without_plugin(nodes: Sequence[Json], hosts: Sequence[Host], device: str) -> Iterator[Finding]:
    troubled: set[str] = set()
    unusable: list[tuple[str, str]] = []
    for node in nodes:
        for group in _groups(node):
            if f"{group.get('Vendor')}/{group.get('Type')}" == _PROBLEM:
                troubled.add(str(node.get("ID")))
                instances = group.get("Instances")
                first = instances[0] if isinstance(instances, list) and instances else {}
                why = str(first.get("HealthDescription") or "") if isinstance(first, dict) else ""
                unusable.append((str(node.get("Name")), why))
    for why, names in by_reason(unusable).items():
        yield Finding(
            check="boards file",
            state="problem",
            found=f"{named(names)}: {why}",
            fix="correct the boards file there; it is read again by itself",
        )
    bare = [host.name for host in hosts if not host.boards and host.host_id not in troubled]
    if bare and len(bare) < len(hosts):
        yield Finding(
            check="plugin",
            state="ok",
            found=f"no boards on {named(bare)}",
            fix="if a host should have boards, see the lines of device_mgr in the log of its "
            f"Nomad agent ({device})",
        )


def _drivers(nodes: Sequence[Json], driver: str) -> Iterator[Finding]:
    bad: list[tuple[str, str]] = []
    for node in nodes:
        drivers = node.get("Drivers")
        said = drivers.get(driver) if isinstance(drivers, Mapping) else None
        if isinstance(said, Mapping) and said.get("Detected") and said.get("Healthy"):
            continue
        why = str(said.get("HealthDescription") or "") if isinstance(said, Mapping) else ""
        bad.append((str(node.get("Name")), why))
    for why, names in by_reason(bad).items():
        yield Finding(
            check="driver",
            state="problem",
            found=f"no healthy {driver} on {named(names)}" + (f": {why}" if why else ""),
            fix=_DRIVER_FIXES.get(driver, "enable it there"),
        )
    good = len(nodes) - len(bad)
    if good:
        yield Finding(check="driver", state="ok", found=f"{driver} on {good} of {len(nodes)} hosts")


_DRIVER_FIXES = {
    "docker": "start Docker there, or set EDGEYARD_DRIVER=raw_exec",
    "raw_exec": 'enable it there (plugin "raw_exec"), or set EDGEYARD_DRIVER=docker',
}


def served_findings(
    nodes: Sequence[Json], hosts: Sequence[Host], access: NomadAccess
) -> Iterator[Finding]:
    """Yield whether hosts with boards are in the datacenters and the node pool of the settings.

    Args:
        nodes: As Nomad reports them; ``hosts`` are the same, parsed.
        access: With the names that jobs state.
    """
    by_id = {str(node.get("ID")): node for node in nodes}
    places = {
        host.name: _place(by_id[host.host_id])
        for host in hosts
        if host.boards and host.host_id in by_id
    }
    for part, (check, setting, stated, prefix) in enumerate(
        (
            ("datacenters", "datacenters", access.datacenters, ""),
            ("node pool", "node_pool", (access.node_pool,), "one of "),
        )
    ):
        there = {name: place[part] for name, place in places.items()}
        out = [name for name, place in places.items() if access.unserved(*place) == setting]
        if out:
            wanted = json.dumps(sorted(set(there.values())))
            yield Finding(
                check=check,
                state="problem" if len(out) == len(places) else "warning",
                found=f"no job can run on {named([f'{name} (in {there[name]})' for name in out])}: "
                f"jobs name {', '.join(stated)}",
                fix=f"set {access.setting(setting)} to {prefix}{wanted}",
            )
        elif places:
            yield Finding(check=check, state="ok", found=", ".join(stated))


def batch_queue_finding(asker: DoctorClient) -> Finding:
    """Return whether the node pool of the settings queues batch jobs, as Nomad 2.1 and later can.

    Such a queue hands Nomad's scheduler one job at a time, in its own order, and waits until that
    job is placed: what Edgeyard decided for other boards meanwhile would wait behind it.
    """
    pool = asker.access.node_pool
    answer = asker.ask("/v1/queue/jobs", node_pool=pool, per_page="1")
    kind = answer.at("Type")
    if answer.status == HTTPStatus.NOT_FOUND or kind == _NO_QUEUE:
        return Finding(check="batch queue", state="ok", found=f"node pool {pool} has none")
    if not answer.ok or not isinstance(kind, str):
        return Finding(
            check="batch queue",
            state="unknown",
            found="the token may not list jobs"
            if answer.denied
            else f"Nomad does not report whether node pool {pool} has one: {answer.said}",
        )
    return Finding(
        check="batch queue",
        state="problem",
        found=f"node pool {pool} has a queue of batch jobs ({kind}): Nomad starts one job at a "
        "time, in its order, and a job that waits for its board stops all others",
        fix=f"take the block batch_queue from the specification of node pool {pool} (nomad node "
        f"pool apply), or set {asker.access.setting('node_pool')} to a pool without one",
    )


def is_served(node: Json, access: NomadAccess) -> bool:
    """Return whether jobs may run on a node."""
    return not access.unserved(*_place(node))


def _place(node: Json) -> tuple[str, str]:
    """Return the datacenter and the node pool of a node."""
    return str(node.get("Datacenter") or ""), str(node.get("NodePool") or "default")


def clock_findings(asker: DoctorClient, answer: Answer, hosts: Sequence[Host]) -> Iterator[Finding]:
    """Yield how far Nomad's clock and those of its hosts are from ours.

    Args:
        answer: Of Nomad's server, with its time.
    """
    found: list[tuple[str, str]] = []
    if answer.date is not None:
        at = answer.date.timestamp()  # cut to whole seconds
        found.append(("the server", _apart(at, at + 1.0, answer.asked_at)))
    unknown: list[tuple[str, str]] = []
    with ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="doctor") as pool:
        for host, (apart, why) in zip(
            hosts, pool.map(lambda host: _clock_of(asker, host), hosts), strict=True
        ):
            (unknown if why else found).append((host.name, why or apart))
    for apart, names in by_reason(found).items():
        if apart:
            yield Finding(
                check="nomad clock",
                state="warning",
                found=f"{apart} this machine's: {named(names)}",
                fix="let all machines follow NTP; until then the server corrects starts and times "
                "by the difference",
            )
        else:
            agree = f"agrees with this machine's: {named(names)}"
            yield Finding(check="nomad clock", state="ok", found=agree)
    for why, names in by_reason(unknown).items():
        yield Finding(
            check="nomad clock", state="unknown", found=f"not known of {named(names)}: {why}"
        )


def _clock_of(asker: DoctorClient, host: Host) -> tuple[str, str]:
    """Return how far a host's clock is from ours, "" for not at all; and why it is not known."""
    try:
        answer = asker.ask("/v1/client/stats", node_id=host.host_id)
    except NoAnswer as error:
        return "", str(error)
    reported = answer.at("Timestamp")  # its own clock, nanoseconds
    if not isinstance(reported, int):
        return "", answer.said
    return _apart(reported / 1e9, reported / 1e9, answer.asked_at), ""


def _apart(low: float, high: float, asked_at: tuple[float, float]) -> str:
    """Describe a clock that stood between ``low`` and ``high`` at some moment of ``asked_at``."""
    before, after = asked_at
    ahead, behind = max(0.0, low - after), max(0.0, before - high)
    difference = max(ahead, behind)
    if difference <= MAX_CLOCK_DIFFERENCE_S:
        return ""
    return f"{difference:.0f} s {'ahead of' if ahead > behind else 'behind'}"


def _by_version(nodes: Sequence[Json]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in nodes:
        found.setdefault(str(node.get("Version") or ""), []).append(str(node.get("Name")))
    return found


def _groups(node: Json) -> list[Json]:
    resources = node.get("NodeResources")
    groups = resources.get("Devices") if isinstance(resources, Mapping) else None
    return [each for each in groups or () if isinstance(each, Mapping)]


def _boards(count: int) -> str:
    return f"{count} board{'' if count == 1 else 's'}"
