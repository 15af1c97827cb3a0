"""Looking into one benchmark: its HCL, explanation, events and logs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from fastapi import Header, Query, Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from msgspec.structs import replace
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Submitter, still_authenticated
from edgeyard.benchmark_api.routes.context import BenchmarkId, Context, Ctx, Flag, visible
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import content
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.services import Services
from edgeyard.errors import ClusterError, Conflict, NotFound
from edgeyard.scheduler.decide.changes import Bounds, Changes
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import TERMINAL, Status
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.recurring import schedule_of
from edgeyard.scheduler.ports import LogChunk

router = Router(prefix="/v1/benchmarks/{benchmark_id}", tags=["benchmarks"])

HEARTBEAT_S = 15.0
"""Proxies cut streams that say nothing; a comment keeps them."""
TOKEN_CHECK_S = 2.0
"""Interval between checks of the token of a client that follows a stream."""
FOLLOW_S = 0.5
"""Interval between reads of a log that is followed."""
EVENTS_PAGE = 1000
LOG_READ_BYTES = 64 * 1024
MAX_LOG_BYTES = 4 * 2**20
"""Maximum bytes of a log that is returned as a whole."""

_UPLOADED_LOG = "runner.log"
"""What the runner uploads; it outlives the cluster's own log."""

AttemptNumber = Annotated[int | None, Query(ge=1, le=10_000)]


@router.get("/hcl", responses=content(200, "text/plain", "The job as dispatched."))
def hcl(
    benchmark_id: BenchmarkId, caller: Submitter, context: Ctx, attempt: AttemptNumber = None
) -> Response:
    """The rendered job of an attempt, the newest by default; secrets are ``******``."""
    with context.services.store.read() as uow:
        visible(uow, benchmark_id, caller)
        found = _chosen(uow.attempts.of(benchmark_id), attempt, benchmark_id)
    if not found.hcl:
        pruned = found.state is AttemptState.ENDED and found.queued_at is not None
        raise NotFound(f"HCL {'any more' if pruned else 'yet'} of benchmark", benchmark_id)
    return PlainTextResponse(found.hcl)


@router.get("/explanation")
async def explanation(
    benchmark_id: BenchmarkId, caller: Submitter, context: Ctx, changes: Flag = False
) -> Answer[shapes.Explanation]:
    """Why it was placed, or waits: every board's verdict and scores.

    With `changes`: what would let it start sooner, within what its user may ask for, by deciding
    its newest cycle again; null where it does not wait.
    """
    work = partial(explained, benchmark_id, caller, context, changes)
    if not changes:
        return await run_in_threadpool(work)
    with context.heavy.place(caller.user_id) as place:
        return await place.run(work)


def explained(
    benchmark_id: str, caller: Caller, context: Context, changes: bool
) -> Answer[shapes.Explanation]:
    """Return what `explanation` answers, on the caller's thread.

    Raises:
        NotFound: No cycle has considered it yet, or its board is Nomad's choice.
    """
    services = context.services
    with services.store.read() as uow:
        benchmark = visible(uow, benchmark_id, caller)
        attempts = uow.attempts.of(benchmark_id)
        bounds = Bounds()
        if not caller.is_operator:
            user = uow.accounts.user(benchmark.user_id)
            bounds = Bounds(priority=user.max_priority, budget=user.max_budget)
    newest = attempts[-1] if attempts else None
    started = newest is not None and newest.started_at is not None and newest.board_is_known
    ran_on = newest.target_uid if newest is not None and started else None
    in_cluster = benchmark.waiting if benchmark.status is Status.SCHEDULED else None
    try:
        found = services.engine.explanation(benchmark_id)
    except NotFound:
        if newest is None or schedule_of(newest.job_id) is None:
            raise
        raise NotFound(
            "explanation",
            benchmark_id,
            f"no explanation of {benchmark_id!r}: its schedule leaves its starts to Nomad "
            "(cron_by), which chooses the board; the benchmark itself says what it waits for",
        ) from None
    shown = views.explanation(services, benchmark, found, ran_on, in_cluster)
    if changes:
        sooner = services.engine.changes(benchmark_id, bounds)
        shown = replace(
            shown, changes=None if sooner is None else _changes(sooner, services.clock.now())
        )
    return Answer(shown)


