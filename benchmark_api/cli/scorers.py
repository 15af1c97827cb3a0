"""``scorers``: weights, rewards and faults of the active policy's scorers."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeyard.benchmark_api.cli.api import items, record
from edgeyard.benchmark_api.cli.output import (
    Column,
    console,
    emit_json,
    field,
    number_field,
    show,
    table,
)
from edgeyard.benchmark_api.cli.program import Output, Session, add_group, echo

_COLUMNS = (
    Column(title="SCORER", of=field("scorer"), whole=True),
    Column(title="KIND", of=field("kind"), whole=True),
    Column(title="GOOD FOR", of=field("objective"), shorten=True),
    Column(title="WEIGHT", of=number_field("weight", ".1%"), right=True, whole=True),
    Column(title="STATED", of=number_field("stated_weight", ".1%"), right=True, whole=True),
    Column(title="REWARD", of=number_field("mean_reward", ".2f", "-"), right=True, whole=True),
    Column(
        title="RUNS", of=number_field("mean_outcome_reward", ".2f", "-"), right=True, whole=True
    ),
    Column(title="FAULTS", of=field("faults"), right=True, whole=True),
)


def scorers_list(
    session: Session,
    rounds: Annotated[
        int, typer.Option(min=0, max=1000, help="With --json: number of recent rounds of rewards.")
    ] = 0,
) -> None:
    """List the scorers of the active policy: weights, rewards, faults.

    WEIGHT is the learned weight, STATED the policy's. REWARD is the mean reward from the evaluator,
    RUNS the mean reward from finished runs: of predictions their accuracy, of preferences
    0.5 where the boards that they liked did no better than others.
    """
    found = record(session.client.api.get("/v1/scorers", params={"rounds": rounds}))
    if session.output is Output.JSON:
        emit_json(found)
        return
    rows = items(found)
    if not rows:
        session.report(f"policy {found.get('policy')} has no scorers, so its fallback decides")
        return
    show(table(rows, _COLUMNS, console().width))
    for row in rows:
        if row.get("suspension_reason"):
            echo(f"{row['scorer']} is {row['suspension_reason']}")


def add_to(app: typer.Typer) -> None:
    """Register the group with its commands."""
    text = "Scorers: their weights, rewards and faults."
    add_group(app, "scorers", text, {"list": scorers_list})
