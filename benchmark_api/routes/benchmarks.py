"""List and show benchmarks; cancel, hold, release them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Literal, get_args

from fastapi import Query
from pydantic import AwareDatetime

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Operator, Submitter
from edgeyard.benchmark_api.routes.context import BenchmarkId, Body, Context, Ctx, Flag, visible
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.fields import BenchmarkTypeName
from edgeyard.benchmark_api.schemas.requests import PriorityIn, parse
from edgeyard.errors import InvalidInput, NotFound
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.acts import stated_reason
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    Status,
)
from edgeyard.scheduler.ports import BenchmarkFilter, UnitOfWork

router = Router(prefix="/v1/benchmarks", tags=["benchmarks"])

MAX_PAGE = 1000

Verdict = Literal["comparable", "suspect", "invalid"]
"""Verdict of a result, as its run judges itself."""

VERDICTS: tuple[str, ...] = get_args(Verdict)

_Change = Callable[[UnitOfWork, Benchmark, datetime], Benchmark]


@router.get("")
def list_benchmarks(
    caller: Submitter,
    context: Ctx,
    status: Annotated[list[Status] | None, Query()] = None,
    user_id: str | None = None,
    target: str | None = None,
    runtime: str | None = None,
    benchmark_type: BenchmarkTypeName | None = None,
    campaign_id: str | None = None,
    target_uid: str | None = None,
    model: str | None = None,
    verdict: Verdict | None = None,
    tag: str | None = None,
    name: str | None = None,
    schedule_id: str | None = None,
    submitted_from: AwareDatetime | None = None,
    submitted_before: AwareDatetime | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: str | None = None,
    total: Flag = False,
) -> Answer[shapes.BenchmarkPage]:
    """Your benchmarks, newest first; operators see everybody's."""
    which = BenchmarkFilter(
        user_id=user_id if caller.is_operator else caller.user_id,
        status=frozenset(status) if status else None,
        family=target,
        engine=runtime,
        benchmark_type=benchmark_type,
        campaign_id=campaign_id,
        target_uid=target_uid,
        model=model,
        verdict=verdict,
        tag=tag,
        name=name,
        schedule_id=schedule_id,
        submitted_from=submitted_from,
        submitted_before=submitted_before,
    )
    services = context.services
    if not caller.may_see(user_id or caller.user_id):
        return Answer(shapes.BenchmarkPage(items=[], next_cursor=None, total=0 if total else None))
    with services.store.read() as uow:
        page, following = uow.benchmarks.page(which, limit=limit, cursor=cursor)
        count = uow.benchmarks.count(which) if total else None
    items = [views.listed_benchmark(services, each) for each in page]
    return Answer(shapes.BenchmarkPage(items=items, next_cursor=following, total=count))


@router.get("/{benchmark_id}")
def show(benchmark_id: BenchmarkId, caller: Submitter, context: Ctx) -> Answer[shapes.Benchmark]:
    """One benchmark with its files and attempts; the id of one of its jobs finds it too."""
    with context.services.store.read() as uow:
        try:
            benchmark = visible(uow, benchmark_id, caller)
        except NotFound:
            of_job = _of_job(uow, benchmark_id, caller)
            if of_job is None:
                raise  # the first one, which does not give away whose job it is
            benchmark = of_job
        attempts = uow.attempts.of(benchmark.benchmark_id)
    return Answer(views.benchmark(context.services, benchmark, attempts))


def _of_job(uow: UnitOfWork, job_id: str, caller: Caller) -> Benchmark | None:
    """Return the benchmark that a job was made for; None where the caller can see none.

    Handed the exception to raise, this function's frame would be in a cycle with it.
    """
    try:
        return visible(uow, uow.attempts.by_job_id(job_id).benchmark_id, caller)
    except NotFound:
        return None


@router.post("/{benchmark_id}/cancel", status_code=202)
def cancel(benchmark_id: BenchmarkId, caller: Submitter, context: Ctx) -> Answer[shapes.Benchmark]:
    """End it: its task is stopped and its board freed. Cancelling twice is no error."""

    def change(uow: UnitOfWork, benchmark: Benchmark, now: datetime) -> Benchmark:
        if benchmark.status is Status.CANCELLED:
            return benchmark
        return lifecycle.cancel(uow, benchmark_id, now, caller.user_id, stated_reason())

    return _changed(context, caller, benchmark_id, change)


@router.post("/{benchmark_id}/hold", status_code=202)
def hold(benchmark_id: BenchmarkId, caller: Submitter, context: Ctx) -> Answer[shapes.Benchmark]:
    """Keep a pending benchmark from being placed."""
    return _changed(
        context,
        caller,
        benchmark_id,
        lambda uow, _, now: lifecycle.hold(
            uow, benchmark_id, now, caller.user_id, True, stated_reason()
        ),
    )


@router.post("/{benchmark_id}/release", status_code=202)
def release(benchmark_id: BenchmarkId, caller: Submitter, context: Ctx) -> Answer[shapes.Benchmark]:
    """Let a held benchmark go on."""
    return _changed(
        context,
        caller,
        benchmark_id,
        lambda uow, _, now: lifecycle.hold(uow, benchmark_id, now, caller.user_id, False),
    )


@router.post("/{benchmark_id}/preempt", status_code=202)
def preempt(benchmark_id: BenchmarkId, caller: Operator, context: Ctx) -> Answer[shapes.Benchmark]:
    """Stop a running benchmark: it goes back to the queue with its age, and loses no retry."""
    return _changed(
        context,
        caller,
        benchmark_id,
        lambda uow, _, now: lifecycle.preempt_by_operator(
            uow, benchmark_id, now, caller.user_id, stated_reason()
        ),
    )


@router.post("/{benchmark_id}/priority", status_code=202, openapi_extra=accepts("PriorityIn"))
def prioritise(
    benchmark_id: BenchmarkId, body: Body, caller: Submitter, context: Ctx
) -> Answer[shapes.Benchmark]:
    """Give a pending benchmark another user priority, within its owner's limit."""
    request = parse(PriorityIn, body.tree())

    def change(uow: UnitOfWork, benchmark: Benchmark, now: datetime) -> Benchmark:
        max_priority = (
            10 if caller.is_operator else uow.accounts.user(benchmark.user_id).max_priority
        )
        if request.user_priority > max_priority:
            reason = "is above your account's limit"
            raise InvalidInput.at("/user_priority", reason, f"1 to {max_priority}")
        return lifecycle.prioritise(uow, benchmark_id, now, caller.user_id, request.user_priority)

    return _changed(context, caller, benchmark_id, change)


def _changed(
    context: Context, caller: Caller, benchmark_id: str, change: _Change
) -> Answer[shapes.Benchmark]:
    services = context.services

    def work(uow: UnitOfWork) -> tuple[Benchmark, Sequence[Attempt]]:
        benchmark = visible(uow, benchmark_id, caller)
        saved = change(uow, benchmark, services.clock.now())
        return saved, uow.attempts.of(benchmark_id)

    saved, attempts = services.store.transact(work, frees_space=True)
    services.engine.wake()
    return Answer(views.benchmark(services, saved, attempts), 202)
