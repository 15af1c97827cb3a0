"""``sim``: simulate labs in virtual time."""

from __future__ import annotations

import typer

from edgeyard.benchmark_api.cli.program import add_group
from edgeyard.simulator.cli import sim_fit, sim_labs, sim_reports, sim_stored, sim_validate

TEXT = "Simulations: logs and labs in virtual time."


def add_to(app: typer.Typer) -> None:
    """Register the group with its commands."""
    group = add_group(app, "sim", TEXT)
    for module in (sim_labs, sim_fit, sim_validate, sim_reports, sim_stored):
        module.add_to(group)