def _changes(found: Changes, now: datetime) -> shapes.Changes:
    return views.same(
        shapes.Changes,
        found,
        age_s=round(max((now - found.decided_at).total_seconds(), 0.0), 3),
        changes=[
            shapes.Change(
                field=each.kind.value, value=each.value, start=each.start, gain_s=each.gain_s
            )
            for each in found.changes
        ],
    )


@router.get("/events")
async def events(
    benchmark_id: BenchmarkId,
    request: Request,
    caller: Submitter,
    context: Ctx,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=EVENTS_PAGE)] = EVENTS_PAGE,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> Answer[shapes.Events] | StreamingResponse:
    """What happened, as JSON, or live as ``text/event-stream`` until the benchmark's end."""
    since = after
    if last_event_id is not None and re.fullmatch(r"[0-9]{1,18}", last_event_id):
        since = max(after, int(last_event_id))
    if "text/event-stream" not in request.headers.get("accept", ""):
        found = await run_in_threadpool(_past, context, caller, benchmark_id, since, limit)
        items = [views.event(each) for each in found]
        return Answer(shapes.Events(items=items, next_after=found[-1].seq if found else since))
    start = await run_in_threadpool(_log_end, context, caller, benchmark_id)
    return StreamingResponse(
        _stream(context, request, caller, benchmark_id, since, start),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _stream(
    context: Context, request: Request, caller: Caller, benchmark_id: str, since: int, start: int
) -> AsyncIterator[str]:
    silent_s = 0.0
    with context.tail.listening(benchmark_id, start) as listener:
        # What happened before is read while new events already gather in the queue.
        while True:
            past = await run_in_threadpool(_past, context, caller, benchmark_id, since, EVENTS_PAGE)
            for event in past:
                yield _sse(event)
                since = event.seq
                if _is_last(event):
                    return
            if len(past) < EVENTS_PAGE:
                break
        if await run_in_threadpool(_has_ended, context, benchmark_id):
            return
        while True:
            if not await still_authenticated(request):
                return
            try:
                next_event = await asyncio.wait_for(listener.queue.get(), TOKEN_CHECK_S)
            except TimeoutError:
                silent_s += TOKEN_CHECK_S
                if silent_s >= HEARTBEAT_S:
                    silent_s = 0.0
                    yield ": still here\n\n"
                continue
            silent_s = 0.0
            if next_event is None:
                return  # too slow, or the server stops: Last-Event-ID takes it up again
            if next_event.seq > since:
                yield _sse(next_event)
                since = next_event.seq
                if _is_last(next_event):
                    return


def _past(
    context: Context, caller: Caller, benchmark_id: str, after: int, limit: int
) -> list[Event]:
    with context.services.store.read() as uow:
        visible(uow, benchmark_id, caller)
        return list(uow.log.events(after=after, limit=limit, benchmark_id=benchmark_id))


def happened(benchmark_id: str, caller: Caller, context: Context) -> list[shapes.Event]:
    """Return the first events of a benchmark, in order."""
    return [views.event(each) for each in _past(context, caller, benchmark_id, 0, EVENTS_PAGE)]


def _log_end(context: Context, caller: Caller, benchmark_id: str) -> int:
    with context.services.store.read() as uow:
        visible(uow, benchmark_id, caller)
        return uow.log.last_seq()


def _has_ended(context: Context, benchmark_id: str) -> bool:
    with context.services.store.read() as uow:
        return uow.benchmarks.get(benchmark_id).status in TERMINAL


def _is_last(event: Event) -> bool:
    status = event.data.get("status")
    return event.kind == "benchmark.status" and status in {Status(each).value for each in TERMINAL}


def _sse(event: Event) -> str:
    # One line of JSON: line breaks in it are escaped.
    data = msgspec.json.encode(views.event(event)).decode()
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {data}\n\n"


@router.get("/logs", responses=content(200, "text/plain", "The task's output."))
async def logs(
    benchmark_id: BenchmarkId,
    request: Request,
    caller: Submitter,
    context: Ctx,
    attempt: AttemptNumber = None,
    stream: Literal["stdout", "stderr"] = "stderr",
    offset: Annotated[int, Query(ge=0, lt=2**62)] = 0,
    follow: Flag = False,
) -> Response:
    """A task's log from an offset on; ``follow=1`` until it ends.

    The runner says everything on stderr, the engine's output too.
    Without ``follow``, ``X-Next-Offset`` says where to go on.
    """
    found = await run_in_threadpool(_attempt, context, caller, benchmark_id, attempt)
    chunk = await run_in_threadpool(_read_log, context.services, found, stream, offset)
    if follow:
        return StreamingResponse(
            _follow(context.services, request, found, stream, chunk), media_type="text/plain"
        )
    return Response(
        chunk.data,
        media_type="text/plain",
        headers={"X-Next-Offset": str(chunk.next_offset), "X-Log-Ended": str(int(chunk.ended))},
    )


async def _follow(
    services: Services, request: Request, attempt: Attempt, stream: str, chunk: LogChunk
) -> AsyncIterator[bytes]:
    while await still_authenticated(request):
        if chunk.data:
            yield chunk.data
        if chunk.ended:
            return
        if not chunk.data:
            await asyncio.sleep(FOLLOW_S)
        try:
            chunk = await run_in_threadpool(_read_log, services, attempt, stream, chunk.next_offset)
        except (NotFound, ClusterError):
            return  # collected, or out of reach: what was there has been sent


def _attempt(context: Context, caller: Caller, benchmark_id: str, number: int | None) -> Attempt:
    with context.services.store.read() as uow:
        visible(uow, benchmark_id, caller)
        return _chosen(uow.attempts.of(benchmark_id), number, benchmark_id)


def _chosen(attempts: Sequence[Attempt], number: int | None, benchmark_id: str) -> Attempt:
    for each in reversed(attempts):
        if number is None or each.number == number:
            return each
    raise NotFound(
        "attempt yet of benchmark" if number is None else "such attempt of", benchmark_id
    )


def _refuse_anothers_log(services: Services) -> None:
    """Tasks of the embedded cluster run within the leader, and so do their logs until uploaded.

    Raises:
        Conflict: Another server leads.
    """
    leader = services.leader()
    if services.settings.cluster.kind == "embedded" and not leader.leads:
        raise Conflict(
            f"the task runs within another server, {leader.server_id} at {leader.url}: its log "
            "can be read there, and here once the task has ended"
        )


def _read_log(services: Services, attempt: Attempt, stream: str, offset: int) -> LogChunk:
    """Return the cluster's log; where that is gone, the one that the runner uploaded."""
    try:
        return services.cluster.logs(attempt.job_id, stream, offset)
    except NotFound:
        if attempt.state is not AttemptState.ENDED:
            _refuse_anothers_log(services)
            # Not there yet: a task that has not begun has an empty log.
            return LogChunk(data=b"", next_offset=offset, ended=False)
    with services.store.read() as uow:
        uploaded = {
            file.name: file.sha256
            for file in uow.files.results(attempt.benchmark_id)
            if file.attempt == attempt.number
        }
    if stream != "stderr" or _UPLOADED_LOG not in uploaded:
        return LogChunk(data=b"", next_offset=offset, ended=True)
    with services.files.path(uploaded[_UPLOADED_LOG]).open("rb") as log:
        log.seek(offset)
        data = log.read(LOG_READ_BYTES)
        ended = not log.read(1)
    return LogChunk(data=data, next_offset=offset + len(data), ended=ended)


def newest_log(benchmark_id: str, caller: Caller, context: Context) -> bytes:
    """Return the log of a benchmark's newest attempt, its first megabytes, as far as there is one.

    Raises:
        NotFound: It has no attempt yet.
        Conflict: Its task runs within another server.
    """
    return whole_log(context.services, _attempt(context, caller, benchmark_id, None))


def whole_log(services: Services, attempt: Attempt) -> bytes:
    """Return the log of an attempt so far, its first megabytes; empty where there is none."""
    found = bytearray()
    while len(found) < MAX_LOG_BYTES:
        try:
            chunk = _read_log(services, attempt, "stderr", len(found))
        except NotFound:
            break
        found += chunk.data
        if chunk.ended or not chunk.data:
            break
    return bytes(found)
