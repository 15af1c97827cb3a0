"""Versions of a model around a change of its series, and what checks found of them.

All of it follows from the stored points of series and checks of a change, so that any server can
take the next step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from edgeyard.errors import NotFound
from edgeyard.scheduler.decide.blame import MeasuredVersion, Shift
from edgeyard.scheduler.decide.change_points import LOOK_BACK
from edgeyard.scheduler.decide.series_watch import MAX_MISS
from edgeyard.scheduler.decide.slowdown import judge_check
from edgeyard.scheduler.model.benchmark import FileRole
from edgeyard.scheduler.model.checks import CANDIDATE, Check
from edgeyard.scheduler.model.series import SeriesKey, SeriesPoint
from edgeyard.scheduler.model.series_changes import SeriesChange
from edgeyard.scheduler.ports import BenchmarkFilter, UnitOfWork

MAX_SERIES = 30
"""Series of one kind that are read for one change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of a model, by its content.

    Attributes:
        benchmark_id: A benchmark of it.
    """

    sha256: str
    benchmark_id: str


def ends_of_change(points: Sequence[SeriesPoint], change: SeriesChange) -> tuple[str, str]:
    """Return a benchmark of the version before a change, and one of the version after it.

    The place of a change may be wrong by `MAX_MISS` results. If versions follow each other that
    fast, these two are further apart, and a bisection measures the versions between them.

    Args:
        points: Of the series, the oldest first.
        change: With its place.
    """
    place = next(
        (at for at, each in enumerate(points) if each.benchmark_id == change.begin_id), None
    )
    if not place:
        return change.before_id, change.begin_id
    before = [each for each in points[:place] if each.value is not None][-1 - MAX_MISS :]
    after = [each for each in points[place:] if each.value is not None][: 1 + MAX_MISS]
    if not before or not after:
        return change.before_id, change.begin_id
    old = [each for each in before if each.model_sha256 == before[0].model_sha256]
    new = [each for each in after if each.model_sha256 == after[-1].model_sha256]
    return old[-1].benchmark_id, new[0].benchmark_id


def versions_between(
    uow: UnitOfWork, change: SeriesChange, old_id: str, new_id: str, now: datetime
) -> Sequence[Version]:
    """Return the versions that came between two, in the order of time.

    They are those of the lineage on all boards that were first measured after the old version and
    before the new one. What the series itself measured up to the old version is known already.

    Args:
        uow: Reads.
        change: Has the series.
        old_id: A result of the old version, in this series.
        new_id: A result of the new version, in this series.
        now: Results that ended later, by a clock that was wrong, are left out.
    """
    points = uow.series.points(change.key, until=now, limit=LOOK_BACK)
    place = {each.benchmark_id: at for at, each in enumerate(points)}
    if old_id not in place or new_id not in place:
        return ()
    old, new = points[place[old_id]], points[place[new_id]]
    known = {
        each.model_sha256 for each in points[: place[old_id] + 1] if each.value is not None
    } - {old.model_sha256}
    first: dict[str, SeriesPoint] = {}
    for key in same_lineage(uow, change.key):
        for each in uow.series.points(key, until=now, limit=LOOK_BACK):
            sha256 = each.model_sha256
            if sha256 is not None and (
                sha256 not in first or each.ended_at < first[sha256].ended_at
            ):
                first[sha256] = each
    begin = first.get(old.model_sha256 or "", old).ended_at
    end = first.get(new.model_sha256 or "", new).ended_at
    between = [
        each
        for sha256, each in first.items()
        if begin < each.ended_at < end and sha256 not in known
    ]
    return [
        Version(sha256=each.model_sha256 or "", benchmark_id=each.benchmark_id)
        for each in sorted(between, key=lambda each: (each.ended_at, each.benchmark_id))
    ]


def same_lineage(uow: UnitOfWork, key: SeriesKey) -> Iterator[SeriesKey]:
    """Yield the series that measure the same lineage in the same way, on all boards."""
    which = BenchmarkFilter(
        user_id=key.user_id,
        series=key.lineage,
        engine=key.engine,
        benchmark_type=key.benchmark_type,
        include_deleted=False,
    )
    found, _ = uow.benchmarks.series(which, limit=MAX_SERIES, cursor=None)
    return (each.key for each in found if each.key.work == key.work)


def checks_of_versions(uow: UnitOfWork, change: SeriesChange) -> Sequence[Check]:
    """Return the checks that measured two versions: the old and the new one first."""
    found = []
    for check_id in change.check_ids:
        try:
            check = uow.checks.get(check_id)
        except NotFound:
            continue
        if not check.recorded_ids:
            found.append(check)
    return found


def measured_versions(
    checks: Sequence[Check], between: Sequence[Version]
) -> Sequence[MeasuredVersion]:
    """Return what the checks of a bisection found, in the order of the versions.

    Args:
        checks: As `checks_of_versions` returns them.
        between: As `versions_between` returns them.
    """
    by_sha256 = {model_of_check(each, CANDIDATE): each for each in checks[1:]}
    return [_measured(each, by_sha256[each.sha256]) for each in between if each.sha256 in by_sha256]


def model_of_check(check: Check, side: str) -> str:
    """Return the hash of the model of one side of a check; "": it has none."""
    kept = check.versions[side]["files"]
    files: Sequence[Mapping[str, object]] = kept if isinstance(kept, list) else []
    return next((str(each["sha256"]) for each in files if FileRole(str(each["role"])).is_model), "")


def _measured(version: Version, check: Check) -> MeasuredVersion:
    found = judge_check(check)
    shift = None
    if found.slowdown is not None and found.low is not None and found.high is not None:
        shift = Shift(slowdown=found.slowdown, low=found.low, high=found.high)
    return MeasuredVersion(
        sha256=version.sha256,
        benchmark_id=version.benchmark_id,
        differs=check.confirms,
        shift=shift,
        reason=check.reason,
    )
