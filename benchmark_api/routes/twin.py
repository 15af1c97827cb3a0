"""The digital twin: the live lab as nodes, jobs and links, and states that were posted."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from fastapi import Query, Request
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import AnyCaller, Caller, Operator
from edgeyard.benchmark_api.live_twin import Metrics, live_data
from edgeyard.benchmark_api.routes.context import Context, Ctx, RawBody, read_small
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.body import check_json_type
from edgeyard.errors import Forbidden, InvalidInput, TooLarge
from edgeyard.scheduler.model.users import Role
from edgeyard.scheduler.twin.document import read_twin_data, write_twin_data

router = Router(prefix="/v1/twin", tags=["twin"])

_LIMIT = "twin_limit_bytes"
_NODE: dict[str, Any] = {"$ref": "#/components/schemas/TwinNode"}
_STATE: dict[str, Any] = {
    "anyOf": [
        {"$ref": "#/components/schemas/TwinData"},
        {"type": "array", "items": _NODE},
        _NODE,
    ]
}
_CONTENT = {"application/json": {"schema": _STATE}}
_BODY = {"requestBody": {"required": True, "content": _CONTENT}}
_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The live state, or with `version` a posted state as it was posted.",
        "content": _CONTENT,
    }
}


@router.post("", openapi_extra=_BODY)
async def receive(request: Request, caller: AnyCaller, context: Ctx) -> Answer[shapes.TwinVersion]:
    """Post a state to the twin: a document of nodes, jobs and links, an array of nodes, or a node.

    Of an operator: it is held as the newest posted state. Of a host: nodes alone, of boards that
    its account serves; their loads are shown in the live state for a minute.
    """
    if caller.role not in (Role.OPERATOR, Role.HOST):
        raise Forbidden("the twin takes data of operators and hosts")
    limit = context.services.settings.twin_limit_bytes
    try:
        body = await read_small(request, limit)
    except TooLarge as error:
        raise TooLarge("the data", limit, _LIMIT) from error
    check_json_type(body.content_type)
    if caller.role is Role.HOST:
        return await run_in_threadpool(_report, context, caller, body)
    state = await run_in_threadpool(context.posted.receive, body.data)
    return Answer(shapes.TwinVersion(version=state.version))


def _report(context: Context, caller: Caller, body: RawBody) -> Answer[shapes.TwinVersion]:
    data = read_twin_data(body.data)
    for name in ("jobs", "links", "users", "leases", "rates", "quarantined"):
        if getattr(data, name):
            raise InvalidInput.at(
                f"/{name}", "can't be reported by the account of a host", "nodes only"
            )
    for node in data.nodes:
        if not caller.user.serves(node.id):
            raise Forbidden(f"the account does not serve board {node.id}")
    context.reports.note(data.nodes, context.services.clock.now())
    return Answer(shapes.TwinVersion(version=context.posted.health().version))


@router.get("/health_check")
def health_check(caller: AnyCaller, context: Ctx) -> Answer[shapes.TwinHealth]:
    """Whether the twin answers, how old its knowledge of the lab is, and what was posted."""
    services, posted = context.services, context.posted.health()
    age_s = services.engine.twin_age_s()
    return Answer(
        views.same(
            shapes.TwinHealth,
            posted,
            status="ok" if age_s <= services.twin_max_age_s else "stale",
            age_s=round(age_s, 3) if age_s < float("inf") else None,
            cluster_problem=services.engine.cluster_problem(),
        )
    )


@router.get("/data", responses=_ANSWER)
def data(
    caller: Operator, context: Ctx, version: Annotated[int | None, Query(ge=1)] = None
) -> Answer[shapes.JsonObject]:
    """The live state of the lab; with `version`, a posted state.

    Nodes have the fields of DECICE's schema NodePool, jobs those of its table 3, both with fields
    of Edgeyard; links join boards of one host and boards that share cores.
    """
    if version is not None:
        posted = context.posted.state(version)
        raw = cast(shapes.JsonObject, msgspec.Raw(posted.body))
        return Answer(raw, headers={"X-Twin-Version": str(version)})
    services = context.services
    now = services.clock.now()
    with services.store.read() as uow:
        attempts = uow.attempts.live(list(uow.attempts.live_versions()))
    found = live_data(
        services.engine.state(),
        cluster=services.settings.cluster_name,
        reports=context.reports.nodes(now),
        job_ids={each.benchmark_id: each.job_id for each in attempts},
        metrics=services.twin_metrics.read(now) if services.twin_metrics else Metrics(),
        problem=services.engine.cluster_problem(),
    )
    return Answer(cast(shapes.JsonObject, msgspec.Raw(write_twin_data(found))))


@router.post("/refresh")
def refresh(caller: Operator, context: Ctx) -> Answer[shapes.TwinVersion]:
    """Refresh the live state soon, and note that a newer state will be posted."""
    context.services.engine.wake()
    return Answer(shapes.TwinVersion(version=context.posted.refresh()))
