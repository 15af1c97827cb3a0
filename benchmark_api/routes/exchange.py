"""What the run of a schedule calls that Nomad started: it exchanges the schedule's token.

All runs of a parent job find one token, which opens nothing but this. A run states its allocation
and the hash of a token that it has made itself; Nomad says which run the allocation belongs to.
From then on that token is the one of the run's attempt. An answer that was lost does no harm, since
the same request has the same answer; another token for the same attempt is refused.
"""

from __future__ import annotations

import hmac
import logging
from dataclasses import replace

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.auth import bearer_token, token_hash
from edgeyard.benchmark_api.rate_limits import RateLimits
from edgeyard.benchmark_api.routes.context import Context, Ctx, RawBody, read_small
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import ExchangeIn, parse
from edgeyard.benchmark_api.services import task_limits
from edgeyard.errors import Conflict, Forbidden, NotAuthenticated, NotFound, Unavailable
from edgeyard.scheduler.engine.dispatch import spec_of
from edgeyard.scheduler.model.attempt import LIVE_ATTEMPTS
from edgeyard.scheduler.model.benchmark import TERMINAL
from edgeyard.scheduler.model.recurring import launched_at, parent_of
from edgeyard.scheduler.ports import UnitOfWork

logger = logging.getLogger(__name__)
router = Router(tags=["tasks"])

_MAX_BYTES = 4096
_RETRY_S = 1.0
"""A run becomes a benchmark as soon as the server that leads has heard of it."""


@router.post("/v1/runs/{job}/exchange", openapi_extra=accepts("ExchangeIn"))
async def exchange(job: str, request: Request, context: Ctx) -> Answer[shapes.RunTask]:
    """Take up the run of a schedule that Nomad started: its task, for the schedule's token.

    503 while the run is not known here yet.
    """
    token = bearer_token(request)
    parent_id = await run_in_threadpool(_admitted, context, f"benchmark-{job}", token)
    rate_limits: RateLimits = request.app.state.rate_limits
    rate_limits.count_task(parent_id)
    body = await read_small(request, _MAX_BYTES)
    return await run_in_threadpool(_exchange, context, parent_id, body)


def _admitted(context: Context, job_id: str, token: str | None) -> str:
    """Return the parent job that a token is of.

    Raises:
        NotAuthenticated: No token, or another one; or there is no such job.
    """
    with context.services.store.read() as uow:
        try:
            known = uow.schedules.job(job_id).token_sha256
        except NotFound:
            known = ""
    if token is None or not hmac.compare_digest(known, token_hash(token)):
        raise NotAuthenticated("the token of this schedule's runs is needed")
    return job_id


def _exchange(context: Context, parent_id: str, body: RawBody) -> Answer[shapes.RunTask]:
    services = context.services
    stated = parse(ExchangeIn, body.tree())
    job_id = services.cluster.job_of_allocation(stated.allocation_id)
    if job_id is None or parent_of(job_id) != parent_id or launched_at(job_id) is None:
        raise Forbidden("Nomad knows no such allocation that runs for this schedule")

    def take(uow: UnitOfWork) -> dict[str, object]:
        try:
            attempt = uow.attempts.by_job_id(job_id)
        except NotFound:
            raise Unavailable("the run is not known yet", _RETRY_S) from None
        benchmark = uow.benchmarks.get(attempt.benchmark_id)
        if attempt.state not in LIVE_ATTEMPTS or benchmark.status in TERMINAL:
            raise Conflict(f"attempt {attempt.number} of {attempt.benchmark_id} has ended")
        if attempt.upload_token_sha256 is None:
            attempt = uow.attempts.save(replace(attempt, upload_token_sha256=stated.token_sha256))
        elif not hmac.compare_digest(attempt.upload_token_sha256, stated.token_sha256):
            raise Conflict(f"attempt {attempt.number} of {attempt.benchmark_id} has its token")
        return spec_of(benchmark, attempt, services.public_url, task_limits(services.settings))

    spec = services.store.transact(take)
    logger.info("run taken up", extra={"event": "run.taken_up", "job_id": job_id})
    return Answer(shapes.RunTask(spec=spec))
