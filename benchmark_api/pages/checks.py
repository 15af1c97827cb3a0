"""Checks of two versions: all of them, and one with its pairs."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request
from fastapi.responses import Response
from markupsafe import Markup

from edgeyard.benchmark_api.auth import BrowserUser
from edgeyard.benchmark_api.figures.axes import Axis
from edgeyard.benchmark_api.figures.lines import LineFigure, Sample, Series
from edgeyard.benchmark_api.pages.filters import check_choice, stated
from edgeyard.benchmark_api.pages.forms import SignedInForm
from edgeyard.benchmark_api.pages.page import page, see_other
from edgeyard.benchmark_api.pages.results import drawn
from edgeyard.benchmark_api.routes import checks
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.checks import BASELINE, CANDIDATE, CheckStatus

router = PageRouter()

PAGE = 50


@router.get("/ui/checks")
def listed(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """Checks, newest first."""
    query = stated(request)
    wrong: dict[str, str] = {}
    found: shapes.StoredChecks | None = None
    status = query.get("status", "")
    check_choice(query, "status", list(CheckStatus), wrong)
    if not wrong:
        try:
            found = checks.list_checks(
                caller,
                context,
                status=CheckStatus(status) if status else None,
                limit=PAGE,
                cursor=query.get("cursor"),
            ).content
        except InvalidInput as error:
            wrong["cursor"] = str(error)
    return page(
        request,
        "checks",
        caller,
        status=422 if wrong else 200,
        found=found,
        query=query,
        wrong=wrong,
        statuses=list(CheckStatus),
    )


@router.get("/ui/checks/{check_id}")
def one(request: Request, check_id: str, caller: BrowserUser, context: Ctx) -> Response:
    """One check: whether the candidate is slower, and what each pair measured."""
    found = checks.show(check_id, caller, context).content
    return page(request, "check", caller, check=found, figures=_figures(found))


@router.post("/ui/checks/{check_id}/cancel")
def cancel(form: SignedInForm, check_id: str, caller: BrowserUser, context: Ctx) -> Response:
    """End a check, and the run that is under way."""
    checks.cancel(check_id, caller, context)
    return see_other(f"/ui/checks/{quote(check_id, safe='')}", "check-cancelled")


def _figures(check: shapes.StoredCheck) -> list[Markup]:
    """Return a figure of both numbers of each pair; none before the first."""
    sides = (
        (BASELINE, [each.baseline_value for each in check.pairs]),
        (CANDIDATE, [each.candidate_value for each in check.pairs]),
    )
    series = [
        Series(
            name=name,
            samples=[
                Sample(x=number, value=value, verdict="comparable" if pair.counts else "invalid")
                for number, (pair, value) in enumerate(
                    zip(check.pairs, values, strict=True), start=1
                )
                if value is not None
            ],
        )
        for name, values in sides
    ]
    if not all(each.samples for each in series):
        return []
    metric = check.metric
    figure = LineFigure(
        title="What each pair measured",
        x_axis=Axis(title="pair", unit="", direction=""),
        axis=Axis(title=metric.title or metric.name, unit=metric.unit, direction=metric.better),
        series=series,
    )
    return drawn([figure])
