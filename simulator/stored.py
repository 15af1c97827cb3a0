"""Scenarios as the store has them, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.scenarios import StoredScenario
from edgeyard.simulator.scenario import (
    Scenario,
    scenario_from_json,
    scenario_hash,
    scenario_to_json,
)


def stored_scenario(
    scenario: Scenario,
    *,
    created_at: datetime,
    tags: Iterable[str] = (),
    source: str = "",
    by_user_id: str = "",
) -> tuple[StoredScenario, str]:
    """Return what the store knows of a scenario, and its JSON.

    Args:
        scenario: The scenario; its own tags are kept.
        created_at: When it is stored.
        tags: Further tags.
        source: Where it comes from, in words.
        by_user_id: Who stores it.

    Raises:
        InvalidInput: A text of it can't be stored.
    """
    try:
        sha256 = scenario_hash(scenario)
    except UnicodeEncodeError as error:
        raise InvalidInput.at(scenario.name, "a text holds a lone surrogate", "Unicode") from error
    body = json.dumps(scenario_to_json(scenario), ensure_ascii=False, separators=(",", ":"))
    return (
        StoredScenario(
            sha256=sha256,
            name=scenario.name,
            world=scenario.world,
            seed=scenario.seed,
            duration_s=scenario.duration_s,
            description=scenario.description,
            jobs=_jobs(scenario),
            tags=tuple(sorted({*scenario.tags, *tags})),
            source=source,
            size_bytes=len(body.encode()),
            created_at=created_at,
            by_user_id=by_user_id,
        ),
        body,
    )


def scenario_of(body: str | Mapping[str, Any], *, tags: Iterable[str]) -> Scenario:
    """Return the scenario of stored JSON, with the tags that it has now.

    Raises:
        InvalidInput: Another version of Edgeyard has stored it, and this one can't read it.
    """
    return msgspec.structs.replace(scenario_from_json(body), tags=tuple(tags))


def _jobs(scenario: Scenario) -> int | None:
    """Return how many jobs a scenario lists; None: some are drawn, or are in a log."""
    lab, nodes = scenario.lab, scenario.nodes
    if (lab is not None and lab.arrivals is not None) or (
        nodes is not None and (nodes.mix is not None or nodes.log)
    ):
        return None
    return len(lab.jobs if lab is not None else nodes.jobs if nodes is not None else ())
