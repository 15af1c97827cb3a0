"""Alerts: confirmed changes of series. List, show, resolve and dismiss them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from statistics import median
from typing import Annotated

import msgspec
from fastapi import Query

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.acts import state_reason
from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.routes.context import Body, Context, Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import AlertEndIn, parse
from edgeyard.devices.metrics import primary_metric
from edgeyard.errors import InvalidInput, NotFound
from edgeyard.scheduler.decide.series_watch import MAX_EARLIER_CHANGES
from edgeyard.scheduler.engine.alerts import end_alert
from edgeyard.scheduler.model.acts import stated_reason
from edgeyard.scheduler.model.files import newest_report
from edgeyard.scheduler.model.series import SeriesPoint
from edgeyard.scheduler.model.series_changes import (
    ACTIVE_ALERTS,
    ALERTS,
    ChangeStatus,
    SeriesChange,
)
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/v1/alerts", tags=["results"])

_PAGE = 100
_POINTS = 500
"""Results of a series among which those around a change are looked for."""
_LEVEL = 10
"""Results of which the median is shown as a level."""


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
    return Answer(with_points(change_id, caller, context)[0])


def with_points(
    change_id: str, caller: Caller, context: Context
) -> tuple[shapes.SeriesChange, Sequence[SeriesPoint]]:
    """Return a change as `show` does, and the results of its series around it, oldest first."""
    now = context.services.clock.now()
    with context.services.store.read() as uow:
        found = _visible_change(uow, change_id, caller)
        points = _points(uow, found, now)
        others = _begins_of_others(uow, found)
        details = {**_origin(uow, found), **_levels(found, points, others)}
    shown = views.series_change(context.services, found)
    return msgspec.structs.replace(shown, **details), points


def _points(uow: UnitOfWork, change: SeriesChange, now: datetime) -> Sequence[SeriesPoint]:
    """Return the newest results of a change's series, or those until it was found."""
    points = uow.series.points(change.key, until=now, limit=_POINTS)
    if any(each.benchmark_id == change.begin_id for each in points):
        return points
    until = max(change.found_at, change.ended_at or change.found_at)
    return uow.series.points(change.key, until=until, limit=_POINTS)


def _origin(uow: UnitOfWork, change: SeriesChange) -> Mapping[str, object]:
    """Return what the submission of the first result of the new level stated, and its unit."""
    try:
        stated = uow.benchmarks.get(change.begin_id).description
    except NotFound:
        return {}
    newest = newest_report(uow.files.reports(change.begin_id))
    measured = None if newest is None else primary_metric(newest.report)
    return {
        "model": stated.model,
        "git_commit": stated.git_commit,
        "link": stated.link,
        "unit": "" if measured is None else measured.metric.unit,
    }


def _begins_of_others(uow: UnitOfWork, change: SeriesChange) -> frozenset[str]:
    """Return with which results other levels of the series begin."""
    levels = frozenset(ChangeStatus) - {ChangeStatus.NOISE}
    known = uow.series.changes_of([change.key.series_id], limit=MAX_EARLIER_CHANGES, status=levels)
    return frozenset(each.begin_id for each in known) - {change.begin_id}


def _levels(
    change: SeriesChange, points: Sequence[SeriesPoint], others: frozenset[str]
) -> Mapping[str, object]:
    """Return the levels before and after a change; nothing where its results are gone.

    Args:
        change: Whose levels they are.
        points: Results of its series, oldest first.
        others: Results with which other levels begin: each level ends there.
    """
    valid = [each for each in points if each.value is not None]
    place = next((at for at, each in enumerate(valid) if each.benchmark_id == change.begin_id), 0)
    if not place:
        return {}
    ends = [at for at, each in enumerate(valid) if each.benchmark_id in others]
    first = max((at for at in ends if at < place), default=0)
    last = min((at for at in ends if at > place), default=len(valid))
    before, after = (
        median(each.value or 0.0 for each in level)
        for level in (valid[first:place][-_LEVEL:], valid[place:last][:_LEVEL])
    )
    return {"before_value": before, "after_value": after}


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


def _visible_change(uow: UnitOfWork, change_id: str, caller: Caller) -> SeriesChange:
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
    state_reason(why)

    def end(uow: UnitOfWork) -> SeriesChange:
        _visible_change(uow, change_id, caller)
        if status is ChangeStatus.DISMISSED and not why:
            raise InvalidInput.at("/reason", "is missing", "why the alert is dismissed")
        return end_alert(uow, change_id, status, services.clock.now(), caller.user_id, why)

    return Answer(views.series_change(services, services.store.transact(end)))
