"""``results --history``: one model's results over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    console,
    emit,
    field,
    local_time,
    not_shown_to_differ,
    note,
    primary_column,
    ratio_text,
    show,
    table,
)
from edgeyard.benchmark_api.cli.output_files import check_matplotlib
from edgeyard.benchmark_api.cli.program import Output, Session
from edgeyard.benchmark_api.cli.work import GROUP, shared_work, work_columns
from edgeyard.benchmark_api.figures.plots import plot_figure
from edgeyard.benchmark_api.figures.results import history_figure
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.benchmark_api.sdk.comparison import (
    VERSIONS,
    WORKLOAD,
    differences,
    over_time,
    shared_metric,
)
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.checks import CHECK_TAG

if TYPE_CHECKING:
    from rich.console import RenderableType

    from edgeyard.benchmark_api.sdk import Benchmark

_BEFORE = (
    Column(title="ENDED", of=lambda row: local_time(row.get("ended_at"))),
    Column(title="BENCHMARK", of=field("benchmark_id"), whole=True, from_width=120),
    Column(title="BOARD", of=field("target_uid"), whole=True),
)
_AFTER = (
    Column(
        title="TO PREVIOUS (95 %)",
        of=ratio_text,
        style=not_shown_to_differ,
        right=True,
        whole=True,
    ),
    Column(title="VERDICT", of=field("verdict"), from_width=100),
)


def show_history(
    session: Session,
    model: str,
    board: str | None,
    since: str | None,
    benchmark_type: str | None,
    across_versions: bool,
    plot: Path | None,
) -> None:
    """Show a model's results in the order of time, each against the one before it.

    Raises:
        InvalidInput: The model has no results there.
    """
    found = list(
        session.client.list(
            model=model,
            target_uid=board,
            status="completed",
            benchmark_type=benchmark_type,
            submitted_from=asking.past(since, "--since"),
        )
    )
    own = [one for one in found if CHECK_TAG not in _tags(one)]
    ids = [one.benchmark_id for one in reversed(own)]
    rows = over_time(
        [as_json(row) for row in session.client.result_rows(ids)], across_versions=across_versions
    )
    checks = len(found) - len(own)
    left_out = f"; {checks} of `edgeyard check` do not count" if checks else ""
    if not rows:
        where = f" on {board}" if board else ""
        raise InvalidInput.at(
            "--history",
            f"no completed benchmark of {model!r}{where} has a number{left_out}",
        )
    if session.output is Output.TABLE:
        show(*_table(rows, across_versions))
    else:
        emit(session.output, rows, (), "")
    if left_out:
        shown = "1 result" if len(rows) == 1 else f"{len(rows)} results"
        session.report(f"{shown}{left_out}")
    if plot is not None:
        draw_history(rows, plot)
        session.report(f"wrote {plot}")


def _tags(benchmark: Benchmark) -> list[object]:
    tags = benchmark.description.get("tags")
    return tags if isinstance(tags, list) else []


def _table(rows: Sequence[Row], across_versions: bool) -> list[RenderableType]:
    """Return a table with a column for each part of the work that differs, and what it means."""
    differing = differences(rows)
    width = console().width
    work, remarks = work_columns(rows, differing, width)
    columns = [*_BEFORE, *work, primary_column(rows), *_AFTER]
    several = len({row.get("group") for row in rows}) > 1
    if several:
        columns.insert(0, GROUP)
    parts = [*shared_work(rows, differing), table(rows, columns, width), *remarks]
    if several:
        names = ", ".join(WORKLOAD[name] for name in differing)
        text = f"did different work ({names}); ratios are to the result before it in its group"
        if not across_versions and set(VERSIONS) & set(differing):
            text += "; --across-versions compares contents and engine versions"
        parts.append(note("groups", text))
    return parts


def draw_history(rows: Sequence[Row], path: Path) -> None:
    """Draw the primary metric of each result over time, with its interval, a line for each board.

    Raises:
        InvalidInput: There are several primary metrics, which have no common axis.
        MissingExtra: matplotlib is not installed.
    """
    metric = shared_metric(rows)
    if metric is None:
        raise InvalidInput.at("--plot", "several metrics have no common axis", "one, by --type")
    check_matplotlib()
    plot_figure(history_figure(rows, metric), path)
