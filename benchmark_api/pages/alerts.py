"""Alerts: all of them, and one with its series around the change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import Response
from markupsafe import Markup

from edgeyard.benchmark_api.auth import BrowserUser, Caller
from edgeyard.benchmark_api.figures.axes import number_text
from edgeyard.benchmark_api.figures.results import history_figure
from edgeyard.benchmark_api.figures.svg import svg_figure
from edgeyard.benchmark_api.pages.filters import check_choice, stated
from edgeyard.benchmark_api.pages.forms import SignedInForm, json_body
from edgeyard.benchmark_api.pages.measured import measured
from edgeyard.benchmark_api.pages.page import page, see_other
from edgeyard.benchmark_api.routes import alerts, benchmarks, results
from edgeyard.benchmark_api.routes.context import Context, Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.benchmark_api.sdk.comparison import metric_of_row
from edgeyard.errors import InvalidInput, NotFound
from edgeyard.scheduler.decide.change_points import LOOK_BACK
from edgeyard.scheduler.model.series import SeriesPoint

router = PageRouter()

PAGE = 50


@router.get("/ui/alerts")
def listed(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """Alerts, newest first."""
    query = stated(request)
    wrong: dict[str, str] = {}
    found: shapes.Alerts | None = None
    status = query.get("status", "")
    check_choice(query, "status", list(alerts.AlertStatus), wrong)
    if not wrong:
        try:
            found = alerts.list_alerts(
                caller,
                context,
                status=alerts.AlertStatus(status) if status else None,
                series=query.get("series"),
                target_uid=query.get("target_uid"),
                limit=PAGE,
                cursor=query.get("cursor"),
            ).content
        except InvalidInput as error:
            wrong["cursor"] = str(error)
    return page(
        request,
        "alerts",
        caller,
        status=422 if wrong else 200,
        found=found,
        query=query,
        wrong=wrong,
        statuses=list(alerts.AlertStatus),
    )


@router.get("/ui/alerts/{change_id}")
def one(request: Request, change_id: str, caller: BrowserUser, context: Ctx) -> Response:
    """One alert: what changed, how it was confirmed, and the series around it."""
    alert, points = alerts.with_points(change_id, caller, context)
    rows = {each.benchmark_id: each for each in _rows(alert, points, caller, context)}
    ends = (alert.before_id, alert.begin_id)
    before, begin = (measured(rows.get(each)) for each in ends)
    return page(
        request,
        "alert",
        caller,
        alert=alert,
        before=before,
        begin=begin,
        levels=_levels(alert),
        descriptions=[_description(each, caller, context) for each in ends],
        figure=_figure(alert, list(rows.values())),
    )


@router.post("/ui/alerts/{change_id}/resolve")
def resolve(form: SignedInForm, change_id: str, caller: BrowserUser, context: Ctx) -> Response:
    """End an alert until its level comes back."""
    alerts.resolve(change_id, json_body(reason=form.text("reason")), caller, context)
    return _to(change_id, "alert-resolved")


@router.post("/ui/alerts/{change_id}/dismiss")
def dismiss(form: SignedInForm, change_id: str, caller: BrowserUser, context: Ctx) -> Response:
    """End an alert for good."""
    alerts.dismiss(change_id, json_body(reason=form.text("reason")), caller, context)
    return _to(change_id, "alert-dismissed")


def _to(change_id: str, done: str) -> Response:
    return see_other(f"/ui/alerts/{quote(change_id, safe='')}", done)


def _rows(
    alert: shapes.SeriesChange, points: Sequence[SeriesPoint], caller: Caller, context: Context
) -> Sequence[shapes.ResultRow]:
    """Return the results around a change, oldest first: the newest, or those until it was found."""
    ids = [each.benchmark_id for each in points[-LOOK_BACK:]]
    if alert.begin_id not in ids:
        until = max(alert.found_at, alert.ended_at or alert.found_at)
        ids = [each.benchmark_id for each in points if each.ended_at <= until][-LOOK_BACK:]
    return results.rows(caller, context, benchmark_id=ids).content.items if ids else []


def _levels(alert: shapes.SeriesChange) -> Sequence[str]:
    """Return the levels before and after a change with their unit; () where they are not known."""
    if alert.before_value is None or alert.after_value is None:
        return ()
    values = (alert.before_value, alert.after_value)
    return [f"{number_text(each)} {alert.unit}".strip() for each in values]


def _description(benchmark_id: str, caller: Caller, context: Context) -> Mapping[str, object]:
    """Return the description of a benchmark; empty where it is deleted."""
    try:
        return benchmarks.show(benchmark_id, caller, context).content.description
    except NotFound:
        return {}


def _figure(alert: shapes.SeriesChange, found: Sequence[shapes.ResultRow]) -> Markup | None:
    """Return a figure of the results around a change; None where those are gone."""
    rows = {each.benchmark_id: {**as_json(each), "group": 1} for each in found}
    begin = rows.get(alert.begin_id)
    metric = None if begin is None else metric_of_row(begin)
    if metric is None:
        return None
    own = [row for row in rows.values() if metric_of_row(row) == metric]
    figure = history_figure(own, metric, alert.lineage, [as_json(alert)])
    return Markup(svg_figure(replace(figure, from_zero=False), wide=True))  # it escapes all texts
