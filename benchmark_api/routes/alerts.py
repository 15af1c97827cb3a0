"""Alerts: confirmed changes of series. List, show, resolve and dismiss them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import Query

from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.routes import views
from edgeyard.benchmark_api.routes.context import Body, Context, Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import AlertEndIn, parse
from edgeyard.errors import InvalidInput, NotFound
from edgeyard.scheduler.engine.alerts import end_alert
from edgeyard.scheduler.model.acts import stated_reason
from edgeyard.scheduler.model.series_changes import (
    ACTIVE_ALERTS,
    ALERTS,
    ChangeStatus,
    SeriesChange,
)
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/v1/alerts", tags=["results"])

_PAGE = 100


class AlertStatus(StrEnum):
    """Which alerts are listed."""

    ACTIVE = "active"  # confirmed or open
    CONFIRMED = "confirmed"
    OPEN = "open"
    RESOLVED = "resolved"
    DISMISSED = "dismissed"


@router.get("")
def list_alerts(
    caller: Submitter,
    context: Ctx,
    status: AlertStatus | None = None,
    series: str | None = None,
    target_uid: str | None = None,
    limit: Annotated[int, Query(ge=1, le=_PAGE)] = 50,
    cursor: str | None = None,
) -> Answer[shapes.Alerts]:
    """Your alerts, newest first; operators see everybody's.

    An alert is a change of the level of a series that runs have confirmed. `series` is a lineage;
    `status=active` selects those that are confirmed or open.
    """
    wanted = ALERTS if status is None else ACTIVE_ALERTS
    if status is not None and status is not AlertStatus.ACTIVE:
        wanted = frozenset({ChangeStatus(status.value)})
    with context.services.store.read() as uow:
        found, following = uow.series.changes_page(
            user_id=None if caller.is_operator else caller.user_id,
            status=wanted,
            lineage=series,
            target_uid=target_uid,
            limit=limit,
            cursor=cursor,
        )
    items = [views.series_change(context.services, each) for each in found]
    return Answer(shapes.Alerts(items=items, next_cursor=following))


@router.get("/{change_id}")
def show(change_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.SeriesChange]:
    """One alert, or another change of a series: also one that is suspected, or was noise."""
    with context.services.store.read() as uow:
        found = visible_change(uow, change_id, caller)
    return Answer(views.series_change(context.services, found))


@router.post("/{change_id}/resolve", openapi_extra=accepts("AlertEndIn"))
def resolve(
    change_id: str, body: Body, caller: Submitter, context: Ctx
) -> Answer[shapes.SeriesChange]:
    """End an alert; it is reopened if its level comes back within 30 days.

    409 where it is not confirmed or open. One that is resolved stays as it is.
    """
    return _end(change_id, body, caller, context, ChangeStatus.RESOLVED)


@router.post("/{change_id}/dismiss", openapi_extra=accepts("AlertEndIn"))
def dismiss(
    change_id: str, body: Body, caller: Submitter, context: Ctx
) -> Answer[shapes.SeriesChange]:
    """End an alert for good, with a reason: it is never reopened.

    409 where it is not confirmed or open. One that is dismissed stays as it is.
    """
    return _end(change_id, body, caller, context, ChangeStatus.DISMISSED)


def visible_change(uow: UnitOfWork, change_id: str, caller: Caller) -> SeriesChange:
    """Return a change that the caller may see.

    Raises:
        NotFound: There is none, or it is somebody else's: the two look the same.
    """
    found = uow.series.change(change_id)
    if not caller.may_see(found.key.user_id):
        raise NotFound("alert", change_id)
    return found


def _end(
    change_id: str, body: Body, caller: Caller, context: Context, status: ChangeStatus
) -> Answer[shapes.SeriesChange]:
    services = context.services
    why = parse(AlertEndIn, body.tree()).reason or stated_reason()

    def end(uow: UnitOfWork) -> SeriesChange:
        visible_change(uow, change_id, caller)
        if status is ChangeStatus.DISMISSED and not why:
            raise InvalidInput.at("/reason", "is missing", "why the alert is dismissed")
        return end_alert(uow, change_id, status, services.clock.now(), caller.user_id, why)

    return Answer(views.series_change(services, services.store.transact(end)))
