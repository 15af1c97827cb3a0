"""The digital twin and the scheduler controller of the test environment as own services."""

from __future__ import annotations

import hmac
from dataclasses import asdict
from typing import Any

import httpx
import msgspec
from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from edgeyard import __version__
from edgeyard.benchmark_api import problems
from edgeyard.errors import (
    EdgeyardError,
    InvalidInput,
    NotAuthenticated,
    TooLarge,
    Unavailable,
)
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.sim.ste.documents import TwinData, read_twin_data
from edgeyard.scheduler.sim.ste.scheduling import SchedulerController
from edgeyard.scheduler.sim.ste.steps import Notice, Round
from edgeyard.scheduler.sim.ste.twin import DigitalTwin

_MAX_NOTICE_BYTES = 64 * 1024


def _app(title: str, token: str) -> FastAPI:
    async def authenticate(request: Request) -> None:
        given = request.headers.get("authorization", "")
        if token and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise NotAuthenticated()

    app = FastAPI(
        title=title,
        version=__version__,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(authenticate)],
    )

    @app.exception_handler(EdgeyardError)
    async def ours(request: Request, error: EdgeyardError) -> Response:
        return problems.problem_of(error)

    return app


async def _body(request: Request, limit: int) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise TooLarge("the body", limit)
    return bytes(data)


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def twin_app(twin: DigitalTwin, token: str = "") -> FastAPI:
    """Return the app of the digital twin; with a token only callers that send it may use it."""
    app = _app("Digital twin", token)

    @app.post("/", summary="Receive Data")
    async def receive(request: Request) -> Response:
        body = await _body(request, twin.max_bytes)
        state = await run_in_threadpool(twin.receive, body)
        return _json({"version": state.version})

    @app.get("/health_check", summary="Health Check")
    def health_check() -> Response:
        return _json({"status": "ok", **asdict(twin.health())})

    @app.get("/data", summary="Send Data")
    def data(version: int | None = None) -> Response:
        state = twin.state(version)
        headers = {"X-Twin-Version": str(state.version)}
        return Response(state.body, media_type="application/json", headers=headers)

    @app.post("/refresh", summary="Announce newer data")
    def refresh() -> Response:
        return _json({"version": twin.refresh()})

    return app


def scheduler_app(controller: SchedulerController, token: str = "") -> FastAPI:
    """Return the app of the scheduler controller."""
    app = _app("Scheduler controller", token)

    @app.post("/notify")
    async def notify(request: Request) -> Response:
        body = await _body(request, _MAX_NOTICE_BYTES)
        try:
            notice = msgspec.json.decode(body, type=Notice)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInput.at("", str(error), "run, episode, round, version") from error
        return _json(await run_in_threadpool(controller.notify, notice))

    @app.get("/policy")
    def policy() -> Response:
        return _json(controller.policy())

    @app.get("/schedulers")
    def schedulers() -> Response:
        return _json(controller.schedulers)

    @app.get("/health_check")
    def health_check() -> Response:
        return _json({"status": "ok"})

    return app


class HttpTwin:
    """The twin at a URL, for controllers."""

    def __init__(self, client: httpx.Client) -> None:
        """Take a client with the service's base URL, its token and a time-out."""
        self._client = client

    def refresh(self) -> int:
        """See `TwinSink.refresh`."""
        return int(_answer(self._client, "POST", "/refresh").json()["version"])

    def send(self, body: bytes) -> int:
        """See `TwinSink.send`."""
        return int(_answer(self._client, "POST", "/", content=body).json()["version"])

    def pull(self, version: int) -> TwinData:
        """See `TwinSource.pull`."""
        return read_twin_data(_answer(self._client, "GET", f"/data?version={version}").content)


class HttpScheduling:
    """The scheduler controller at a URL."""

    def __init__(self, client: httpx.Client) -> None:
        """Take a client with the service's base URL, its token and a time-out."""
        self._client = client

    def policy(self) -> Policy:
        """See `Scheduling.policy`."""
        answer = _answer(self._client, "GET", "/policy")
        return msgspec.json.decode(answer.content, type=Policy)

    def notify(self, notice: Notice) -> Round:
        """See `Scheduling.notify`."""
        body = msgspec.json.encode(notice)
        answer = _answer(self._client, "POST", "/notify", content=body)
        return msgspec.json.decode(answer.content, type=Round)


def _answer(client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
    try:
        answer = client.request(method, path, **more)
    except httpx.HTTPError as error:
        raise Unavailable(f"{client.base_url} does not answer: {error}") from error
    if answer.status_code != 200:
        raise Unavailable(f"{client.base_url} answered {answer.status_code}: {answer.text[:500]}")
    return answer
