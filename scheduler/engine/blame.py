"""The evidence by which the cause of a change of a series is named, read from the store."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache

from edgeyard.devices.metrics import Metric
from edgeyard.scheduler.decide.blame import (
    NOT_COMPARED,
    Blame,
    Cause,
    Evidence,
    Neighbour,
    Shift,
    Sister,
    Trial,
    lacks_results,
)
from edgeyard.scheduler.decide.blame import blame as blame_by
from edgeyard.scheduler.decide.change_points import LOOK_BACK, MIN_SEGMENT, is_measured
from edgeyard.scheduler.decide.series_watch import MAX_MISS
from edgeyard.scheduler.engine.versions import (
    MAX_SERIES,
    Version,
    checks_of_versions,
    measured_versions,
    model_of_check,
    same_lineage,
)
from edgeyard.scheduler.model.canaries import CANARY_USER
from edgeyard.scheduler.model.checks import BASELINE, CANDIDATE
from edgeyard.scheduler.model.files import newest_report
from edgeyard.scheduler.model.series import SeriesKey, SeriesPoint
from edgeyard.scheduler.model.series_changes import SeriesChange
from edgeyard.scheduler.ports import BenchmarkFilter, UnitOfWork

_RESULTS_GONE = "The results around the change were deleted, so that no other cause was looked for."

_STILL_MEASURED = timedelta(days=30)
"""A series whose last result is older than that has probably ended."""

_TRIALS = {True: Trial.DIFFERENT, False: Trial.EQUAL, None: Trial.UNDECIDED}
"""What a check of both versions found, by `Check.confirms`."""


def blame(
    uow: UnitOfWork, change: SeriesChange, now: datetime, between: Sequence[Version] = ()
) -> Blame:
    """Name the cause of a change that was confirmed, by what is stored now.

    Where the results around it were deleted, only its checks show a cause.

    Args:
        uow: Reads.
        change: With its checks, and its size as they have measured it.
        now: Results that ended later, by a clock that was wrong, are left out.
        between: The versions that a bisection of it considered.
    """
    checks = checks_of_versions(uow, change)
    points = uow.series.points(change.key, until=now, limit=LOOK_BACK)
    begin = next((at for at, each in enumerate(points) if each.benchmark_id == change.begin_id), 0)
    if begin == 0:
        found = blame_by_checks(uow, change, between)
        return replace(found, not_tested=(*found.not_tested, _RESULTS_GONE))
    # the place of a change may be wrong by some points
    old, new = points[max(0, begin - 1 - MAX_MISS) :][:1], points[begin:][: 1 + MAX_MISS][-1:]
    if points[begin].model_sha256 != points[max(0, begin - 1)].model_sha256:
        old = points[max(0, begin - 1) :][:1]
    before, warm = _facts(uow, old[0].benchmark_id)
    after, warmer = _facts(uow, new[0].benchmark_id)
    if checks:
        before[Cause.MODEL], after[Cause.MODEL] = (
            model_of_check(checks[0], side) for side in (BASELINE, CANDIDATE)
        )
    begin_at = points[begin].ended_at
    return blame_by(
        Evidence(
            target_uid=change.key.target_uid,
            is_canary=change.key.user_id == CANARY_USER,
            shift=_shift_of(change),
            before=before,
            after=after,
            trial=_TRIALS[checks[0].confirms] if checks else Trial.NOT_RUN,
            trial_note="; ".join(change.not_tested),
            versions=measured_versions(checks, between),
            neighbours=list(_neighbours(uow, change.key, begin_at, now)),
            sisters=list(_sisters(uow, change.key, before, after, begin_at, now)),
            warmer_c=None if warm is None or warmer is None else warmer - warm,
        )
    )


def blame_again(uow: UnitOfWork, alert: SeriesChange, now: datetime) -> SeriesChange | None:
    """Return an alert with its cause as it is known by now; None: nothing more is known.

    Only where its cause was named without series that had too few results yet.

    Args:
        uow: Reads.
        alert: That is confirmed.
        now: As for `blame`.
    """
    if not lacks_results(alert.not_tested):
        return None
    found = blame(uow, replace(alert, not_tested=()), now)
    if _RESULTS_GONE in found.not_tested:
        return None
    compared = [each for each in alert.not_tested if each.startswith(NOT_COMPARED)]
    others = (each for each in found.not_tested if not each.startswith(NOT_COMPARED))
    known = replace(
        alert,
        cause=found.cause.value,
        blame=found.sentence,
        not_tested=(*compared, *others),
    )
    return None if known == alert else known


def blame_by_checks(
    uow: UnitOfWork, change: SeriesChange, between: Sequence[Version] = ()
) -> Blame:
    """Name the cause as far as the checks of a change show it, without its results.

    Args:
        uow: Reads.
        change: As for `blame`.
        between: As for `blame`.
    """
    checks = checks_of_versions(uow, change)
    if not checks or not checks[0].confirms:
        return Blame(cause=Cause.UNKNOWN, sentence="What explains it was not looked for.")
    before, after = (
        {Cause.MODEL: model_of_check(checks[0], side)} for side in (BASELINE, CANDIDATE)
    )
    return blame_by(
        Evidence(
            target_uid=change.key.target_uid,
            shift=_shift_of(change),
            before=before,
            after=after,
            trial=Trial.DIFFERENT,
            versions=measured_versions(checks, between),
        )
    )


def _shift_of(change: SeriesChange) -> Shift:
    sign = 1 if change.worse == (change.best_size > 0) else -1
    ends = [sign * each for each in change.best_interval]
    return Shift(slowdown=sign * change.best_size, low=min(ends), high=max(ends))


def _neighbours(
    uow: UnitOfWork, key: SeriesKey, begin_at: datetime, now: datetime
) -> Iterator[Neighbour]:
    """Yield canaries and the user's own other series on the board, with results of both sides.

    A series whose own model changed at the same time shows nothing of the board.
    """
    for user_id in dict.fromkeys((CANARY_USER, key.user_id)):
        here = BenchmarkFilter(user_id=user_id, target_uid=key.target_uid, include_deleted=False)
        found, _ = uow.benchmarks.series(here, limit=MAX_SERIES, cursor=None)
        for other in (each.key for each in found):
            points = uow.series.points(other, until=now, limit=LOOK_BACK)
            place = _place_at(points, begin_at)
            shift = _shift_of_points(points[:place], points[place:], begin_at)
            if other != key and shift is not None and not _is_other_model(points, place):
                yield Neighbour(name=other.lineage, canary=user_id == CANARY_USER, shift=shift)


def _sisters(
    uow: UnitOfWork,
    key: SeriesKey,
    before: Mapping[Cause, str],
    after: Mapping[Cause, str],
    begin_at: datetime,
    now: datetime,
) -> Iterator[Sister]:
    """Yield the same series on other boards, split where the facts changed there as they did here.

    Boards are seldom updated at the same time. A board on which no fact changed so is split at the
    time of the change here.
    """
    changed = [each for each in after if before.get(each, "") != after[each]]
    for other in same_lineage(uow, key):
        if other.target_uid == key.target_uid:
            continue
        points = uow.series.points(other, until=now, limit=LOOK_BACK)
        causes: dict[int, set[Cause]] = {}
        for place, cause in _places(uow, points, changed, after):
            causes.setdefault(place, set()).add(cause)
        if not causes:
            causes[_place_at(points, begin_at)] = set()
        ends = [0, *sorted(causes), len(points)]
        for start, place, end in zip(ends, ends[1:], ends[2:], strict=False):
            shift = _shift_of_points(points[start:place], points[place:end], begin_at)
            if shift is not None:
                changes = frozenset(causes[place])
                yield Sister(target_uid=other.target_uid, shift=shift, changes=changes)


def _places(
    uow: UnitOfWork,
    points: Sequence[SeriesPoint],
    causes: Sequence[Cause],
    after: Mapping[Cause, str],
) -> Iterator[tuple[int, Cause]]:
    """Yield where facts of a board became what they are after a change, of those that were not it
    in its first point and are it in its last one."""
    facts = cache(lambda at: _facts(uow, points[at].benchmark_id)[0])
    for cause in causes:

        def has_changed(at: int, cause: Cause = cause) -> bool:
            return bool(facts(at).get(cause) == after[cause])

        if points and facts(0).get(cause) and not has_changed(0) and has_changed(len(points) - 1):
            yield bisect_left(range(len(points)), True, key=has_changed), cause


def _place_at(points: Sequence[SeriesPoint], begin_at: datetime) -> int:
    """Return the place of the first result from a time on."""
    return sum(each.ended_at < begin_at for each in points)


def _is_other_model(points: Sequence[SeriesPoint], place: int) -> bool:
    """Return whether the result at a place is of another version than the one before it."""
    return 0 < place < len(points) and points[place - 1].model_sha256 != points[place].model_sha256


def _shift_of_points(
    before: Sequence[SeriesPoint], after: Sequence[SeriesPoint], begin_at: datetime
) -> Shift | None:
    """Return the shift between results; None where there are too few before it.

    A series that is still measured and has none after it yet has a shift that is not known.
    """
    points = after or before
    if not points:
        return None
    old, new = ([each.value for each in side] for side in (before, after))
    if not new and points[-1].ended_at >= begin_at - _STILL_MEASURED:
        return Shift.unknown() if sum(map(is_measured, old)) >= MIN_SEGMENT else None
    return Shift.between(old, new, Metric(points[-1].metric, better=points[-1].better))


def _facts(uow: UnitOfWork, benchmark_id: str) -> tuple[dict[Cause, str], float | None]:
    """Return the facts of a result that are known, and its temperature, degrees Celsius."""
    newest = newest_report(uow.files.reports(benchmark_id))
    report = {} if newest is None else newest.report
    model = uow.benchmarks.get(benchmark_id).model_sha256
    board = report.get("board")
    stated = {
        Cause.MODEL: model,
        Cause.ENGINE: _at(report.get("engine_facts"), "version"),
        Cause.RUNNER: _at(report.get("runner"), "version"),
        Cause.FIRMWARE: _at(board, "firmware"),
        Cause.KERNEL: _at(board, "kernel"),
        Cause.GOVERNOR: _at(board, "governor"),
    }
    celsius = _at(_at(report.get("conditions"), "temperature_c"), "after")
    facts = {cause: text for cause, text in stated.items() if isinstance(text, str) and text}
    return facts, float(celsius) if isinstance(celsius, int | float) else None


def _at(table: object, name: str) -> object:
    return table.get(name) if isinstance(table, Mapping) else None
