"""The one vocabulary of device attributes: hosts publish it, the twin and embedded boards read it.

===================================  =======================================================
``family``                           ``rpi4b``
``engines``                          names, joined by commas: ``ort,tflite``
``engine.<name>.supported_types``    benchmark types, joined by commas: ``TYPE1,TYPE2``
``engine.<name>.type.<TYPE>``        declaration of a further type that the engine offers, JSON
``engine.<name>.version``            where the host states it
``memory.ram``, ``memory.storage``   bytes
``target_uid``                       ``rpi4b-0001-0001``
``cpu.arch``, ``cpu.model``          ``aarch64``, ``Cortex-A72``
``cpu.cores``                        that a benchmark may use
``cpu.duty_cycle``                   share of the time that an emulated board computes, below 1
``os.name``, ``os.kernel``           as ``cpu.model``
``accelerators``                     names, joined by commas, or ``none``
``engine.<name>.execution_providers`` names, joined by commas, if the engine has such
``dynamic.progress``                 0-100; 0 when idle; missing when the board reports none
``dynamic.status``                   ``idle``, ``busy`` or ``unhealthy``
``dynamic.last_error``               why it was last found unhealthy, in words; missing before that
``dynamic.temperature_c``            of its hottest zone, °C, where the board reports it
``dynamic.power_w``                  what it draws, W, where the board reports it
===================================  =======================================================

Imported on boards too: only the standard library, Python 3.10.
"""

from functools import lru_cache
from typing import Dict, List, Mapping, Optional, Tuple

from edgeyard.devices.benchmark_types import (
    STANDARD_TYPES,
    DeclaredType,
    check_declared_types,
    declared_type_of_text,
)
from edgeyard.devices.model import (
    ENGINE_PATTERN,
    FAMILY_PATTERN,
    TARGET_UID_PATTERN,
    AttributeValue,
    Board,
    BoardEngine,
)
from edgeyard.errors import ConfigError

SIZES_IN_BYTES = frozenset({"memory.ram", "memory.storage"})
"""Attributes that are whole numbers of bytes; people may write their values with a unit."""

MEANINGS: Mapping[str, str] = {
    "family": "kind of board",
    "engines": "engines, joined by commas",
    "memory.ram": "memory that a benchmark may use, bytes",
    "memory.storage": "storage that a benchmark may use, bytes",
    "target_uid": "id of the board",
    "cpu.arch": "architecture of the processor",
    "cpu.model": "model of the processor",
    "cpu.cores": "cores that a benchmark may use",
    "cpu.duty_cycle": "share of the time that an emulated board computes",
    "os.name": "operating system",
    "accelerators": "accelerators by their drivers, joined by commas, or none",
    "os.kernel": "version of the kernel",
    "dynamic.progress": "progress of its task, %",
    "dynamic.status": "idle, busy or unhealthy",
    "dynamic.last_error": "why it was last found unhealthy",
    "dynamic.temperature_c": "temperature of its hottest zone, °C",
    "dynamic.power_w": "power that it draws, W",
}
"""What the attributes of the vocabulary mean, for people; see `meaning`."""


ENGINE_MEANINGS: Mapping[str, str] = {
    "version": "version of {}",
    "supported_types": "benchmark types of {}, joined by commas",
    "execution_providers": "execution providers of {}, joined by commas",
}
"""Meanings of the attributes of an engine, by the last part of their names."""


def meaning(name: str) -> str:
    """Return what an attribute means; "" if its host defines it."""
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "engine" and parts[2] == "type":
        return f"declaration of {parts[3]} of {parts[1]}, as JSON"
    if len(parts) == 3 and parts[0] == "engine":
        return ENGINE_MEANINGS.get(parts[2], "").format(parts[1])
    return MEANINGS.get(name, "")


PROGRESS = "dynamic.progress"
"""The attribute with the progress of the task that a board runs. A board that comes free shows its
last one for a moment."""

LAST_ERROR = "dynamic.last_error"
TEMPERATURE_C = "dynamic.temperature_c"
POWER_W = "dynamic.power_w"


def attributes_of(board: Board) -> Dict[str, AttributeValue]:
    """Return what a board's host publishes; further attributes never hide the vocabulary."""
    found: Dict[str, AttributeValue] = dict(board.attributes)
    found.update(
        {
            "family": board.family,
            "engines": ",".join(sorted(engine.name for engine in board.engines)),
            "memory.ram": board.ram_bytes,
            "memory.storage": board.storage_bytes,
            "target_uid": board.target_uid,
            "dynamic.status": _status(board),
        }
    )
    for engine in board.engines:
        found[f"engine.{engine.name}.supported_types"] = ",".join(sorted(engine.supported_types))
        for declared in engine.declared_types:
            found[f"engine.{engine.name}.type.{declared.name}"] = declared.as_text()
        if engine.version:
            found[f"engine.{engine.name}.version"] = engine.version
    if board.progress is None:
        found.pop(PROGRESS, None)
    else:
        found[PROGRESS] = board.progress
    return found


