"""What benchmarks led to: reports, files, rows for comparisons."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import Submitter
from edgeyard.benchmark_api.figures.runs import read_latencies
from edgeyard.benchmark_api.routes import views
from edgeyard.benchmark_api.routes.context import BenchmarkId, Context, Ctx, named, visible
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import content
from edgeyard.benchmark_api.routes.sending import stored_file
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import Conflict, InvalidInput, NotFound, Unavailable
from edgeyard.scheduler.engine.housekeeping import release
from edgeyard.scheduler.engine.repeatability import RunVariations
from edgeyard.scheduler.model.benchmark import TERMINAL, Benchmark
from edgeyard.scheduler.model.files import Report
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
        reports = uow.files.reports(benchmark_id)
        files = uow.files.results(benchmark_id)
        newest = views.newest(reports)
        summary = _summary(benchmark, newest, RunVariations(uow)) if newest is not None else None
    return Answer(
        shapes.Results(
            benchmark_id=benchmark_id,
            status=benchmark.status,
            summary=summary,
            inference=views.inference_sets(newest.report if newest is not None else {}),
            layers=views.layer_profile(newest.report if newest is not None else {}),
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
        if campaign_id is not None:
            campaign = uow.campaigns.get(campaign_id)
            if not caller.may_see(campaign.user_id):
                raise NotFound("campaign", campaign_id)
            which = BenchmarkFilter(campaign_id=campaign_id)
            newest_first, _ = uow.benchmarks.page(which, limit=MAX_ROWS, cursor=None)
            found = list(reversed(newest_first))
        elif benchmark_id:
            whole_ids = dict.fromkeys(named(uow, benchmark_id, caller))
            by_id = {each.benchmark_id: each for each in uow.benchmarks.get_many(list(whole_ids))}
            found = []
            for each_id in whole_ids:
                if each_id not in by_id or not caller.may_see(by_id[each_id].user_id):
                    raise NotFound("benchmark", each_id)
                found.append(by_id[each_id])
        else:
            raise InvalidInput.at("", "names no benchmark", "benchmark_id=... or campaign_id=...")
        every = uow.files.reports_of_many([each.benchmark_id for each in found])
        newest: dict[str, Report] = {}
        for report in sorted(every, key=lambda one: one.attempt):
            newest[report.benchmark_id] = report
        variations = RunVariations(uow)
        items = [_summary(each, newest.get(each.benchmark_id), variations) for each in found]
    return Answer(shapes.ResultRows(items=items))


def _summary(
    benchmark: Benchmark, report: Report | None, variations: RunVariations
) -> shapes.ResultRow:
    variation = variations.of(benchmark, report.report) if report is not None else None
    return views.summary(benchmark, report, variation)
