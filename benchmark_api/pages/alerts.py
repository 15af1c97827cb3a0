"""Alerts: all of them, and one with its series around the change."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import Response
from markupsafe import Markup

from edgeyard.benchmark_api.auth import BrowserUser
from edgeyard.benchmark_api.figures.axes import Axis
from edgeyard.benchmark_api.figures.lines import LineFigure, Mark, Sample, Series
from edgeyard.benchmark_api.pages.filters import check_choice, stated
from edgeyard.benchmark_api.pages.forms import SignedInForm, json_body
from edgeyard.benchmark_api.pages.page import page, see_other
from edgeyard.benchmark_api.pages.results import drawn
from edgeyard.benchmark_api.routes import alerts, views
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.decide.change_points import LOOK_BACK
from edgeyard.scheduler.model.series import SeriesPoint
from edgeyard.scheduler.model.series_changes import SeriesChange

router = APIRouter(include_in_schema=False)

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
    services = context.services
    with services.store.read() as uow:
        change = alerts.visible_change(uow, change_id, caller)
        until = max(change.found_at, change.ended_at or change.found_at)
        points = uow.series.points(change.key, until=until, limit=LOOK_BACK)
    alert, figures = views.series_change(services, change), _figures(change, points)
    return page(request, "alert", caller, alert=alert, figures=figures)


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


def _figures(change: SeriesChange, points: Sequence[SeriesPoint]) -> list[Markup]:
    """Return a figure of the points that the change was found in; none where they are gone."""
    measured = [each for each in points if each.value is not None]
    begin = next((each for each in points if each.benchmark_id == change.begin_id), None)
    if not measured or begin is None:
        return []
    figure = LineFigure(
        title=f"{change.key.lineage} on {change.key.target_uid}",
        x_axis=Axis(title="end of the run", unit="UTC"),
        axis=Axis(title=change.metric, unit="", direction=begin.better),
        series=[
            Series(
                name=change.key.engine,
                samples=[
                    Sample(x=each.ended_at.timestamp(), value=each.value or 0.0)
                    for each in measured
                ],
            )
        ],
        marks=[Mark(x=begin.ended_at.timestamp(), text=change.sentence())],
    )
    return drawn([figure])
