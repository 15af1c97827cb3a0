"""Which change the newest points of a series show, and whether it is a new one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from edgeyard.devices.metrics import Metric
from edgeyard.scheduler.decide.change_points import Change, change_points, is_measured
from edgeyard.scheduler.model.series import SeriesPoint, magnitude
from edgeyard.scheduler.model.series_changes import (
    ACTIVE_ALERTS,
    UNDECIDED_CHANGES,
    ChangeStatus,
    SeriesChange,
)

NEWEST = 10
"""Points among which a suspicion begins, with those that no look has considered yet: an older
change was news when it was new."""

_NEVER = datetime.max.replace(tzinfo=UTC)
"""No point ended later: none counts as new without a look before."""

MAX_MISS = 2
"""Points by which the place of a change may be wrong: a level has `MIN_SEGMENT` or more."""

REOPEN_WITHIN = timedelta(days=30)
"""An alert that was resolved is reopened if its level comes back within this time."""

AGAIN_AFTER = 10
"""Valid results after which a change that stayed unconfirmed is suspected again if it is still
there; then twice as many each time, until it is older than what a look considers."""

MAX_EARLIER_CHANGES = 50
"""Newest changes of a series that a look considers, and as many that were noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A suspected change of a series, as `SeriesChange` has it."""

    begin_id: str
    before_id: str
    metric: str
    worse: bool
    size: float
    low: float
    high: float
    alert_id: str | None


def suspicion(
    points: Sequence[SeriesPoint],
    earlier: Sequence[SeriesChange],
    threshold: float,
    now: datetime,
    looked_at: datetime | None = None,
) -> Suspicion | None:
    """Return the newest change that the points of a series show, if it is news.

    It is none while another change of the series is suspected or being confirmed, or if it begins
    with a point that an earlier change was found with. While an alert of the same direction is
    open, only a change that is at least as large, or that begins with another model, is news.
    A change that could neither be confirmed nor refuted is news again after `AGAIN_AFTER` points.

    Args:
        points: The newest `edgeyard.scheduler.decide.change_points.LOOK_BACK` of the series or
            fewer, the oldest first.
        earlier: Its earlier changes, newest first.
        threshold: Smaller changes are not suspected, a share.
        now: The time of the look.
        looked_at: Of the look before it; None: there was none.
    """
    if any(each.status in UNDECIDED_CHANGES for each in earlier):
        return None
    considered = _considered(earlier, looked_at)
    again = _due_again(points, earlier)
    earlier = [each for each in earlier if each not in again]
    values = [each.value for each in points]
    since = _present_level(points, earlier)
    points = points[since:]
    measured = [at for at, each in enumerate(points) if is_measured(each.value)]
    if not measured:
        return None
    unseen = [at for at, place in enumerate(measured) if points[place].ended_at > considered]
    first_new = measured[max(0, min([*unseen, len(measured) - 1]) - NEWEST + 1)]
    begins = {each.begin_id for each in again}
    places = [at for at, place in enumerate(measured) if points[place].benchmark_id in begins]
    if places:
        first_new = min(first_new, measured[max(0, places[0] - MAX_MISS)])
    found = [
        each
        for each in change_points(values, since)
        if each.position >= since + first_new and magnitude(each.size) >= threshold
    ]
    if not found:
        return None
    change = found[-1]
    place = _begin(measured.index(change.position - since), [points[at] for at in measured])
    begin, before = points[measured[place]], points[measured[place - 1]]
    if _is_known(change, before, begin, earlier, now):
        return None
    return Suspicion(
        begin_id=begin.benchmark_id,
        before_id=before.benchmark_id,
        metric=begin.metric,
        worse=Metric(begin.metric, better=begin.better).slowdown(1 + change.size) > 0,
        size=change.size,
        low=change.low,
        high=change.high,
        alert_id=_alert_of(change, earlier, now),
    )


def _considered(earlier: Sequence[SeriesChange], looked_at: datetime | None) -> datetime:
    """Return until when points were considered: not by looks while a change was not decided."""
    if looked_at is None:
        return _NEVER
    for each in earlier:
        if each.found_at <= looked_at and (each.ended_at is None or looked_at <= each.ended_at):
            looked_at = each.found_at
    return looked_at


def _begin(found: int, points: Sequence[SeriesPoint]) -> int:
    """Return where a change begins: with the new model if that is next to where it was found.

    A change of two results can only be found as one of three, so that its place is not exact.
    """
    changed = [
        at
        for at in range(max(1, found - MAX_MISS), min(len(points), found + MAX_MISS + 1))
        if points[at].model_sha256 != points[at - 1].model_sha256
    ]
    return min(changed, key=lambda at: abs(at - found), default=found)


def _due_again(
    points: Sequence[SeriesPoint], earlier: Sequence[SeriesChange]
) -> Sequence[SeriesChange]:
    """Return the newest change, if it stayed unconfirmed and there are enough points since, with
    those before it that were suspected at the same place."""
    known = [each for each in earlier if each.status is not ChangeStatus.NOISE]
    if not known or known[0].status is not ChangeStatus.UNCONFIRMED:
        return ()
    measured = [each for each in points if is_measured(each.value)]
    place = {each.benchmark_id: at for at, each in enumerate(measured)}
    if (begin := place.get(known[0].begin_id)) is None:
        return ()
    same = [
        each
        for each in known
        if each.status is ChangeStatus.UNCONFIRMED
        and abs(place.get(each.begin_id, len(measured) + NEWEST) - begin) <= MAX_MISS
    ]
    ended_at = known[0].ended_at or known[0].found_at
    since = sum(each.ended_at > ended_at for each in measured)
    return same if since >= AGAIN_AFTER * 2 ** (len(same) - 1) else ()


def _present_level(points: Sequence[SeriesPoint], earlier: Sequence[SeriesChange]) -> int:
    """Return where the last known change begins: the distance of older levels hides others."""
    known = {each.begin_id for each in earlier if each.status is not ChangeStatus.NOISE}
    return max((at for at, each in enumerate(points) if each.benchmark_id in known), default=0)


def _is_known(
    change: Change,
    before: SeriesPoint,
    begin: SeriesPoint,
    earlier: Sequence[SeriesChange],
    now: datetime,
) -> bool:
    """Return whether a change was found before, or is that of an alert that is open.

    Noise is found again only above its threshold, which is larger than itself; so it need not have
    begun later. What was found by a clock that was ahead says nothing about the times since.
    """
    is_other_model = begin.model_sha256 != before.model_sha256
    for each in earlier:
        is_noise = each.status is ChangeStatus.NOISE
        if not is_noise and begin.ended_at <= each.found_at <= now:
            return True
        if each.status is ChangeStatus.NOISE and begin.benchmark_id == each.begin_id:
            return True
        if each.status in ACTIVE_ALERTS and (each.size > 0) == (change.size > 0):
            is_larger = magnitude(change.size) >= magnitude(each.best_size)
            if not (is_other_model or is_larger):
                return True
    return False


def _alert_of(change: Change, earlier: Sequence[SeriesChange], now: datetime) -> str | None:
    """Return the alert that a change takes back, or brings back; None: it is a new one."""
    alert = next((each for each in earlier if each.is_alert), None)
    if alert is None:
        return None
    moved, size = math.log1p(alert.best_size), math.log1p(change.size)
    if alert.status is not ChangeStatus.RESOLVED:
        is_back = abs(moved + size) < abs(moved) / 2  # nearer to the old level than to the new one
        return alert.change_id if is_back else None
    comes_back = abs(moved - size) < abs(moved) / 2
    is_recent = alert.ended_at is not None and now - alert.ended_at <= REOPEN_WITHIN
    return alert.change_id if comes_back and is_recent else None
