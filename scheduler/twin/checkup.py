"""The inventory's part of ``edgeyard doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgeyard.devices.model import Board, Host
from edgeyard.scheduler.model.finding import Finding, by_reason, named
from edgeyard.scheduler.twin.comparison import compare

_MAX_SHOWN = 20  # of each kind


def board_findings(
    expected: Sequence[Board], unknown_devices: str, hosts: Sequence[Host]
) -> Iterator[Finding]:
    """Return boards that are missing, unknown, other than expected, or not well.

    Args:
        unknown_devices: What is done with unknown ones: ``deny``, ``warn`` or ``allow``.
    """
    found = compare(expected, hosts)
    missing = {each.target_uid for each in found.missing}
    here = len(expected) - len(missing)
    yield Finding(
        check="nomad boards",
        state="ok" if here else "problem",
        found=f"{here} of {len(expected)} expected boards are there",
        fix="" if here else "name the lab's boards in the inventory, or start their hosts",
    )
    yield from _warnings(
        "board missing",
        [
            f"{named(uids)}: {reason}"
            for reason, uids in by_reason(
                (each.target_uid, each.reason) for each in found.missing
            ).items()
        ],
        "start its host, or remove it from the inventory",
    )
    used = "they are never used" if unknown_devices == "deny" else "they are used"
    lines = [f"{each.target_uid}: {each.reason}" for each in found.differing]
    yield from _warnings("board differs", lines, "correct the inventory or the host's boards file")
    if unknown_devices != "allow":
        by_host: dict[str, list[str]] = {}
        for each in found.unknown:
            by_host.setdefault(each.host, []).append(each.target_uid)
        lines = [f"on {host}, {used}: {named(uids)}" for host, uids in by_host.items()]
        yield from _warnings("board unknown", lines, "add them to the inventory if they are yours")
    lines = [
        f"{board.target_uid} on {host.name}: {board.health_reason}"
        for host in hosts
        if host.ready
        for board in host.boards
        if not board.healthy
    ]
    yield from _warnings(
        "board unhealthy",
        lines,
        "repair it: nothing is placed on it until its host reports it as healthy",
    )


def _warnings(check: str, lines: Sequence[str], fix: str) -> Iterator[Finding]:
    for line in lines[:_MAX_SHOWN]:
        yield Finding(check=check, state="warning", found=line, fix=fix)
    if len(lines) > _MAX_SHOWN:
        more = f"{len(lines) - _MAX_SHOWN} more: edgeyard boards check"
        yield Finding(check=check, state="warning", found=more, fix=fix)
