"""Series: results of one lineage over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.routes.context import Body, Context, Ctx, visible_series
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.routes.results import extended, newest_reports, summaries
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.benchmark_api.schemas.fields import BenchmarkTypeName
from edgeyard.benchmark_api.schemas.requests import MAX_COMPARED, SeriesSettingsIn, parse
from edgeyard.benchmark_api.sdk.comparison import over_time, valid_value
from edgeyard.scheduler.decide.change_points import change_points
from edgeyard.scheduler.engine.alerts import reset_threshold, set_alert_unconfirmed
from edgeyard.scheduler.model.benchmark import Benchmark, Status
from edgeyard.scheduler.model.series import SeriesKey, WatchedSeries
from edgeyard.scheduler.model.series_changes import ACTIVE_ALERTS, ChangeStatus, SeriesChange
from edgeyard.scheduler.model.workload import stated_work, work_of_series
from edgeyard.scheduler.ports import BenchmarkFilter, UnitOfWork

router = Router(prefix="/v1/series", tags=["results"])

_PAGE = 500
_CHANGES = 200
_ALERTS = 2 * _PAGE  # of each series, one in each direction may be confirmed or open


@router.get("")
def list_series(
    caller: Submitter,
    context: Ctx,
    series: str | None = None,
    target: str | None = None,
    target_uid: str | None = None,
    runtime: str | None = None,
    benchmark_type: BenchmarkTypeName | None = None,
    limit: Annotated[int, Query(ge=1, le=_PAGE)] = 100,
    cursor: str | None = None,
) -> Answer[shapes.SeriesList]:
    """Your series by name; operators see everybody's, by owner.

    A completed benchmark is a point of one, if its board is known: of the lineage that its
    submission stated as `series`, otherwise of that of its schedule, otherwise of that of its
    model's name. Runs of checks are in none.
    """
    which = BenchmarkFilter(
        user_id=None if caller.is_operator else caller.user_id,
        series=series,
        family=target,
        target_uid=target_uid,
        engine=runtime,
        benchmark_type=benchmark_type,
        include_deleted=False,
    )
    with context.services.store.read() as uow:
        found, following = uow.benchmarks.series(which, limit=limit, cursor=cursor)
        ids = [each.key.series_id for each in found]
        members = uow.benchmarks.get_many([each.member_id for each in found])
        watched = {each.key.series_id: each for each in uow.series.watched_many(ids)}
        alerts = {
            each.key.series_id: each.change_id
            for each in reversed(uow.series.changes_of(ids, limit=_ALERTS, status=ACTIVE_ALERTS))
        }
    now = context.services.clock.now()
    measures = {each.benchmark_id: stated_work(each.description) for each in members}
    items = [
        shapes.Series(
            series_id=each.key.series_id,
            lineage=each.key.lineage,
            user_id=each.key.user_id,
            target_uid=each.key.target_uid,
            runtime=each.key.engine,
            benchmark_type=each.key.benchmark_type,
            measures=measures[each.member_id],
            points=each.points,
            first_at=each.first_at,
            last_at=each.last_at,
            threshold=known.threshold_now(now)
            if (known := watched.get(each.key.series_id)) is not None
            else 0.0,
            alert_id=alerts.get(each.key.series_id),
        )
        for each in found
    ]
    return Answer(shapes.SeriesList(items=items, next_cursor=following))


@router.get("/points")
def points(
    caller: Submitter,
    context: Ctx,
    series: str,
    target: str | None = None,
    target_uid: str | None = None,
    runtime: str | None = None,
    benchmark_type: BenchmarkTypeName | None = None,
    submitted_from: AwareDatetime | None = None,
) -> Answer[shapes.SeriesPoints]:
    """Your completed results of a lineage over time, each relative to the one before it.

    These are the newest 500 as selected, with the newest 500 benchmarks that failed in the same
    time; operators see everybody's. The one before is the last valid one of the same series:
    versions of the model and of the engine may differ, but not the board, the engine, the type, the
    inputs or the parameters.
    """
    which = BenchmarkFilter(
        user_id=None if caller.is_operator else caller.user_id,
        status=frozenset({Status.COMPLETED}),
        series=series,
        family=target,
        target_uid=target_uid,
        engine=runtime,
        benchmark_type=benchmark_type,
        submitted_from=submitted_from,
        include_deleted=False,
    )
    with context.services.store.read() as uow:
        newest_first, older = uow.benchmarks.page(which, limit=MAX_COMPARED, cursor=None)
        own = list(reversed(newest_first))
        failed = _failed(uow, which, since=own[0].submit_time if older else submitted_from)
        reports = newest_reports(uow, own)
        rows = summaries(uow, own, reports)
        items, shown = {}, []
        for benchmark, row in zip(own, rows, strict=True):
            report = reports.get(benchmark.benchmark_id)
            items[benchmark.benchmark_id] = row
            shown.append({**as_json(row), **_facts(benchmark, report.report if report else {})})
        ids = sorted({str(each["series_id"]) for each in shown})
        watched = uow.series.watched_many(ids)
        changes = _changes(uow, ids)
    compared = over_time(shown)
    suspected = _suspected(compared)
    now = context.services.clock.now()
    return Answer(
        shapes.SeriesPoints(
            items=[
                extended(
                    shapes.SeriesPoint,
                    items[str(row["benchmark_id"])],
                    {**row, "suspected": suspected.get(str(row["benchmark_id"]))},
                )
                for row in compared
            ],
            watched=[views.watched_series(each, now) for each in watched],
            changes=[views.series_change(context.services, each) for each in changes],
            failed=failed,
            left_out=len(own) - len(compared),
            truncated=older is not None,
        )
    )


@router.get("/{series_id}")
def show(series_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.WatchedSeries]:
    """The state of the watch over a series: its threshold, and which changes become alerts.

    404 also where the watch has seen none of its results yet.
    """
    services = context.services
    with services.store.read() as uow:
        found = visible_series(uow, series_id, caller)
    return Answer(views.watched_series(found, services.clock.now()))


@router.delete("/{series_id}/threshold")
def reset(series_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.WatchedSeries]:
    """Remove the threshold of a series, so that small changes are suspected again."""
    return _changed(series_id, caller, context, reset_threshold)


@router.put("/{series_id}/settings", openapi_extra=accepts("SeriesSettingsIn"))
def set_settings(
    series_id: str, body: Body, caller: Submitter, context: Ctx
) -> Answer[shapes.WatchedSeries]:
    """Set whether suspected changes that could not be confirmed become alerts, too."""
    wanted = parse(SeriesSettingsIn, body.tree()).alert_unconfirmed

    def change(uow: UnitOfWork, series_id: str, now: datetime, by: str) -> WatchedSeries:
        return set_alert_unconfirmed(uow, series_id, wanted, now, by)

    return _changed(series_id, caller, context, change)


def _changed(
    series_id: str,
    caller: Caller,
    context: Context,
    change: Callable[[UnitOfWork, str, datetime, str], WatchedSeries],
) -> Answer[shapes.WatchedSeries]:
    services = context.services
    now = services.clock.now()

    def apply(uow: UnitOfWork) -> WatchedSeries:
        visible_series(uow, series_id, caller)
        return change(uow, series_id, now, caller.user_id)

    return Answer(views.watched_series(services.store.transact(apply), now))


def _changes(uow: UnitOfWork, series_ids: Sequence[str]) -> Sequence[SeriesChange]:
    """Return the newest changes of series, and all alerts that are open however old they are."""
    alerts = uow.series.changes_of(series_ids, limit=_CHANGES, status=ACTIVE_ALERTS)
    others = frozenset(ChangeStatus) - ACTIVE_ALERTS
    more = uow.series.changes_of(series_ids, limit=_CHANGES - len(alerts), status=others)
    return sorted([*alerts, *more], key=lambda each: each.found_at, reverse=True)


def _failed(
    uow: UnitOfWork, which: BenchmarkFilter, since: datetime | None
) -> list[shapes.FailedRun]:
    """Return the newest of a lineage that failed, by the end of their runs."""
    wanted = replace(which, status=frozenset({Status.FAILED}), submitted_from=since)
    found, _ = uow.benchmarks.page(wanted, limit=MAX_COMPARED, cursor=None)
    runs = [
        shapes.FailedRun(
            benchmark_id=each.benchmark_id,
            target_uid=each.target_uid,
            runtime=each.description.runtime,
            benchmark_type=each.description.benchmark_type.value,
            ended_at=each.ended_at or each.submit_time,
            failure=views.failure(each.failure),
        )
        for each in found
    ]
    return sorted(runs, key=lambda each: each.ended_at)


def _suspected(rows: Sequence[Mapping[str, object]]) -> dict[str, shapes.SuspectedChange]:
    """Return the suspected changes of each series, by the benchmark that they begin with."""
    by_series: dict[str, list[Mapping[str, object]]] = {}
    for row in rows:
        by_series.setdefault(str(row["series_id"]), []).append(row)
    found = {}
    for own in by_series.values():
        for change in change_points([valid_value(row) for row in own]):
            found[str(own[change.position]["benchmark_id"])] = shapes.SuspectedChange(
                size=change.size, low=change.low, high=change.high
            )
    return found


def _facts(benchmark: Benchmark, report: Mapping[str, object]) -> dict[str, object]:
    """Return what may explain a point, beyond what every row of results has."""
    description, conditions = benchmark.description, views.table(report, "conditions")
    work = benchmark.work or work_of_series(benchmark, report)  # of old ones it was not recorded
    key = SeriesKey.of(replace(benchmark, work=work))
    return {
        "series_id": key.series_id if key is not None else "",
        "user_id": benchmark.user_id,
        "git_commit": description.git_commit,
        "link": description.link,
        "runner": views.text(views.table(report, "runner"), "version"),
        "governor": views.text(views.table(report, "board"), "governor"),
        "temperature_c": views.number(views.table(conditions, "temperature_c"), "after"),
        "other_load": views.number(conditions, "other_load"),
    }
