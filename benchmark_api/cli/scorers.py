"""``scorers``: weights, rewards and faults of the active policy's scorers."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeyard.benchmark_api.cli.api import items, record
from edgeyard.benchmark_api.cli.output import Column, Row, console, emit_json, field, show, table
from edgeyard.benchmark_api.cli.program import Output, Session, add_group, echo, verb

_COLUMNS = (
    Column(title="SCORER", of=field("scorer"), whole=True),
    Column(title="KIND", of=field("kind"), whole=True),
    Column(title="GOOD FOR", of=field("objective"), shorten=True),
    Column(title="WEIGHT", of=lambda row: _share(row, "weight"), right=True, whole=True),
    Column(title="STATED", of=lambda row: _share(row, "stated_weight"), right=True, whole=True),
    Column(title="REWARD", of=lambda row: _mean(row, "mean_reward"), right=True, whole=True),
    Column(title="RUNS", of=lambda row: _mean(row, "mean_outcome_reward"), right=True, whole=True),
    Column(title="FAULTS", of=field("faults"), right=True, whole=True),
)


def _share(row: Row, name: str) -> str:
    value = row.get(name)
    return f"{value:.1%}" if isinstance(value, (int, float)) else ""


def _mean(row: Row, name: str) -> str:
    value = row.get(name)
    return f"{value:.2f}" if isinstance(value, (int, float)) else "-"


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
    group = add_group(app, "scorers", "Scorers: their weights, rewards and faults.")
    verb(group, "list")(scorers_list)
