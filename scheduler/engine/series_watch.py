"""The watch over series: follows the log, and looks for changes in series that have new points.

One transaction stores which series are due together with the number of the last event that was
followed; another one stores what was found in a series together with that it is no longer due. So a
server that dies loses no point, and no other one looks at a series twice. A turn is bounded: if
10,000 series have new points at once, those whose points came last wait, and nothing else does.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from edgeyard.errors import NotFound, Unavailable
from edgeyard.scheduler.decide.change_points import LOOK_BACK
from edgeyard.scheduler.decide.series_watch import MAX_EARLIER_CHANGES, suspicion
from edgeyard.scheduler.engine.blame import blame_again
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.series import SeriesKey
from edgeyard.scheduler.model.series_changes import ACTIVE_ALERTS, ChangeStatus, SeriesChange
from edgeyard.scheduler.ports import Clock, Store, UnitOfWork

logger = logging.getLogger(__name__)

LOOKS_PER_TURN = 50
"""Series that are looked at in one turn; a look takes some milliseconds."""

_BATCH = 1000
_BATCHES_PER_TURN = 20

_SEEN_EVERY = 10_000
"""Events of other kinds after which it is stored that they were seen."""


class SeriesWatch:
    """Finds suspected changes. One thread."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """Nothing is read before `turn`."""
        self._store = store
        self._clock = clock
        self._read_up_to = 0

    def turn(self) -> int:
        """Follow the log, and look at the series that wait longest.

        Returns:
            How many changes are newly suspected.

        Raises:
            Unavailable: The store can't take it now.
        """
        self._follow()
        with self._store.read() as uow:
            due = uow.series.due(LOOKS_PER_TURN)
        if due:
            import ruptures  # noqa: F401  loading it takes a second: not within a transaction
        return sum(self._look(each.key) for each in due)

    def _follow(self) -> None:
        for _ in range(_BATCHES_PER_TURN):
            with self._store.read() as uow:
                seen = uow.series.seen_seq()
                events = uow.log.events(after=max(seen, self._read_up_to), limit=_BATCH)
                keys = _completed_series(uow, events)
            if not events:
                return
            last = events[-1].seq
            if keys or last >= seen + _SEEN_EVERY:
                self._store.transact(partial(_mark, keys, last, self._clock.now()))
            self._read_up_to = last
            if len(events) < _BATCH:
                return

    def _look(self, key: SeriesKey) -> bool:
        """Look at one series; an error is logged, so that the others are still looked at."""
        now = self._clock.now()
        try:
            return self._store.transact(partial(_look, key.series_id, now))
        except Unavailable:
            raise
        except Exception:
            logger.exception(
                "a look at a series broke",
                extra={"event": "series.broke", "series_id": key.series_id},
            )
            self._store.transact(partial(_put_off, key.series_id, now))
            return False


def log_change(uow: UnitOfWork, change: SeriesChange, kind: str, now: datetime) -> None:
    """Record an event of a change, for the owner of its series."""
    low, high = change.best_interval
    data = {
        "change_id": change.change_id,
        "series_id": change.key.series_id,
        "lineage": change.key.lineage,
        "target_uid": change.key.target_uid,
        "runtime": change.key.engine,
        "metric": change.metric,
        "size": change.best_size,
        "low": low,
        "high": high,
        "cause": change.cause,
        "sentence": ". ".join(filter(None, (change.sentence(), _why(change)))),
        "not_tested": " ".join(change.not_tested) if change.status in ACTIVE_ALERTS else "",
        **_origin(uow, change),
    }
    uow.log.append(Event(at=now, kind=kind, user_id=change.key.user_id, data=data))


def _origin(uow: UnitOfWork, change: SeriesChange) -> dict[str, str]:
    """Return what its user stated of the first result of the new level."""
    try:
        stated = uow.benchmarks.get(change.begin_id).description
    except NotFound:
        return {}
    return {"model": stated.model, "git_commit": stated.git_commit, "link": stated.link}


def _why(change: SeriesChange) -> str:
    """Return why a change has its status: the user that ended it, an alert's cause, or a reason."""
    if change.by_user_id is not None:
        return f"{change.by_user_id}: {change.note}" if change.note else f"by {change.by_user_id}"
    return (change.blame if change.status in ACTIVE_ALERTS else "") or change.reason


def _completed_series(uow: UnitOfWork, events: Sequence[Event]) -> frozenset[SeriesKey]:
    """Return the series of the benchmarks that completed by these events."""
    ids = [
        each.benchmark_id
        for each in events
        if each.kind == "benchmark.status"
        and each.data.get("status") == Status.COMPLETED.value
        and each.benchmark_id is not None
    ]
    found = (SeriesKey.of(each) for each in uow.benchmarks.get_many(ids)) if ids else ()
    # without a record of what was measured, its points may be of several kinds of work
    return frozenset(each for each in found if each is not None and each.work)


def _mark(keys: frozenset[SeriesKey], seq: int, now: datetime, uow: UnitOfWork) -> None:
    uow.series.mark_due(keys, now)
    uow.series.set_seen_seq(seq)


def _look(series_id: str, now: datetime, uow: UnitOfWork) -> bool:
    """Look at a series, and store the change that is suspected; return whether one is."""
    try:
        series = uow.series.watched(series_id)
    except NotFound:
        return False
    if series.due_since is None:
        return False  # another server has looked
    uow.series.save_watched(replace(series, due_since=None, looked_at=now))
    earlier = _earlier(uow, series_id)
    for alert in earlier:
        if alert.status is ChangeStatus.CONFIRMED and (known := blame_again(uow, alert, now)):
            uow.series.save_change(known)
            log_change(uow, known, "series.blamed", now)
    found = suspicion(
        uow.series.points(series.key, until=now, limit=LOOK_BACK),
        earlier,
        series.threshold_now(now),
        now,
        series.looked_at,
    )
    if found is None:
        return False
    change = SeriesChange(
        change_id=f"alert-{secrets.token_hex(8)}",
        key=series.key,
        begin_id=found.begin_id,
        before_id=found.before_id,
        metric=found.metric,
        worse=found.worse,
        size=found.size,
        low=found.low,
        high=found.high,
        found_at=now,
        alert_id=found.alert_id,
    )
    uow.series.add_change(change)
    log_change(uow, change, "series.suspected", now)
    return True


def _earlier(uow: UnitOfWork, series_id: str) -> Sequence[SeriesChange]:
    """Return the newest changes of a series; noise, however much there was, hides no alert."""
    noise = frozenset({ChangeStatus.NOISE})
    found = [
        each
        for status in (noise, frozenset(ChangeStatus) - noise)
        for each in uow.series.changes_of([series_id], limit=MAX_EARLIER_CHANGES, status=status)
    ]
    return sorted(found, key=lambda each: each.found_at, reverse=True)


def _put_off(series_id: str, now: datetime, uow: UnitOfWork) -> None:
    """Look at a series again when it has a new point."""
    series = uow.series.watched(series_id)
    uow.series.save_watched(replace(series, due_since=None, looked_at=now))
