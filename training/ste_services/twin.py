"""The digital twin as a service."""

from __future__ import annotations

from dataclasses import asdict
from typing import cast

import msgspec
from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.scheduler.twin.document import TwinData, write_twin_data
from edgeyard.scheduler.twin.posted import DigitalTwin, TwinState
from edgeyard.training.ste_services.common import accepts, read_body, service_app
from edgeyard.training.ste_services.observed_lab import ObservedLab


class TwinVersion(msgspec.Struct, kw_only=True):
    """The version under which a state can be pulled."""

    version: int


class LiveHealth(msgspec.Struct, kw_only=True):
    """How well the lab is known: the fields of `observed_lab.LabHealth`."""

    age_s: float | None
    cluster_problem: str
    metrics_problem: str


class TwinHealthAnswer(msgspec.Struct, kw_only=True):
    """How the twin is; `edgeyard.scheduler.twin.posted.TwinHealth` describes most fields.

    Attributes:
        status: ``ok``; in live mode also ``stale`` (what is known of the cluster is too old) and
            ``degraded`` (Prometheus does not answer).
        live: How well the lab is known; null: the twin shows posted states alone.
    """

    status: str = "ok"
    service: str = "twin"
    version: int
    refreshing: bool
    nodes: int
    jobs: int
    links: int
    held_bytes: int
    max_bytes: int
    live: LiveHealth | None = None


def health_of(twin: DigitalTwin, lab: ObservedLab | None = None) -> TwinHealthAnswer:
    """Return how a twin is; of a live one with the sizes of the live state."""
    posted = TwinHealthAnswer(**asdict(twin.health()))
    if lab is None:
        return posted
    data, health = lab.data(), lab.health()
    return msgspec.structs.replace(
        posted,
        status=health.status,
        nodes=len(data.nodes),
        jobs=len(data.jobs),
        links=len(data.links),
        live=LiveHealth(
            age_s=health.age_s,
            cluster_problem=health.cluster_problem,
            metrics_problem=health.metrics_problem,
        ),
    )


def answer_of(state: TwinState) -> Answer[TwinData]:
    """Return a state as it was posted; the header ``X-Twin-Version`` has its version."""
    data = cast(TwinData, msgspec.Raw(state.body))
    return Answer(data, headers={"X-Twin-Version": str(state.version)})


def twin_app(twin: DigitalTwin, token: str = "", lab: ObservedLab | None = None) -> FastAPI:
    """Return the app of the digital twin.

    Args:
        twin: Holds the states that are posted.
        token: Of callers; "": all who reach the service may call.
        lab: Its state is shown live; stopped with the service. None: posted states alone.
    """
    router = Router(tags=["twin"])

    @router.post("/", summary="Receive Data", openapi_extra=accepts("TwinData"))
    async def receive(request: Request) -> Answer[TwinVersion]:
        """Hold a state as the newest one: a document, an array of nodes, or one node."""
        body = await read_body(request, twin.max_bytes)
        state = await run_in_threadpool(twin.receive, body)
        return Answer(TwinVersion(version=state.version))

    @router.get("/health_check", summary="Health Check")
    def health_check() -> Answer[TwinHealthAnswer]:
        """Whether the service answers, and what it holds."""
        return Answer(health_of(twin, lab))

    @router.get("/data", summary="Send Data")
    def data(version: int | None = None) -> Answer[TwinData]:
        """The live state, or without live mode the newest one; or the posted one of a version."""
        if lab is not None and version is None:
            return Answer(cast(TwinData, msgspec.Raw(write_twin_data(lab.data()))))
        return answer_of(twin.state(version))

    @router.post("/refresh", summary="Announce newer data")
    def refresh() -> Answer[TwinVersion]:
        """Note that newer data is on its way, and refresh the live state; answers the version."""
        if lab is not None:
            lab.wake()
        return Answer(TwinVersion(version=twin.refresh()))

    def stop() -> None:
        if lab is not None:
            lab.stop()

    return service_app("Digital twin", router, token=token, bodies=[TwinData], on_stop=stop)
