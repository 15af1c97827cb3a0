"""What users decide: the ends of alerts, and settings of series."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from edgeyard.errors import Conflict
from edgeyard.scheduler.engine.series_watch import log_change
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.series import WatchedSeries
from edgeyard.scheduler.model.series_changes import ACTIVE_ALERTS, ChangeStatus, SeriesChange
from edgeyard.scheduler.ports import UnitOfWork


def end_alert(
    uow: UnitOfWork, change_id: str, status: ChangeStatus, now: datetime, by: str, note: str
) -> SeriesChange:
    """Resolve or dismiss an alert; one that already has the status stays as it is.

    Args:
        uow: Reads and writes.
        change_id: Id of the alert.
        status: `ChangeStatus.RESOLVED`: it comes back if its level does;
            `ChangeStatus.DISMISSED`: it does not.
        now: The time.
        by: The user that decides it.
        note: Why, as the user states it.

    Raises:
        NotFound: There is no such change.
        Conflict: It is no alert that is confirmed or open.
    """
    change = uow.series.change(change_id)
    if change.status is status:
        return change
    if change.status not in ACTIVE_ALERTS:
        what = f"{change_id} is {change.status.value}"
        raise Conflict(f"{what}: only alerts that are confirmed or open can be {status.value}")
    ended = replace(change, status=status, ended_at=now, by_user_id=by, note=note)
    uow.series.save_change(ended)
    log_change(uow, ended, f"alert.{status.value}", now)
    return ended


def reset_threshold(uow: UnitOfWork, series_id: str, now: datetime, by: str) -> WatchedSeries:
    """Remove the threshold of a series, so that small changes are suspected again.

    Raises:
        NotFound: The watch has seen no point of such a series.
    """
    series = uow.series.watched(series_id)
    return _saved(uow, series, replace(series, threshold=0.0, threshold_at=None), now, by)


def set_alert_unconfirmed(
    uow: UnitOfWork, series_id: str, wanted: bool, now: datetime, by: str
) -> WatchedSeries:
    """Set whether changes of a series that can't be confirmed are alerts.

    Raises:
        NotFound: The watch has seen no point of such a series.
    """
    series = uow.series.watched(series_id)
    return _saved(uow, series, replace(series, alert_unconfirmed=wanted), now, by)


def _saved(
    uow: UnitOfWork, before: WatchedSeries, after: WatchedSeries, now: datetime, by: str
) -> WatchedSeries:
    uow.series.save_watched(after)
    data = {
        "series_id": after.key.series_id,
        "lineage": after.key.lineage,
        "before": _settings(before),
        "after": _settings(after),
    }
    uow.log.append(Event(at=now, kind="series.changed", user_id=by, data=data))
    return after


def _settings(series: WatchedSeries) -> dict[str, object]:
    return {"threshold": series.threshold, "alert_unconfirmed": series.alert_unconfirmed}
