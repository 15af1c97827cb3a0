"""Canaries: reference models that measure the lab's own boards while they would stand idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from edgeyard.devices.model import ENGINE_PATTERN

CANARY_USER = "edgeyard-canary"
"""The user as whom Edgeyard runs canaries: bounded by nothing, charged for nothing, and below all
others in every decision."""

CANARY_LINEAGE = "canary/"
"""Begin of the names of canaries' series; those of other users are no canaries'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryModel:
    """A reference model.

    Attributes:
        name: Its series is `CANARY_LINEAGE` with this name.
        engine: The engine that runs it; boards without it do not.
        path: Its file.
    """

    name: str
    engine: str
    path: Path


def stated_canaries(stated: Sequence[str]) -> tuple[CanaryModel, ...]:
    """Return the reference models that an operator states.

    Args:
        stated: ``ENGINE:FILE`` each.

    Raises:
        ValueError: One is malformed, its file can't be read, or two have one name.
    """
    found = []
    for each in stated:
        engine, colon, path = each.partition(":")
        if not colon or ENGINE_PATTERN.fullmatch(engine) is None:
            raise ValueError(f"{each!r} is not ENGINE:FILE")
        file = Path(path)
        if not file.is_file():
            raise ValueError(f"there is no file {path}")
        found.append(CanaryModel(name=file.stem, engine=engine, path=file))
    names = [each.name for each in found]
    if twice := sorted({each for each in names if names.count(each) > 1}):
        raise ValueError(f"two files are named {twice[0]}: their series would be one")
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryBoard:
    """What the canaries of one board depend on.

    Attributes:
        target_uid: The board.
        facts: What may change its numbers, by name: its host, firmware, kernel, engines.
        changed_at: When these facts were first seen. Each canary is due once after that.
        next_at: When the next canary is due.
        benchmark_id: The canary that is under way; None: none is.
        measured: By name of the canary, when the newest one that ended by itself was submitted.
    """

    target_uid: str
    facts: Mapping[str, str]
    changed_at: datetime
    next_at: datetime
    benchmark_id: str | None = None
    measured: Mapping[str, datetime] = field(default_factory=dict)
