"""``alerts``: changes of series that runs have confirmed."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    emit,
    emit_one,
    field,
    local_time,
    plain,
    three_digits,
)
from edgeyard.benchmark_api.cli.program import Output, Session, act, add_group, echo
from edgeyard.benchmark_api.cli.unknown_names import refuse_unknown_board
from edgeyard.benchmark_api.printing import printable
from edgeyard.benchmark_api.schemas.answers import as_json

AlertId = Annotated[str, typer.Argument(metavar="ALERT", show_default=False)]


def size_of_change(row: Row) -> str:
    """Return the size of a change with its interval, as it is known best."""
    from edgeyard.benchmark_api.sdk.comparison import change_text

    return change_text(row)


CHANGES = (
    Column(title="ALERT", of=field("change_id"), whole=True),
    Column(title="STATUS", of=field("status"), whole=True),
    Column(title="CHANGE (95 %)", of=size_of_change, right=True, whole=True),
    Column(title="SERIES", of=field("lineage"), shorten=True),
    Column(title="BOARD", of=field("target_uid"), whole=True, yields=2),
    Column(title="CAUSE", of=field("cause"), whole=True, always=False, yields=1),
    Column(title="SINCE", of=field("begin_id"), whole=True, yields=4),
    Column(title="FOUND", of=lambda row: local_time(row.get("found_at")), whole=True, yields=3),
    Column(title="OWNER", of=field("user_id"), whole=True, yields=5),
)
"""Columns of changes of series, which `series show` has, too."""


def list_alerts(
    session: Session,
    status: Annotated[
        str | None,
        typer.Option(help="active (confirmed or open), confirmed, open, resolved or dismissed."),
    ] = None,
    series: Annotated[str | None, typer.Option(help="Only of this lineage.")] = None,
    board: Annotated[
        str | None, typer.Option("--board", metavar="TARGET_UID", help="Only on this board.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of alerts.")] = 50,
) -> None:
    """List alerts, newest first: changes of series that runs have confirmed.

    Operators see everybody's. `edgeyard series show` has all changes of a series, also those that
    were noise.
    """
    found = session.client.alerts(status, series=series, target_uid=board)
    rows = [as_json(each) for each in islice(found, limit + 1)]
    if not rows:
        refuse_unknown_board(session, board, "--board")
    emit(session.output, rows[:limit], CHANGES, "no alerts")
    if len(rows) > limit:
        session.report(f"the newest {limit} alerts; --limit shows more")


def show_alert(session: Session, alert: AlertId) -> None:
    """Show an alert: what changed, since when, how it was confirmed, and the cause.

    Also a change that is no alert: one that is suspected, or that was noise.
    """
    found = session.client.alert(alert)
    row = as_json(found)
    if session.output is not Output.TABLE:
        emit_one(session.output, row)
        return
    lines = [
        ("status", found.status),
        ("change", f"{found.metric} {size_of_change(row)}"),
        ("level", _levels(row)),
        ("series", f"{found.lineage} on {found.target_uid} by {found.runtime} ({found.series_id})"),
        ("since", f"{found.begin_id}, before it {found.before_id}"),
        ("model", found.model),
        ("commit", found.git_commit),
        ("link", found.link),
        ("found", local_time(found.found_at.isoformat())),
        ("cause", found.blame or found.cause),
        ("confirming" if found.by_user_id else "reason", found.reason),
        *(("not tested", each) for each in found.not_tested),
        ("checks", ", ".join(found.check_ids)),
        ("belongs to", found.alert_id or ""),
        ("reopened", local_time(found.reopened_at.isoformat()) if found.reopened_at else ""),
        ("ended", local_time(found.ended_at.isoformat()) if found.ended_at else ""),
        ("ended by", found.by_user_id or ""),
        ("note", found.note),
    ]
    echo(printable(found.sentence))
    for name, value in lines:
        if value:
            echo(f"  {name + ':':<12}{printable(value)}")


def _levels(row: Row) -> str:
    """Return the old and the new level in their unit; "": they are not known."""
    if row.get("before_value") is None or row.get("after_value") is None:
        return ""
    unit = plain(row.get("unit"))
    before, after = (
        f"{three_digits(row.get(f'{side}_value'))} {unit}".rstrip() for side in ("before", "after")
    )
    return f"{before} before, {after} after"


@act
def resolve_alert(session: Session, alert: AlertId) -> None:
    """Resolve an alert; it is reopened if its level comes back within 30 days."""
    found = session.client.resolve_alert(alert)
    session.report(f"{found.change_id} is {found.status}")


@act
def dismiss_alert(session: Session, alert: AlertId) -> None:
    """Dismiss an alert: it ends and is never reopened; --reason states why."""
    found = session.client.dismiss_alert(alert)
    session.report(f"{found.change_id} is {found.status}")


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    add_group(
        app,
        "alerts",
        "Alerts: changes of series that runs have confirmed.",
        {
            "list": list_alerts,
            "show": show_alert,
            "resolve": resolve_alert,
            "dismiss": dismiss_alert,
        },
    )
