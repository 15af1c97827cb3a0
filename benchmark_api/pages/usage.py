"""What was used in a month, by user, group, board, family, engine or kind."""

from __future__ import annotations

from datetime import timedelta

from fastapi import Request
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import BrowserUser
from edgeyard.benchmark_api.pages.filters import check_choice, stated
from edgeyard.benchmark_api.pages.page import page
from edgeyard.benchmark_api.pages.spreadsheets import csv_of_records
from edgeyard.benchmark_api.routes import usage
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.routes.groups import group_of
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.accounting import UsageBy, month_of

router = PageRouter()


@router.get("/ui/usage")
def report(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """The report of a month, with those of the months before and after it."""
    query = stated(request)
    wrong: dict[str, str] = {}
    found: shapes.UsageReport | None = None
    by = query.get("by", UsageBy.USER.value)
    check_choice(query, "by", list(UsageBy), wrong)
    at = context.services.clock.now()
    now = month_of(at)
    with context.services.store.read() as uow:
        group = group_of(uow, caller.user, at)
    try:
        shown = UsageBy.USER if wrong else UsageBy(by)
        found = usage.usage(caller, context, by=shown, month=query.get("month")).content
    except InvalidInput as error:
        wrong["month"] = error.errors[0].reason
    return page(
        request,
        "usage",
        caller,
        status=422 if wrong else 200,
        report=None if wrong else found,
        group=group,
        by=by,
        month=found.month if found else query.get("month", now),
        earlier=_neighbour(found, -1) if found else "",
        later=_neighbour(found, 1) if found and found.month < now else "",
        wrong=wrong,
        dimensions=list(UsageBy),
    )


@router.get("/ui/usage.csv")
def report_csv(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """The same as a table for spreadsheets."""
    query = stated(request)
    by = query.get("by", UsageBy.USER.value)
    if by not in set(UsageBy):
        raise InvalidInput.at("/by", f"{by!r} is none of {', '.join(UsageBy)}")
    found = usage.usage(caller, context, by=UsageBy(by), month=query.get("month")).content
    return csv_of_records(f"usage-{found.month}.csv", [as_json(each) for each in found.items])


def _neighbour(report: shapes.UsageReport, step: int) -> str:
    """Return the month before (-1) or after (1) that of a report."""
    return month_of(report.until if step > 0 else report.since - timedelta(days=1))
