"""``report``: what was used, by month."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    emit,
    number_field,
    plain,
)
from edgeyard.benchmark_api.cli.program import Output, Session, add_group
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.scheduler.model.accounting import UsageBy


def _number(title: str, name: str, form: str, *, always: bool = True) -> Column:
    return Column(title=title, of=number_field(name, form), right=True, whole=True, always=always)


def _columns(by: UsageBy) -> tuple[Column, ...]:
    return (
        Column(
            title=by.value.upper(),
            of=lambda row: plain(row.get("key")) or "(not known)",
            whole=True,
        ),
        _number("RUNS", "runs", "d"),
        _number("FAILED", "failures", "d"),
        _number("PREEMPTED", "preempted", "d"),
        _number("INTERRUPTED", "interrupted", "d"),
        _number("NOT STARTED", "not_started", "d"),
        _number("BOARD H", "board_hours", ".2f"),
        _number("MEAN WAIT S", "mean_wait_s", ".0f"),
        _number("MAX WAIT S", "max_wait_s", ".0f"),
        _number("CREDITS", "credits", ".2f"),
        _number("IDLE H", "idle_board_hours", ".2f"),
        _number("JOULES", "joules", ".0f", always=False),
        _number("UTILISATION", "utilisation", ".1%", always=False),
        _number("AVAILABILITY", "availability", ".1%", always=False),
    )


def usage(
    session: Session,
    by: Annotated[UsageBy, typer.Option(help="What the rows are.")] = UsageBy.USER,
    month: Annotated[
        str | None,
        typer.Option(metavar="MONTH", help="Such as 2026-10, in UTC; default: this month."),
    ] = None,
) -> None:
    """Report what was used in a month: board hours, runs, failures, waits, credits, energy.

    Runs count in the month in which they ended. You see what you used, operators what everybody
    did. The table ends with the sum; CSV and JSON hold the rows alone, with all fields.
    """
    report = session.client.usage(by.value, month)
    rows: list[Row] = [as_json(each) for each in report.items]
    if session.output is Output.TABLE and len(rows) > 1:
        rows.append({**as_json(report.total), "key": "total"})
    emit(session.output, rows, _columns(by), f"nothing was used in {report.month}")


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    add_group(app, "report", "Reports of what was used.", {"usage": usage})
