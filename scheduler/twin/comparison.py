"""The inventory against what hosts report: what is missing, unknown, or other than expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeyard.devices.model import Board, BoardEngine, Host
from edgeyard.devices.sizes import size_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A value that board and inventory state differently; the stricter one counts."""

    what: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One board.

    Attributes:
        host: Name of its host; "" when none reports it.
        reason: In words.
        differences: Of one that is there and expected.
    """

    target_uid: str
    host: str
    reason: str
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What was found; each sorted by name.

    Attributes:
        missing: Expected, but no ready host reports it.
        unknown: Reported, but not expected.
        differing: Both, but not the same.
    """

    missing: tuple[Finding, ...]
    unknown: tuple[Finding, ...]
    differing: tuple[Finding, ...]


def compare(expected: Sequence[Board], hosts: Sequence[Host]) -> Comparison:
    """Compare board by board."""
    rejected = {uid: why for host in hosts for uid, why in host.rejected}
    reported = {board.target_uid: (board, host) for host in hosts for board in host.boards}
    known = {board.target_uid: board for board in expected}
    missing, unknown, differing = [], [], []
    for uid in sorted(known.keys() | reported.keys()):
        if uid not in reported:
            missing.append(
                Finding(target_uid=uid, host="", reason=rejected.get(uid, "no host reports it"))
            )
            continue
        found, host = reported[uid]
        if uid not in known:
            unknown.append(
                Finding(target_uid=uid, host=host.name, reason="it is not in the inventory")
            )
            continue
        if not host.ready:
            reason = f"its host {host.name} is {host.ready_reason}"
            missing.append(Finding(target_uid=uid, host=host.name, reason=reason))
        differences = tuple(_differences(known[uid], found))
        if differences:
            reason = "; ".join(
                f"{each.what} is {each.found}, not {each.expected}" for each in differences
            )
            differing.append(
                Finding(target_uid=uid, host=host.name, reason=reason, differences=differences)
            )
    return Comparison(missing=tuple(missing), unknown=tuple(unknown), differing=tuple(differing))


def _differences(expected: Board, found: Board) -> list[Difference]:
    pairs = [
        ("family", expected.family, found.family),
        ("ram", size_text(expected.ram_bytes), size_text(found.ram_bytes)),
        ("storage", size_text(expected.storage_bytes), size_text(found.storage_bytes)),
    ]
    here = {engine.name: engine for engine in expected.engines}
    there = {engine.name: engine for engine in found.engines}
    for name in sorted(here.keys() | there.keys()):
        if name not in there or name not in here:
            words = ("offered", "absent") if name in here else ("absent", "offered")
            pairs.append((f"engine {name}", *words))
            continue
        pairs.append((f"types of {name}", _types(here[name]), _types(there[name])))
        for kind in sorted(
            {each.name for each in (*here[name].declared_types, *there[name].declared_types)}
        ):
            pairs.append(
                (
                    f"{kind} of {name}",
                    _declaration(here[name], kind),
                    _declaration(there[name], kind),
                )
            )
        if here[name].version and there[name].version:  # an unstated version is no difference
            pairs.append((f"version of {name}", here[name].version, there[name].version))
    return [
        Difference(what=what, expected=wanted, found=seen)
        for what, wanted, seen in pairs
        if wanted != seen
    ]


def _declaration(engine: BoardEngine, kind: str) -> str:
    declared = engine.declared_type(kind)
    return "not declared" if declared is None else declared.as_text()


def _types(engine: BoardEngine) -> str:
    return ", ".join(sorted(engine.supported_types)) or "none"
