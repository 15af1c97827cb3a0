"""Edgeyard's environments for Gymnasium; importing this module makes them known to it.

``edgeyard/Cluster-v0`` is the paper's cluster, ``edgeyard/Boards-v0`` a lab of boards with all
installed plugins; ``docs/how-to/environments.md`` describes both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium

import edgeyard.training.cluster_environment  # noqa: F401  # registers Cluster-v0
from edgeyard.plugins.builtin import registry
from edgeyard.simulator.scenario import Scenario
from edgeyard.simulator.scenario_db import scenario_named
from edgeyard.training.board_environment import BoardsEnv as _BoardsEnv


class BoardsEnv(_BoardsEnv):
    """A lab of boards whose policies may name any installed plugin."""

    def __init__(
        self, *, scenario: str | Path | Scenario = "steady", db: str | None = None, **options: Any
    ) -> None:
        """Take the options of `edgeyard.training.board_environment.BoardsEnv`.

        Args:
            scenario: Of Edgeyard, of a file, or of the local ScenarioDB; or the scenario itself.
            db: The ScenarioDB, an SQLite file or a URL; None: as ``edgeyard scenarios`` has it.
            options: All others.
        """
        if not isinstance(scenario, Scenario):
            scenario = scenario_named(scenario, db)
        super().__init__(**{"known": registry(), "scenario": scenario, **options})


if "edgeyard/Boards-v0" not in gymnasium.registry:
    gymnasium.register(
        id="edgeyard/Boards-v0", entry_point="edgeyard.training.environments:BoardsEnv"
    )
