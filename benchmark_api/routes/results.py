"""What benchmarks led to: reports, files, rows for comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request
from fastapi.responses import Response
from msgspec.structs import asdict

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Reader, Submitter
from edgeyard.benchmark_api.figures.runs import read_latencies
from edgeyard.benchmark_api.routes.context import (
    BenchmarkId,
    Body,
    Context,
    Ctx,
    named,
    visible,
    visible_campaign,
)
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts, content
from edgeyard.benchmark_api.routes.sending import stored_file
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.benchmark_api.schemas.requests import MAX_COMPARED, ComparisonIn, parse
from edgeyard.benchmark_api.sdk.comparison import (
    differences,
    relative_to,
)
from edgeyard.benchmark_api.sdk.fronts import Front, fronts_of, with_fronts
from edgeyard.devices.metrics import HIGHER
from edgeyard.errors import Conflict, InvalidInput, NotFound, Unavailable
from edgeyard.scheduler.engine.housekeeping import release
from edgeyard.scheduler.engine.repeatability import RunVariations
from edgeyard.scheduler.model.benchmark import TERMINAL, Benchmark
from edgeyard.scheduler.model.canaries import drifted
from edgeyard.scheduler.model.files import Report, newest_report
from edgeyard.scheduler.ports import BenchmarkFilter, UnitOfWork

router = Router(prefix="/v1", tags=["results"])

MAX_ROWS = 1000

LATENCIES = "latencies.npy"
"""The result file that holds the single latencies of a run."""


@router.delete("/benchmarks/{benchmark_id}/files", status_code=204)
def drop_files(benchmark_id: BenchmarkId, caller: Submitter, context: Ctx) -> Response:
    """Delete the stored files of an ended benchmark: model, data sets and uploaded results.

    Its reports and everything else that is known of it stay.
    """
    services = context.services

    def drop(uow: UnitOfWork) -> dict[str, datetime]:
        benchmark = visible(uow, benchmark_id, caller)
        if benchmark.status not in TERMINAL or benchmark.ended_at is None:
            raise Conflict(f"{benchmark_id} is {benchmark.status.value}: its files are in use")
        return drop_contents(uow, benchmark, benchmark.ended_at)

    dropped = services.store.transact(drop, frees_space=True)
    release(services.store, services.files, dropped)
    return Response(status_code=204)


def drop_contents(uow: UnitOfWork, benchmark: Benchmark, ended_at: datetime) -> dict[str, datetime]:
    """Let an ended benchmark keep no files; returns when their contents were named, by hash."""
    named = {each.sha256: each.received_at for each in uow.files.results(benchmark.benchmark_id)}
    dropped = uow.files.drop_files(benchmark.benchmark_id, benchmark.user_id)
    return {sha256: named.get(sha256, ended_at) for sha256 in dropped}


@router.get("/benchmarks/{benchmark_id}/results")
def results(benchmark_id: BenchmarkId, caller: Submitter, context: Ctx) -> Answer[shapes.Results]:
    """Reports and files of all attempts, and a summary of the newest report."""
    services = context.services
    with services.store.read() as uow:
        benchmark = visible(uow, benchmark_id, caller)
        reports = with_drift(uow, [benchmark], uow.files.reports(benchmark_id))
        files = uow.files.results(benchmark_id)
        newest = newest_report(reports)
        summary = _summary(benchmark, newest, RunVariations(uow)) if newest is not None else None
    report = newest.report if newest is not None else {}
    return Answer(
        shapes.Results(
            benchmark_id=benchmark_id,
            status=benchmark.status,
            summary=summary,
            inference=views.inference_sets(report),
            layers=views.layer_profile(report),
            load_test=views.load_result(report),
            concurrency=views.concurrency_result(report),
            soak=views.soak_result(report),
            reports=[
                shapes.AttemptReport(
                    attempt=each.attempt, received_at=each.received_at, report=dict(each.report)
                )
                for each in reports
            ],
            files=[views.result_file(services, each) for each in files],
        )
    )


@router.get(
    "/benchmarks/{benchmark_id}/results/{attempt}/{name}",
    responses=content(200, "application/octet-stream", "The file, or the requested range of it."),
)
def result_file(
    benchmark_id: BenchmarkId,
    attempt: int,
    name: str,
    request: Request,
    caller: Submitter,
    context: Ctx,
) -> Response:
    """One uploaded file."""
    services = context.services
    with services.store.read() as uow:
        visible(uow, benchmark_id, caller)
        found = uow.files.results(benchmark_id)
    for file in found:
        if (file.attempt, file.name) == (attempt, name):
            return stored_file(request, services, file.sha256, file.name)
    raise NotFound("result file", name)


def latencies_ms(results: shapes.Results, context: Context) -> list[float]:
    """Return the single latencies of the newest report, as its attempt uploaded them; [] of none.

    Args:
        results: What the caller was shown.
        context: Of the app.
    """
    newest = max((each.attempt for each in results.reports), default=0)
    files = context.services.files
    for each in results.files:
        if (each.attempt, each.name) == (newest, LATENCIES):
            try:
                with files.path(each.sha256).open("rb") as file:
                    return read_latencies(file)
            except (NotFound, Unavailable, OSError):
                return []
    return []


@router.get("/results")
def rows(
    caller: Submitter,
    context: Ctx,
    benchmark_id: Annotated[list[str] | None, Query(max_length=MAX_ROWS)] = None,
    campaign_id: str | None = None,
) -> Answer[shapes.ResultRows]:
    """One row a benchmark, for tables and comparisons."""
    with context.services.store.read() as uow:
        if not benchmark_id and campaign_id is None:
            raise InvalidInput.at("", "names no benchmark", "benchmark_id=... or campaign_id=...")
        found = _named(uow, caller, benchmark_id or (), campaign_id, MAX_ROWS)
        return Answer(shapes.ResultRows(items=summaries(uow, found)))


@router.post("/results/comparison", openapi_extra=accepts("ComparisonIn"))
def comparison(body: Body, caller: Reader, context: Ctx) -> Answer[shapes.ResultComparison]:
    """Results next to a baseline; nothing is stored.

    A row has a ratio where the primary metric, type, data set, batch size, training and request to
    a language model are those of the baseline: model, engine and other parameters may differ, such
    as a model for ONNX Runtime and its other format for LiteRT. 404 where one of them does not
    exist or is somebody else's.
    """
    return compared(parse(ComparisonIn, body.tree()), caller, context)


def compared(
    wanted: ComparisonIn, caller: Caller, context: Context
) -> Answer[shapes.ResultComparison]:
    """Answer a comparison; see `comparison`."""
    with context.services.store.read() as uow:
        found = _named(uow, caller, wanted.benchmark_ids, wanted.campaign_id, MAX_COMPARED + 1)
        if len(found) > MAX_COMPARED:
            raise InvalidInput.at(
                "/campaign_id", f"has more than {MAX_COMPARED} benchmarks", "some of them, by id"
            )
        if not found:
            raise InvalidInput.at("/campaign_id", "has no benchmarks")
        baseline = found[0].benchmark_id
        if wanted.baseline is not None:
            (baseline,) = named(uow, [wanted.baseline], caller)
        items = summaries(uow, found)
    rows = [as_json(each) for each in items]
    of_baseline = next((row for row in rows if row["benchmark_id"] == baseline), None)
    if of_baseline is None:
        raise InvalidInput.at("/baseline", f"{baseline} is not one of the compared benchmarks")
    return Answer(
        shapes.ResultComparison(
            baseline=baseline,
            differences=differences(rows),
            fronts=[_front(each) for each in fronts_of(rows)],
            items=[
                extended(shapes.ComparedRow, item, row)
                for item, row in zip(
                    items, with_fronts(relative_to(rows, of_baseline)), strict=True
                )
            ],
        )
    )


def _front(front: Front) -> shapes.ParetoFront:
    judged = [
        (str(row["benchmark_id"]), on_front)
        for row, on_front in zip(front.rows, front.on_front, strict=True)
    ]
    return shapes.ParetoFront(
        metrics=[
            shapes.ComparedMetric(
                name=each.metric.name,
                unit=each.metric.unit,
                better="higher" if each.metric.better == HIGHER else "lower",
            )
            for each in front.objectives
        ],
        benchmark_ids=[name for name, on_front in judged if on_front],
        others=[name for name, on_front in judged if not on_front],
    )


def _named(
    uow: UnitOfWork,
    caller: Caller,
    benchmark_ids: Sequence[str],
    campaign_id: str | None,
    limit: int,
) -> list[Benchmark]:
    """Return the benchmarks that a request names, each once, or those of its campaign.

    Raises:
        NotFound: One of them, or the campaign, does not exist or is somebody else's.
    """
    if campaign_id is not None:
        visible_campaign(uow, campaign_id, caller)
        which = BenchmarkFilter(campaign_id=campaign_id)
        newest_first, _ = uow.benchmarks.page(which, limit=limit, cursor=None)
        return list(reversed(newest_first))
    whole_ids = dict.fromkeys(named(uow, benchmark_ids, caller))
    by_id = {each.benchmark_id: each for each in uow.benchmarks.get_many(list(whole_ids))}
    for each_id in whole_ids:
        if each_id not in by_id or not caller.may_see(by_id[each_id].user_id):
            raise NotFound("benchmark", each_id)
    return [by_id[each_id] for each_id in whole_ids]


def newest_reports(uow: UnitOfWork, benchmarks: Sequence[Benchmark]) -> dict[str, Report]:
    """Return the newest report of each benchmark that has one, by its id."""
    every = uow.files.reports_of_many([each.benchmark_id for each in benchmarks])
    every = with_drift(uow, benchmarks, every)
    return {each.benchmark_id: each for each in sorted(every, key=lambda report: report.attempt)}


def with_drift(
    uow: UnitOfWork, benchmarks: Sequence[Benchmark], reports: Sequence[Report]
) -> Sequence[Report]:
    """Return reports as they are shown: those of boards that drifted at the time are suspect.

    Args:
        uow: Open for reading.
        benchmarks: Those that the reports are of.
        reports: As they are stored.
    """
    drifts = uow.canaries.drifts() if reports else ()
    drift_of = {
        each.benchmark_id: drift
        for drift in reversed(drifts)  # of several the oldest
        for each in benchmarks
        if drift.covers(each)
    }
    if not drift_of:
        return reports
    return [
        replace(each, report=drifted(each.report, drift_of[each.benchmark_id]))
        if each.benchmark_id in drift_of
        else each
        for each in reports
    ]


def summaries(
    uow: UnitOfWork, benchmarks: Sequence[Benchmark], newest: Mapping[str, Report] | None = None
) -> list[shapes.ResultRow]:
    """Return a row for each benchmark, of its newest report, which is read if it is not given."""
    newest = newest_reports(uow, benchmarks) if newest is None else newest
    variations = RunVariations(uow)
    return [_summary(each, newest.get(each.benchmark_id), variations) for each in benchmarks]


_Row = TypeVar("_Row", shapes.ComparedRow, shapes.SeriesPoint)


def extended(shape: type[_Row], item: shapes.ResultRow, row: Mapping[str, Any]) -> _Row:
    """Return a row of results with the further fields of a shape, which `row` has."""
    own = asdict(item)
    return shape(**own, **{name: row[name] for name in shape.__struct_fields__ if name not in own})


def _summary(
    benchmark: Benchmark, report: Report | None, variations: RunVariations
) -> shapes.ResultRow:
    variation = variations.of(benchmark, report.report) if report is not None else None
    return views.summary(benchmark, report, variation)
