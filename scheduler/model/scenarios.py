"""What the store knows of scenarios, and of the simulations that ran on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")
"""Form of a tag of a scenario."""

MAX_TAGS = 50
"""Tags of one scenario."""

MIN_HASH_DIGITS = 6
"""Digits of a hash from which on its beginning names a scenario."""


class SimulationState(StrEnum):
    """State of a stored simulation."""

    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredScenario:
    """A scenario without its content, which the store has as JSON by its hash.

    Attributes:
        sha256: Hash of the scenario, by which everything refers to it.
        name: Need not be unique: a name means the newest scenario that has it.
        world: ``boards`` or ``nodes``.
        duration_s: Virtual time that it covers, seconds.
        jobs: How many jobs it lists; None: it describes arrivals.
        source: Where it comes from, in words: the command or the address.
        size_bytes: Of its JSON.
        by_user_id: Who stored it; "": a database of one person.
    """

    sha256: str
    name: str
    world: str
    seed: int
    duration_s: float
    description: str = ""
    jobs: int | None = None
    tags: tuple[str, ...] = ()
    source: str = ""
    size_bytes: int = 0
    created_at: datetime
    by_user_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSimulation:
    """One run of one policy on one scenario.

    Attributes:
        run_id: Chosen by the program that runs it.
        kind: Which program: ``sim``, ``ste``, ….
        scenario: Hash of the scenario, which is stored, too.
        scenario_name: Its name when the simulation began.
        policy: Name, or name and version.
        version: Of Edgeyard.
        metrics: Plain JSON values.
        columns_file: File with the columns of each job, on the machine that ran it; None: none.
        wall_s: Real time that it took, seconds.
        by_user_id: Who stored it; "": a database of one person.
    """

    run_id: str
    kind: str = "sim"
    state: SimulationState = SimulationState.COMPLETED
    scenario: str
    scenario_name: str
    policy: str
    seed: int
    version: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    columns_file: str | None = None
    wall_s: float | None = None
    created_at: datetime
    by_user_id: str = ""
