"""The digital twin as a service."""

from __future__ import annotations

from dataclasses import asdict
from typing import cast

import msgspec
from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.ste_services.common import accepts, read_body, service_app
from edgeyard.scheduler.sim.ste.documents import TwinData
from edgeyard.scheduler.sim.ste.twin import DigitalTwin, TwinState


class Received(msgspec.Struct, kw_only=True):
    """The version under which a state can be pulled."""

    version: int


class TwinHealthAnswer(msgspec.Struct, kw_only=True):
    """How the twin is; `edgeyard.scheduler.sim.ste.twin.TwinHealth` describes the fields."""

    status: str = "ok"
    service: str = "twin"
    version: int
    refreshing: bool
    nodes: int
    jobs: int
    links: int
    held_bytes: int
    max_bytes: int


def health_of(twin: DigitalTwin) -> TwinHealthAnswer:
    """Return how a twin is."""
    return TwinHealthAnswer(**asdict(twin.health()))


def answer_of(state: TwinState) -> Answer[TwinData]:
    """Return a state as it was posted; the header ``X-Twin-Version`` has its version."""
    data = cast(TwinData, msgspec.Raw(state.body))
    return Answer(data, headers={"X-Twin-Version": str(state.version)})


def twin_app(twin: DigitalTwin, token: str = "") -> FastAPI:
    """Return the app of the digital twin; with a token only callers that send it may use it."""
    router = Router(tags=["twin"])

    @router.post("/", summary="Receive Data", openapi_extra=accepts("TwinData"))
    async def receive(request: Request) -> Answer[Received]:
        """Hold a state as the newest one: a document, an array of nodes, or one node."""
        body = await read_body(request, twin.max_bytes)
        state = await run_in_threadpool(twin.receive, body)
        return Answer(Received(version=state.version))

    @router.get("/health_check", summary="Health Check")
    def health_check() -> Answer[TwinHealthAnswer]:
        """Whether the service answers, and what it holds."""
        return Answer(health_of(twin))

    @router.get("/data", summary="Send Data")
    def data(version: int | None = None) -> Answer[TwinData]:
        """The newest state, or the one of a version."""
        return answer_of(twin.state(version))

    @router.post("/refresh", summary="Announce newer data")
    def refresh() -> Answer[Received]:
        """Note that newer data is on its way; answers the present version."""
        return Answer(Received(version=twin.refresh()))

    return service_app("Digital twin", router, token=token, bodies=[TwinData])
