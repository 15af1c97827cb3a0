"""Edgeyard's environments for Gymnasium; importing this module makes them known to it.

``edgeyard/Cluster-v0`` is the paper's cluster, ``edgeyard/Boards-v0`` a lab of boards with all
installed plugins; ``docs/how-to/environments.md`` describes both.
"""

from __future__ import annotations

from typing import Any

import gymnasium

import edgeyard.scheduler.sim.environments  # noqa: F401  # registers Cluster-v0
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.sim.board_environment import BoardsEnv as _BoardsEnv


class BoardsEnv(_BoardsEnv):
    """A lab of boards whose policies may name any installed plugin."""

    def __init__(self, **options: Any) -> None:
        """Take the options of `edgeyard.scheduler.sim.board_environment.BoardsEnv`."""
        super().__init__(**{"resolve": registry().resolve, **options})


if "edgeyard/Boards-v0" not in gymnasium.registry:
    gymnasium.register(
        id="edgeyard/Boards-v0", entry_point="edgeyard.benchmark_api.environments:BoardsEnv"
    )
