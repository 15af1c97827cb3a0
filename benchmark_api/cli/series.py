"""``series``: results of one lineage over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    console,
    emit,
    emit_csv,
    emit_json,
    field,
    local_time,
    not_shown_to_differ,
    note,
    plain,
    primary_column,
    ratio_text,
    show,
    table,
)
from edgeyard.benchmark_api.cli.output_files import check_matplotlib, check_plot
from edgeyard.benchmark_api.cli.program import Output, Session, act, add_group
from edgeyard.benchmark_api.cli.unknown_names import refuse_unknown_board, refuse_unknown_family
from edgeyard.benchmark_api.cli.work import GROUP, shared_work, work_columns
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import RenderableType

    from edgeyard.benchmark_api.schemas.answers import WatchedSeries


_BEFORE = (
    Column(title="ENDED", of=lambda row: local_time(row.get("ended_at")), whole=True),
    Column(title="BENCHMARK", of=field("benchmark_id"), whole=True, from_width=120),
    Column(title="BOARD", of=field("target_uid"), whole=True, yields=1),
)


def _suspected(row: Row) -> str:
    from edgeyard.benchmark_api.sdk.comparison import suspected_text

    return suspected_text(row)


_AFTER = (
    Column(
        title="TO PREVIOUS (95 %)",
        of=ratio_text,
        style=not_shown_to_differ,
        right=True,
        whole=True,
    ),
    Column(title="SUSPECTED (95 %)", of=_suspected, right=True, whole=True, always=False),
    Column(
        title="CHANGES",
        of=lambda row: ", ".join(row.get("changes") or ()),  # type: ignore[arg-type]
        from_width=100,
        always=False,
    ),
    Column(title="COMMIT", of=lambda row: plain(row.get("git_commit"))[:10], always=False),
    Column(title="VERDICT", of=field("verdict"), from_width=100),
)


def _threshold(row: Row) -> str:
    threshold = float(str(row.get("threshold") or 0.0))
    return f"{100 * threshold:.1f} %" if threshold >= 0.0005 else ""


_SERIES = (
    Column(title="SERIES", of=field("lineage"), shorten=True),
    Column(title="BOARD", of=field("target_uid"), whole=True),
    Column(title="ENGINE", of=field("runtime"), whole=True),
    Column(title="TYPE", of=field("benchmark_type"), whole=True),
    Column(title="MEASURES", of=field("measures"), shorten=True, always=False, yields=1),
    Column(title="POINTS", of=field("points"), right=True, whole=True),
    Column(title="NEWEST", of=lambda row: local_time(row.get("last_at")), whole=True, yields=2),
    Column(title="ALERT", of=field("alert_id"), whole=True, always=False),
    Column(title="THRESHOLD", of=_threshold, right=True, whole=True, always=False, yields=3),
    Column(title="ID", of=field("series_id"), whole=True, yields=4),
    Column(title="OWNER", of=field("user_id"), whole=True, yields=5),
)

SeriesId = Annotated[str, typer.Argument(metavar="SERIES_ID", show_default=False)]

_Board = Annotated[
    str | None, typer.Option("--board", metavar="TARGET_UID", help="Only of this board.")
]
_Target = Annotated[str | None, typer.Option("--target", help="Only of boards of this family.")]
_Runtime = Annotated[str | None, typer.Option("--runtime", "-r", help="Only by this engine.")]
_Type = Annotated[str | None, typer.Option("--type", "-t", help="Only of this type, e.g. TYPE1.")]


def list_series(
    session: Session,
    board: _Board = None,
    target: _Target = None,
    runtime: _Runtime = None,
    benchmark_type: _Type = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of series.")] = 100,
) -> None:
    """List series of results over time, by name; operators see everybody's, by owner.

    A series has the results of one lineage on one board, by one engine, of one type, with the same
    inputs and parameters. The lineage is what `submit --series` states, otherwise the schedule's
    name, otherwise the model's.
    """
    found = session.client.series(
        target_uid=board, target=target, runtime=runtime, benchmark_type=benchmark_type
    )
    rows = [as_json(each) for each in islice(found, limit + 1)]
    if not rows:
        refuse_unknown_family(session, target)
        refuse_unknown_board(session, board, "--board")
    emit(session.output, rows[:limit], _SERIES, "no series")
    if len(rows) > limit:
        session.report(f"the first {limit} series; --limit shows more")


def show_series(
    session: Session,
    series: Annotated[str, typer.Argument(metavar="SERIES", show_default=False)],
    board: _Board = None,
    target: _Target = None,
    runtime: _Runtime = None,
    benchmark_type: _Type = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="A date, RFC 3339, or e.g. '30 d'.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw them over time: .png, .svg or .pdf."),
    ] = None,
) -> None:
    """Show the results of a lineage over time, each against the one before it in its series.

    These are the newest 500. New versions of the model and of the engine stay in the series, and
    CHANGES states them. SUSPECTED is by how much the level of a series seems to have changed from
    this result on. The outcome of such changes is below: alerts, noise, and those that could not be
    confirmed, with the threshold below which a change is known as noise. Results of another board,
    engine, type, or of other inputs or parameters are series of their own, with a number each. Runs
    of `edgeyard check` are in none. --json has the results as `items`, those changes as `changes`,
    and the series with their thresholds as `watched`.
    """
    if plot is not None:
        check_plot(plot)
    found = session.client.series_points(
        series,
        target_uid=board,
        target=target,
        runtime=runtime,
        benchmark_type=benchmark_type,
        submitted_from=asking.past(since, "--since"),
    )
    rows = [as_json(each) for each in found.items]
    if not rows:
        where = f" on {board}" if board else ""
        when = f" since {since}" if since is not None else ""
        reason = f"no completed benchmark of {series!r}{where}{when} has a number other than 0"
        raise InvalidInput.at("SERIES", reason, "a series that `edgeyard series list` shows")
    if session.output is Output.JSON:
        emit_json(as_json(found))
    elif session.output is Output.CSV:
        from edgeyard.benchmark_api.sdk.comparison import series_frame_row

        emit_csv([series_frame_row(row) for row in rows])
    else:
        show(*_table(rows))
        _show_changes([as_json(each) for each in found.changes], found.watched)
    if found.failed:
        session.report(
            f"{len(found.failed)} failed in this time: `edgeyard list --status failed` shows why"
        )
    if found.left_out:
        session.report(f"{found.left_out} completed without a number, or with 0, are left out")
    if found.truncated:
        session.report(f"the newest {len(rows)} results; --since shows fewer")
    if plot is not None:
        changes, failed = ([as_json(one) for one in each] for each in (found.changes, found.failed))
        draw_series(rows, series, plot, changes, failed)
        session.report(f"wrote {plot}")


@act
def reset_threshold(session: Session, series_id: SeriesId) -> None:
    """Remove the threshold of a series, so that small changes are suspected again."""
    found = session.client.reset_threshold(series_id)
    session.report(f"{found.series_id} has no threshold: changes of any size are suspected")


@act
def set_series(
    session: Session,
    series_id: SeriesId,
    alert_unconfirmed: Annotated[
        bool,
        typer.Option(
            "--alert-unconfirmed/--no-alert-unconfirmed",
            help="Whether suspected changes that could not be confirmed become alerts, too.",
            show_default=False,
        ),
    ],
) -> None:
    """Set which changes of a series become alerts."""
    found = session.client.set_series(series_id, alert_unconfirmed=alert_unconfirmed)
    what = "become alerts, too" if found.alert_unconfirmed else "become no alerts"
    session.report(f"{found.series_id}: changes that could not be confirmed {what}")


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    add_group(
        app,
        "series",
        "Results over time: of one lineage, on a board, by an engine.",
        {
            "list": list_series,
            "show": show_series,
            "reset-threshold": reset_threshold,
            "set": set_series,
        },
    )


def _show_changes(changes: Sequence[Row], watched: Sequence[WatchedSeries]) -> None:
    """Print the changes of series with their outcome, and their thresholds."""
    from edgeyard.benchmark_api.cli.alerts import CHANGES

    parts: list[RenderableType] = []
    if changes:
        parts.append(table(changes, CHANGES, console().width))
    for each in watched:
        if threshold := _threshold(as_json(each)):
            what = f"of {each.series_id}: smaller changes are known as noise until it has fallen"
            parts.append(note(f"threshold {threshold}", what))
    if parts:
        show("", *parts)


def _table(rows: Sequence[Row]) -> list[RenderableType]:
    """Return a table with a column for each part of the work that differs, and what it means."""
    from edgeyard.benchmark_api.sdk.comparison import VERSIONS, WORKLOAD, differences

    differing = differences(rows)
    width = console().width
    work, remarks = work_columns(rows, differing, width)
    columns = [*_BEFORE, *work, primary_column(rows), *_AFTER]
    count = len({row.get("group") for row in rows})
    if count > 1:
        columns.insert(0, GROUP)
    parts = [*shared_work(rows, differing), table(rows, columns, width), *remarks]
    if count > 1:
        apart = [WORKLOAD[name] for name in differing if name not in VERSIONS]
        if len({row.get("target_uid") for row in rows}) > 1:
            apart.insert(0, "board")
        if len({row.get("user_id") for row in rows}) > 1:
            apart.insert(0, "owner")
        why = f"because they differ in {', '.join(apart)}; " if apart else ""
        parts.append(
            note("groups", f"are {count} series, {why}ratios are to the result before it in each")
        )
    return parts


def draw_series(
    rows: Sequence[Row],
    lineage: str,
    path: Path,
    changes: Sequence[Row] = (),
    failed: Sequence[Row] = (),
) -> None:
    """Draw the primary metric of each result over time, with its interval, a line for each board.

    What failed is a cross on the axis of time.

    Raises:
        InvalidInput: There are several primary metrics, which have no common axis.
        MissingExtra: matplotlib is not installed.
    """
    from edgeyard.benchmark_api.figures.plots import plot_figure
    from edgeyard.benchmark_api.figures.results import history_figure
    from edgeyard.benchmark_api.sdk.comparison import shared_metric

    metric = shared_metric(rows)
    if metric is None:
        raise InvalidInput.at("--plot", "several metrics have no common axis", "one, by --type")
    check_matplotlib()
    plot_figure(history_figure(rows, metric, lineage, changes, failed), path)
