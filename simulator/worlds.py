"""What simulates the world of a scenario: labs are simulated here, nodes by training."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from edgeyard.errors import ConfigError
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import Scenario

_WORLDS = {
    "boards": ("edgeyard.simulator.lab.world", "simulate_lab"),
    "nodes": ("edgeyard.training.worlds.simulated_nodes", "simulate_nodes"),
}


def simulator_of(scenario: Scenario) -> Callable[..., SimulatedRun]:
    """Return the function that simulates a scenario of this world.

    It is found by its name, because training is above the simulator and may be absent.

    Raises:
        ConfigError: What simulates this world is not installed.
    """
    module, function = _WORLDS[scenario.world]
    try:
        found: Any = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        reason = f"the world {scenario.world!r} of scenario {scenario.name} needs {module}"
        raise ConfigError([f"{reason}, which this installation does not have"]) from error
    simulate: Callable[..., SimulatedRun] = found
    return simulate