def board_from_attributes(
    attributes: Mapping[str, AttributeValue], *, healthy: bool = True, health_reason: str = ""
) -> Board:
    """Return the board that a host's attributes describe.

    Args:
        attributes: As published; whatever the vocabulary doesn't name is kept as it is.
        healthy: What the host reports next to its attributes.
        health_reason: Why not, in words.

    Raises:
        ConfigError: They describe no board; every mistake is named.
    """
    problems: List[str] = []
    uid = _text(attributes, "target_uid", problems)
    family = _text(attributes, "family", problems)
    if uid and not TARGET_UID_PATTERN.fullmatch(uid):
        problems.append(f"target_uid: {uid!r} is not <family>-NNNN-NNNN")
    if family and not FAMILY_PATTERN.fullmatch(family):
        problems.append(f"family: {family!r} is not a family's name")
    if uid and family and not uid.startswith(f"{family}-"):
        problems.append(f"target_uid: {uid!r} is not of family {family!r}")
    engines = _engines(attributes, _text(attributes, "engines", problems), problems)
    ram_bytes = _size(attributes, "memory.ram", problems)
    storage_bytes = _size(attributes, "memory.storage", problems)
    if problems:
        raise ConfigError([f"attribute {problem}" for problem in problems])
    status = attributes.get("dynamic.status")
    fields = _field_names(engines)
    return Board(
        target_uid=uid,
        family=family,
        ram_bytes=ram_bytes,
        storage_bytes=storage_bytes,
        engines=engines,
        healthy=healthy and status != "unhealthy",
        health_reason=health_reason
        or ("its host reports it as unhealthy" if status == "unhealthy" else ""),
        busy=status == "busy",
        progress=_progress(attributes.get(PROGRESS)),
        attributes={name: value for name, value in attributes.items() if name not in fields},
    )


@lru_cache(maxsize=4096)
def members(text: str) -> "frozenset[str]":
    """Return the names of a list that commas separate."""
    return frozenset(part.strip() for part in text.split(","))


def _status(board: Board) -> str:
    if not board.healthy:
        return "unhealthy"
    return "busy" if board.busy else "idle"


def _text(attributes: Mapping[str, AttributeValue], name: str, problems: List[str]) -> str:
    value = attributes.get(name)
    if isinstance(value, str):
        return value
    problems.append(f"{name}: missing" if value is None else f"{name}: {value!r} is not text")
    return ""


def _size(attributes: Mapping[str, AttributeValue], name: str, problems: List[str]) -> int:
    value = attributes.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < (1 << 63):
        return value
    problems.append(f"{name}: {value!r} is not a number of bytes")
    return 0


def _engines(
    attributes: Mapping[str, AttributeValue], names: str, problems: List[str]
) -> Tuple[BoardEngine, ...]:
    found = []
    for name in _names(names):
        if not ENGINE_PATTERN.fullmatch(name):
            problems.append(f"engines: {name!r} is not an engine's name")
            continue
        types = attributes.get(f"engine.{name}.supported_types", "")
        version = attributes.get(f"engine.{name}.version", "")
        types = types if isinstance(types, str) else ""
        prefix = f"engine.{name}.type"
        texts = {
            kind: str(attributes[f"{prefix}.{kind}"])
            for kind in sorted(members(types) - {"", *STANDARD_TYPES})
            if f"{prefix}.{kind}" in attributes
        }
        try:
            check_declared_types(texts)
        except ValueError as error:
            problems.append(f"{prefix}: {error}")
            continue
        declared = []
        for kind, text in texts.items():
            try:
                declared.append(declared_type_of_text(kind, text))
            except ValueError as error:
                problems.append(f"{prefix}.{kind}: {error}")
        found.append(_engine(name, str(version), types, tuple(declared)))
    return tuple(found)


# Boards of a family share what follows.


@lru_cache(maxsize=4096)
def _names(text: str) -> Tuple[str, ...]:
    return tuple(sorted(members(text) - {""}))


@lru_cache(maxsize=4096)
def _field_names(engines: Tuple[BoardEngine, ...]) -> "frozenset[str]":
    """Return the attributes that are fields of a board with these engines."""
    found = {"family", "target_uid", "engines", "memory.ram", "memory.storage"}
    found |= {PROGRESS, "dynamic.status"}
    for engine in engines:
        found |= {f"engine.{engine.name}.supported_types", f"engine.{engine.name}.version"}
        found |= {f"engine.{engine.name}.type.{each.name}" for each in engine.declared_types}
    return frozenset(found)


@lru_cache(maxsize=4096)
def _engine(name: str, version: str, types: str, declared: Tuple[DeclaredType, ...]) -> BoardEngine:
    return BoardEngine(name, version, members(types) - {""}, declared)


def _progress(value: Optional[AttributeValue]) -> Optional[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return None
    return float(min(max(value, 0.0), 100.0))
