"""The page History: the results of one lineage over time, on a board, by an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import Response
from markupsafe import Markup

from edgeyard.benchmark_api.auth import BrowserUser, Caller
from edgeyard.benchmark_api.figures.lines import LineFigure
from edgeyard.benchmark_api.figures.results import axis_of, history_figure
from edgeyard.benchmark_api.figures.svg import svg_figure
from edgeyard.benchmark_api.pages.compare import PAGE, ComparisonQuery, Line, svg_file
from edgeyard.benchmark_api.pages.filters import check_choice, stated, time_of, type_choices
from edgeyard.benchmark_api.pages.page import capitalized, items_of_page, page, page_number
from edgeyard.benchmark_api.pages.spreadsheets import csv_of_records
from edgeyard.benchmark_api.pages.subscriptions import channels
from edgeyard.benchmark_api.routes.context import Context, Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.routes.series import list_series, points
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.benchmark_api.sdk.comparison import (
    change_text,
    changes_by_begin,
    failure_text,
    level_text,
    metric_of_row,
    parameters_apart,
    series_frame_row,
)
from edgeyard.benchmark_api.sdk.fields import moment
from edgeyard.devices.metrics import P50, Metric
from edgeyard.errors import InvalidInput

router = PageRouter()

MAX_CHOICE = 100
"""Series that one page lists to choose from."""

_TEXTS = ("series", "target_uid", "runtime", "type", "since")


@dataclass(frozen=True, slots=True)
class _FailedLine:
    """A run without a number, as the page shows it.

    Attributes:
        failed: The kind of failure, in words.
    """

    benchmark_id: str
    ended_at: datetime | None
    board: str
    engine: str
    failed: str
    sentence: str

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> _FailedLine:
        """Return the line of a run that failed."""
        return cls(
            benchmark_id=run["benchmark_id"],
            ended_at=moment(run, "ended_at"),
            board=run["target_uid"] or "",
            engine=run["runtime"],
            failed=failure_text(run),
            sentence=(run["failure"] or {}).get("sentence", ""),
        )


@router.get("/ui/history")
def history(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """Results of a lineage over time, with a drawing and marks where something changed."""
    query, wrong = _query(request), dict[str, str]()
    types = type_choices(query, context)
    found = _found(query, types, wrong, caller, context)
    rows = [as_json(each) for each in found.items] if found else []
    failed = [as_json(each) for each in found.failed] if found else []
    number = page_number(request.query_params.get("page", ""))
    runs = sorted([*rows, *failed], key=lambda each: str(each["ended_at"]), reverse=True)
    listed, last = items_of_page(runs, number, PAGE)
    metrics = {metric for row in rows if (metric := metric_of_row(row)) is not None}
    changes = _changes(found)
    figures = _figures(rows, query.get("series", ""), changes, failed)
    series = None if wrong or found else _listed(query, request, wrong, caller, context)
    return page(
        request,
        "history",
        caller,
        status=422 if wrong else 200,
        query=query,
        wrong=wrong,
        types=types,
        found=found,
        results=len(rows),
        runs=len(runs),
        listed=series,
        lines=[_FailedLine.of(each) if "failure" in each else Line.of(each) for each in listed],
        change_of=changes_by_begin(changes),
        level_text=level_text,
        change_texts=[change_text(each) for each in changes],
        has_commits=any(row["git_commit"] or row["link"] for row in rows),
        number=number,
        last=last,
        channels=channels(context),
        work=dict(zip((row["benchmark_id"] for row in rows), parameters_apart(rows), strict=True)),
        metric=capitalized(axis_of(*metrics).title) if len(metrics) == 1 else "",
        groups=len({row["group"] for row in rows}),
        figures=[Markup(svg_figure(each, wide=True)) for each in figures],  # escaped there
        address=urlencode(query),
        link=f"{context.services.public_url}/ui/history?{urlencode(query)}",
        compare=ComparisonQuery(ids=tuple(row["benchmark_id"] for row in rows)).address(),
    )


@router.get("/ui/history.csv")
def history_csv(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """The history as a table for spreadsheets."""
    found = _points(request, caller, context)
    return csv_of_records("history.csv", [series_frame_row(as_json(each)) for each in found.items])


@router.get("/ui/history.svg")
def history_svg(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """The history as a drawing; of several metrics, the first."""
    found, lineage = _points(request, caller, context), _query(request).get("series", "")
    rows, failed = ([as_json(one) for one in each] for each in (found.items, found.failed))
    figures = _figures(rows, lineage, _changes(found), failed) or [history_figure([], P50)]
    return svg_file("history.svg", figures[0])


def _query(request: Request) -> dict[str, str]:
    query = stated(request)
    return {name: query[name] for name in _TEXTS if name in query}


def _points(request: Request, caller: Caller, context: Context) -> shapes.SeriesPoints:
    query, wrong = _query(request), dict[str, str]()
    found = _found(query, type_choices(query, context), wrong, caller, context)
    for name, what in wrong.items():
        raise InvalidInput.at(f"/{name}", what)
    if found is None:
        raise InvalidInput.at("/series", "is missing", "the name of a series, or of a model's file")
    return found


def _listed(
    query: dict[str, str],
    request: Request,
    wrong: dict[str, str],
    caller: Caller,
    context: Context,
) -> shapes.SeriesList | None:
    """Return a page of the series that there are, as filtered; None: its cursor is wrong."""
    try:
        return list_series(
            caller,
            context,
            target_uid=query.get("target_uid"),
            runtime=query.get("runtime"),
            benchmark_type=query.get("type"),
            limit=MAX_CHOICE,
            cursor=request.query_params.get("cursor"),
        ).content
    except InvalidInput as error:
        wrong["cursor"] = str(error)
        return None


def _changes(found: shapes.SeriesPoints | None) -> list[dict[str, Any]]:
    """Return the changes of the level of its series, the newest first."""
    return [as_json(each) for each in found.changes] if found else []


def _found(
    query: dict[str, str],
    types: Sequence[str],
    wrong: dict[str, str],
    caller: Caller,
    context: Context,
) -> shapes.SeriesPoints | None:
    """Return its points; None where no lineage is named or a filter is wrong."""
    since = time_of(query.get("since", ""), wrong, "since")
    check_choice(query, "type", types, wrong)
    if wrong or "series" not in query:
        return None
    return points(
        caller,
        context,
        series=query["series"],
        target_uid=query.get("target_uid"),
        runtime=query.get("runtime"),
        benchmark_type=query.get("type"),
        submitted_from=since,
    ).content


def _figures(
    rows: Sequence[dict[str, Any]],
    lineage: str,
    changes: Sequence[dict[str, Any]],
    failed: Sequence[dict[str, Any]],
) -> list[LineFigure]:
    """Return a drawing for each primary metric."""
    by_metric: dict[Metric, list[dict[str, Any]]] = {}
    for row in rows:
        if (metric := metric_of_row(row)) is not None:
            by_metric.setdefault(metric, []).append(row)
    return [
        history_figure(own, metric, lineage, changes, failed) for metric, own in by_metric.items()
    ]
