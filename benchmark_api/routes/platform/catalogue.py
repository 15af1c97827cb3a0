"""Families of boards and engines, as the platform's client lists them."""

from __future__ import annotations

from collections.abc import Sequence

from edgeyard.benchmark_api.schemas import parameters
from edgeyard.benchmark_api.services import Services
from edgeyard.devices.inventory import known_families
from edgeyard.devices.model import Board
from edgeyard.devices.runner.engines import BUILT_IN
from edgeyard.scheduler.model.registration import Registration
from edgeyard.scheduler.model.strict_json import JsonObject

MODEL_SUFFIXES = frozenset(suffix for each in BUILT_IN.values() for suffix in each.suffixes)


def boards(services: Services) -> list[Board]:
    """Return all boards that may be used."""
    expected, others = services.usable_boards()
    return [*expected, *others]


def families(services: Services) -> dict[str, JsonObject]:
    """Return families that have a board, by name."""
    facts = known_families()
    found: dict[str, JsonObject] = {}
    for name in sorted({each.family for each in boards(services)}):
        known = facts.get(name)
        found[name] = {
            "id": name,
            "name": name,
            "display_name": known.name if known else name,
            "description": known.description if known else "",
        }
    return found


def engines(services: Services) -> dict[str, JsonObject]:
    """Return engines that a board offers, by name."""
    found: dict[str, JsonObject] = {}
    for name in sorted({engine.name for each in boards(services) for engine in each.engines}):
        built_in = BUILT_IN.get(name)
        found[name] = {
            "id": name,
            "name": name,
            "display_name": name if built_in is None else built_in.display_name,
            "description": "" if built_in is None else built_in.description,
            "supported_file_extensions": [] if built_in is None else list(built_in.suffixes),
            "parameters": [each.as_json() for each in parameters.of_engine(name)],
        }
    return found


def registered(found: Sequence[Registration]) -> dict[str, JsonObject]:
    """Return families or engines that users registered, by name."""
    return {each.name: {"id": each.name, "name": each.name, **each.body} for each in found}


def configurations(services: Services, *, full: bool) -> JsonObject:
    """Return what can be asked for: families with their engines, and engines with their parameters.

    Args:
        services: Of the app.
        full: With each board of a family.
    """
    targets = {}
    for name, family in families(services).items():
        own = [each for each in boards(services) if each.family == name]
        offered: dict[str, set[str]] = {}
        for board in own:
            for engine in board.engines:
                offered.setdefault(engine.name, set()).update(engine.supported_types)
        targets[name] = family | {
            "runtimes": sorted(offered),
            "supported_types": {each: sorted(types) for each, types in sorted(offered.items())},
        }
        if full:
            targets[name]["instances"] = [_board(each) for each in own]
    return {"targets": targets, "runtimes": engines(services)}


def _board(board: Board) -> JsonObject:
    return {
        "target_uid": board.target_uid,
        "memory": {"ram": board.ram_bytes, "storage": board.storage_bytes},
        "engines": {
            engine.name: {
                "version": engine.version,
                "supported_types": sorted(engine.supported_types),
            }
            for engine in board.engines
        },
        "emulated": board.local is not None,
    }
