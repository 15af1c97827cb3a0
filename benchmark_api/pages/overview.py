"""The first page: what this lab is; for who is signed in, how it is doing."""

from __future__ import annotations

import statistics
from collections import Counter
from datetime import timedelta

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.auth import Caller, browser_caller, no_host
from edgeyard.benchmark_api.pages.page import page
from edgeyard.benchmark_api.pages.results import results_of
from edgeyard.benchmark_api.rate_limits import RateLimits
from edgeyard.benchmark_api.routes import benchmarks, health, lab, models, scorers
from edgeyard.benchmark_api.routes.context import Context, Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import Conflict, NotAuthenticated
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.registered_models import ModelState

router = PageRouter()

MAX_ATTENTION = 20
"""Boards that need a person which are listed one by one."""

NEWEST = 5
"""Results that are listed."""

_ATTENTION = ("quarantined", "unhealthy", "offline", "unknown")
"""States of boards that a person should look at, the most urgent first."""

ROLLED_BACK = timedelta(days=7)
"""Models that the server rolled back are listed for so long."""

_COMMANDS = {
    "files": "edgeyard server prune --dry-run",
    "disk": "edgeyard server prune --dry-run",
    "database": "edgeyard doctor",
    "cluster": "edgeyard doctor",
    "leader": "edgeyard doctor",
    "clock": "edgeyard doctor",
    "sandbox": "edgeyard doctor",
    "claims": "edgeyard doctor",
    "inventory": "edgeyard boards check",
    "strays": "edgeyard strays list",
    "repair": "edgeyard doctor",
}
"""The command that helps, by what the server finds wrong."""


@router.get("/")
def root() -> Response:
    """The lab's pages."""
    return RedirectResponse("/ui", 307)


@router.get("/ui")
async def first(request: Request, context: Ctx) -> Response:
    """What this lab is and the form for signing in, or the overview."""
    try:
        caller = no_host(await browser_caller(request))
    except NotAuthenticated:
        limits: RateLimits = request.app.state.rate_limits
        limits.count_address(request.scope)
        return await run_in_threadpool(_welcome, request, context)
    return await run_in_threadpool(_overview, request, context, caller)


def _welcome(request: Request, context: Context) -> Response:
    boards = context.services.inventory.boards
    families = Counter(each.family for each in boards)
    return page(
        request,
        "welcome",
        None,
        families=sorted(families.items()),
        boards=len(boards),
        email="",
        back="/ui",
    )


def _overview(request: Request, context: Context, caller: Caller) -> Response:
    boards = lab.boards(caller, context).content
    queue = lab.queue(caller, context, limit=1000).content
    running = benchmarks.list_benchmarks(
        caller, context, status=[Status.RUNNING], limit=50, total=True
    ).content
    since = context.services.clock.now() - timedelta(days=1)
    day = benchmarks.list_benchmarks(
        caller, context, submitted_from=since, limit=1000, total=True
    ).content
    newest = [each for each in day.items if each.status == Status.COMPLETED][:NEWEST]
    attention = sorted(
        (each for each in boards.items if each.state in _ATTENTION),
        key=lambda each: _ATTENTION.index(each.state),
    )
    return page(
        request,
        "overview",
        caller,
        boards=boards,
        states=Counter(each.state for each in boards.items).most_common(),
        attention=attention[:MAX_ATTENTION],
        more_attention=len(attention) - MAX_ATTENTION,
        queue=queue,
        reasons=Counter(map(_reason, queue.items)).most_common(),
        running=running,
        day=day,
        since=since,
        ended=Counter(each.status for each in day.items),
        newest=newest,
        results=results_of(newest, caller, context),
        wait_s=_median_wait_s(day.items),
        troubles=_troubles(context) if caller.is_operator else [],
        faulty=_faulty(caller, context) if caller.is_operator else [],
        models=_bad_models(caller, context) if caller.is_operator else [],
        training=_failed_training(caller, context) if caller.is_operator else None,
        commands=_COMMANDS,
        alerts=_active_alerts(caller, context),
    )


def _reason(item: shapes.QueueItem) -> str:
    """Return why a benchmark waits, as far as the caller may know it."""
    if item.waiting_reason is not None:
        return item.waiting_reason.code
    return "not decided yet" if item.benchmark_id is not None else "not yours to see"


def _active_alerts(caller: Caller, context: Context) -> int:
    """Return how many alerts that the caller may see are confirmed or open."""
    with context.services.store.read() as uow:
        return uow.series.count_alerts(None if caller.is_operator else caller.user_id)


def _median_wait_s(items: list[shapes.ListedBenchmark]) -> float | None:
    waits = [
        (each.started_at - each.submit_time).total_seconds() for each in items if each.started_at
    ]
    return statistics.median(waits) if waits else None


def _faulty(caller: Caller, context: Context) -> list[shapes.Scorer]:
    """Return the scorers that are suspended, or had a fault in the last day."""
    since = context.services.clock.now() - timedelta(days=1)
    return [
        each
        for each in scorers.scorers(caller, context).content.items
        if each.suspended_until or (each.last_fault_at and each.last_fault_at >= since)
    ]


def _bad_models(caller: Caller, context: Context) -> list[shapes.Model]:
    """Return the models that the server rolled back lately, since they became worse."""
    since = context.services.clock.now() - ROLLED_BACK
    return [
        each
        for each in models.models(caller, context).content.items
        if each.state == ModelState.RETIRED
        and not each.by_user_id
        and each.reason.startswith("rolled back")
        and each.state_at >= since
    ]


def _failed_training(caller: Caller, context: Context) -> shapes.Training | None:
    """Return the last training of models if it failed; None where another server trains."""
    try:
        found = models.training(caller, context).content
    except Conflict:
        return None
    return found if found.result == "failed" else None


def _troubles(context: Context) -> list[tuple[str, str]]:
    """Return what `/readyz` finds wrong or odd, by the name of the check."""
    found = [
        (name, said)
        for name, (_, said) in health.checks(context.services)
        if isinstance(said, str) and said != "ok"
    ]
    if problem := context.services.inventory_problem:
        found.append(("inventory", problem))
    return found
