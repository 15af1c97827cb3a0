"""Scenarios in files that commands write: TOML, or JSON by the file's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from edgeyard.benchmark_api.cli.output_files import check_output, write_output
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from edgeyard.simulator.scenario import Scenario


def check_scenario_file(path: Path, flag: str) -> None:
    """Check where a scenario is to be written, before work is done for it.

    Raises:
        InvalidInput: The name ends otherwise than a scenario's, the folder is missing, or the path
            is a folder; names the flag.
    """
    check_output(path, flag)
    if path.suffix not in (".toml", ".json"):
        accepted = f"{path.stem or 'scenario'}.toml or .json"
        raise InvalidInput.at(flag, f"{path.name} is not a file name for a scenario", accepted)


def write_scenario(path: Path, flag: str, scenario: Scenario) -> None:
    """Write a scenario to a file, whole or not at all."""
    write_output(path, flag, scenario_text(scenario, as_json=path.suffix == ".json"))


def scenario_text(scenario: Scenario, *, as_json: bool) -> str:
    """Return a scenario as text."""
    from edgeyard.simulator.scenario import scenario_to_json, scenario_to_toml

    if as_json:
        return json.dumps(scenario_to_json(scenario), indent=1) + "\n"
    return scenario_to_toml(scenario)
