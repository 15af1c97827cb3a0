"""What training adds to ``sim``: logs of other clusters, and sweeps."""

from __future__ import annotations

import typer

from edgeyard.benchmark_api.cli.program import add_group
from edgeyard.simulator.cli.sim import TEXT
from edgeyard.training.cli import sim_replay, sim_sweep


def add_to(app: typer.Typer) -> None:
    """Add the commands to the group."""
    group = add_group(app, "sim", TEXT)
    for module in (sim_replay, sim_sweep):
        module.add_to(group)
