"""``campaigns``: the benchmarks of one matrix, listed, shown, compared and cancelled together."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer

from edgeyard.benchmark_api.cli import benchmarks, results
from edgeyard.benchmark_api.cli.api import api_path, items, record
from edgeyard.benchmark_api.cli.benchmarks import LIST_COLUMNS, Limit
from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    age,
    emit,
    emit_csv,
    emit_json,
    field,
)
from edgeyard.benchmark_api.cli.program import Output, Session, act, add_group
from edgeyard.benchmark_api.schemas.answers import as_json

CampaignId = Annotated[
    str, typer.Argument(metavar="ID", help="Id or name of a campaign.", show_default=False)
]


def _counts(row: Row) -> str:
    counts = record(row.get("counts"))
    return ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))


_COLUMNS = (
    Column(title="CAMPAIGN", of=field("campaign_id"), whole=True),
    Column(title="NAME", of=field("name"), always=False),
    Column(title="AGE", of=lambda row: age(row.get("created_at")), right=True, whole=True),
    Column(title="BENCHMARKS", of=_counts),
)


def list_campaigns(
    session: Session,
    name: Annotated[str | None, typer.Option(help="Only campaigns of this name.")] = None,
    limit: Limit = 20,
) -> None:
    """List campaigns, newest first."""
    found = list(itertools.islice(session.client.campaigns(name=name), limit + 1))
    emit(session.output, [as_json(one) for one in found[:limit]], _COLUMNS, "no campaigns")
    if len(found) > limit:
        session.report(f"the newest {limit} campaigns; --limit {limit * 5} shows more")


def show(session: Session, campaign: CampaignId) -> None:
    """Show a campaign's members."""
    answer = session.client.api.get(api_path("campaigns", session.client.campaign_id(campaign)))
    rows = items(answer, "benchmarks")
    if session.output is Output.JSON:
        emit_json(answer)
    elif session.output is Output.CSV:
        emit_csv(rows)
    else:
        emit(session.output, rows, LIST_COLUMNS, "no members")


def show_results(
    session: Session,
    campaign: CampaignId,
    plot: results.Plot = None,
    html: results.Html = None,
) -> None:
    """Compare what the members of a campaign measured, as `results --campaign` does."""
    results.results(session, campaign=campaign, plot=plot, html=html)


@act
def cancel(session: Session, campaign: CampaignId) -> None:
    """Cancel the members of a campaign that have not ended."""
    benchmarks.cancel(session, campaign=campaign)


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    add_group(
        app,
        "campaigns",
        "Campaigns: benchmarks that one matrix created.",
        {"list": list_campaigns, "show": show, "results": show_results, "cancel": cancel},
    )
