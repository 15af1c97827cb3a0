"""The stream by which an open page learns that the lab has changed, and reads itself again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.auth import SESSION_COOKIE, Authenticator, BrowserUser, browser_token
from edgeyard.benchmark_api.routes.context import Context, Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.errors import NotAuthenticated

router = PageRouter()

MIN_INTERVAL_S = 2.0
"""Between two messages: a busy lab changes many times a second, and a reader can't follow."""
HEARTBEAT_S = 15.0


@router.get("/ui/changes")
async def changes(request: Request, caller: BrowserUser, context: Ctx) -> StreamingResponse:
    """A message without content whenever something has happened in the lab."""
    since = await run_in_threadpool(_log_end, context)
    return StreamingResponse(
        _stream(request, context, since),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _stream(request: Request, context: Context, since: int) -> AsyncIterator[str]:
    yield ": open\n\n"
    with context.tail.listening(None, since) as listener:
        while await _still_signed_in(request):
            try:
                event = await asyncio.wait_for(listener.queue.get(), HEARTBEAT_S)
            except TimeoutError:
                yield ": still here\n\n"
                continue
            while event is not None and not listener.queue.empty():
                event = listener.queue.get_nowait()
            if event is None:
                return  # the server stops
            yield "event: lab-changed\ndata:\n\n"
            await asyncio.sleep(MIN_INTERVAL_S)


def _log_end(context: Context) -> int:
    with context.services.store.read() as uow:
        return uow.log.last_seq()


async def _still_signed_in(request: Request) -> bool:
    authenticator: Authenticator = request.app.state.authenticator
    secret = request.cookies.get(SESSION_COOKIE, "")
    try:
        return await authenticator.authenticated(browser_token(secret)) is not None
    except NotAuthenticated:
        return False
