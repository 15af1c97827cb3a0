"""Scenarios of small labs, and simulations of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.policy import Policy, load_policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.simulator.lab.world import Watch, simulate_lab
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import Scenario, scenario_from_json


def lab_scenario(
    *,
    boards: list[dict[str, Any]] | None = None,
    jobs: list[dict[str, Any]] | None = None,
    duration_s: float = 3600.0,
    drain_s: float = 7 * 86400.0,
    **lab: Any,
) -> Scenario:
    """A scenario of two boards of a family; a job has an id, arrives at 0 and runs for a minute."""
    rows = [
        {"job_id": f"j{row}", "submit_s": 0.0, "run_s": 60.0, "family": "rpi5", **each}
        for row, each in enumerate(jobs or [])
    ]
    return scenario_from_json(
        {
            "name": "small",
            "world": "boards",
            "duration_s": duration_s,
            "drain_s": drain_s,
            "lab": {
                "boards": boards or [{"family": "rpi5", "count": 2}],
                **({"jobs": rows} if rows else {}),
                **lab,
            },
        }
    )


@cache
def _known(name: str) -> tuple[Policy, Plugins]:
    policy = load_policy(name)
    return policy, registry(entry_points=False).resolve(policy)


def simulate(
    scenario: Scenario,
    *,
    seed: int | None = None,
    policy: str = "default",
    watch: Watch | None = None,
    **changes: Any,
) -> SimulatedRun:
    """Simulate under a policy of Edgeyard, perhaps with changed fields."""
    chosen, plugins = _known(policy)
    if changes:
        chosen = replace(chosen, **changes)
        plugins = registry(entry_points=False).resolve(chosen)
    return simulate_lab(scenario, chosen, plugins, seed=seed, watch=watch)
