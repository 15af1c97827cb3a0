"""``sim fit``: a scenario that is fitted to a lab's recorded history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import Column, console, emit_json, field, show, table
from edgeyard.benchmark_api.cli.output_files import check_output, write_output
from edgeyard.benchmark_api.cli.program import AsJson, echo
from edgeyard.benchmark_api.cli.progress import progress_bar
from edgeyard.benchmark_api.cli.replaying import Config, DataDir
from edgeyard.errors import InvalidInput
from edgeyard.simulator.cli.recorded_history import Export, Since, Until, exported_history

if TYPE_CHECKING:
    from edgeyard.simulator.fitting.estimates import Estimate

_COLUMNS = (
    Column(title="ESTIMATE", of=field("name"), shorten=True),
    Column(title="VALUE", of=field("value"), right=True, whole=True),
    Column(title="95 % INTERVAL", of=field("interval"), right=True, whole=True),
    Column(title="OBSERVATIONS", of=field("observations"), right=True, whole=True),
)


def fit(
    out: Annotated[
        Path,
        typer.Option("-o", "--out", metavar="FILE.toml", help="Write the scenario, with comments."),
    ],
    since: Since = None,
    until: Until = None,
    export: Export = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Fit a scenario to the recorded history of a lab.

    The scenario has the lab's boards, and draws what arrives, how long it runs and what fails as
    the history suggests. Comments in the file state each fitted value with its interval. Reads the
    server's database; the server may keep running.
    """
    from edgeyard.simulator.fitting.scenario import fit_scenario
    from edgeyard.simulator.importers.history import read_history

    check_output(out, "--out")
    if out.suffix != ".toml":
        accepted = f"{out.stem or 'scenario'}.toml, which has comments"
        raise InvalidInput.at("--out", f"{out.name} is not the name of a TOML file", accepted)
    with (
        progress_bar() as advanced,
        exported_history(export, since, until, data_dir, config) as (folder, source),
    ):
        history = read_history(
            folder, source=source, advanced=lambda share: advanced("reading", share)
        )
        fitted = fit_scenario(
            history, name=_name(out), advanced=lambda share: advanced("fitting", share)
        )
    write_output(out, "--out", fitted.to_toml())
    if as_json:
        emit_json(
            {
                "file": str(out),
                "began": fitted.began,
                "ended": fitted.ended,
                "estimates": [_json(each) for each in fitted.estimates],
                "comments": fitted.comments,
            }
        )
        return
    rows = [
        {
            "name": each.name,
            "value": f"{each.value:.4g}",
            "interval": each.interval_text,
            "observations": str(each.observations),
        }
        for each in fitted.estimates
    ]
    show(table(rows, _COLUMNS, console().width))
    for comment in fitted.comments:
        echo(f"edgeyard: {comment}", err=True)
    echo(f"written: {out}", err=True)


def _name(out: Path) -> str:
    """Return the name of a scenario in a file."""
    import re

    name = re.sub(r"[^A-Za-z0-9._-]", "-", out.stem).lstrip("._-")[:100]
    return name or "fitted"


def _json(each: Estimate) -> dict[str, object]:
    import math

    return {
        "name": each.name,
        "value": each.value,
        "low": each.low,
        "high": each.high if math.isfinite(each.high) else None,
        "observations": each.observations,
    }


def add_to(group: typer.Typer) -> None:
    """Add the command to the group ``sim``."""
    group.command("fit")(fit)
