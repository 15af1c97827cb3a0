"""The ScenarioDB as a service: scenarios as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, cast

import msgspec
from fastapi import FastAPI, Query, Request
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.body import parse_object
from edgeyard.benchmark_api.schemas.requests import TagsIn, parse
from edgeyard.scheduler.model.scenarios import StoredScenario
from edgeyard.scheduler.ports import Store, UnitOfWork
from edgeyard.simulator.scenario import (
    built_in_scenarios,
    load_scenario,
    scenario_from_json,
    scenario_hash,
    scenario_to_json,
)
from edgeyard.simulator.stored import stored_scenario
from edgeyard.training.ste_services.common import (
    accepts,
    add_health,
    read_body,
    service_app,
)

MAX_SCENARIO_BYTES = 32 << 20

_Tags = Annotated[
    list[str], Query(max_length=50, description="Tag of the scenarios; may be repeated.")
]
_TAGS_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": TagsIn.model_json_schema()}},
    }
}


class BuiltInScenarios(msgspec.Struct, kw_only=True):
    """Scenarios that Edgeyard brings."""

    names: list[str]


def scenario_app(store: Store, token: str = "") -> FastAPI:
    """Return the app of the ScenarioDB."""
    router = Router(tags=["scenarios"])
    add_health(router, "scenarios")

    @router.get("/scenarios")
    def list_scenarios(
        name: Annotated[str | None, Query(max_length=500)] = None,
        tag: _Tags = [],  # noqa: B006  # FastAPI's own way
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: Annotated[str | None, Query(max_length=500)] = None,
    ) -> Answer[shapes.ScenarioPage]:
        """Stored scenarios, newest first; with several tags: those that have all of them."""
        with store.read() as uow:
            found, following = uow.scenarios.page(
                name=name, world=None, tags=tag, limit=limit, cursor=cursor
            )
        items = [msgspec.convert(asdict(each), shapes.Scenario) for each in found]
        return Answer(shapes.ScenarioPage(items=items, next_cursor=following))

    @router.get("/built_in")
    def built_in() -> Answer[BuiltInScenarios]:
        """Names of the scenarios that Edgeyard brings."""
        return Answer(BuiltInScenarios(names=list(built_in_scenarios())))

    @router.get("/scenarios/{scenario}")
    def content(scenario: str) -> Answer[shapes.JsonObject]:
        """A scenario as JSON, by its hash, the beginning of it, or its name."""
        if scenario in built_in_scenarios():
            found = load_scenario(scenario)
            return Answer(
                scenario_to_json(found),
                headers={"X-Scenario-Sha256": scenario_hash(found)},
            )
        with store.read() as uow:
            stored = uow.scenarios.get(scenario)
            body = uow.scenarios.body(stored.sha256)
        raw = cast(shapes.JsonObject, msgspec.Raw(body.encode()))
        return Answer(raw, headers={"X-Scenario-Sha256": stored.sha256})

    @router.post("/scenarios", status_code=201, openapi_extra=accepts(None))
    async def add(
        request: Request,
        tag: _Tags = [],  # noqa: B006
    ) -> Answer[shapes.Scenario]:
        """Store a scenario; 200 where its content is stored already, which gets the tags."""
        body = await read_body(request, MAX_SCENARIO_BYTES)
        return await run_in_threadpool(_add, parse_object(body, "application/json"), tag)

    def _add(tree: Mapping[str, object], tags: list[str]) -> Answer[shapes.Scenario]:
        scenario = scenario_from_json(tree, source="the body")
        stored, text = stored_scenario(
            scenario, created_at=datetime.now(UTC), tags=tags, source="scenario service"
        )
        new = store.transact(lambda uow: uow.scenarios.add(stored, text))
        with store.read() as uow:
            found = uow.scenarios.get(stored.sha256)
        return Answer(msgspec.convert(asdict(found), shapes.Scenario), 201 if new else 200)

    @router.post("/scenarios/{scenario}/tags", openapi_extra=_TAGS_BODY)
    async def tag(scenario: str, request: Request) -> Answer[shapes.Scenario]:
        """Add and remove tags of a stored scenario."""
        changes = parse(TagsIn, parse_object(await read_body(request), "application/json"))
        return await run_in_threadpool(_tag, scenario, changes)

    def _tag(scenario: str, changes: TagsIn) -> Answer[shapes.Scenario]:
        def change(uow: UnitOfWork) -> StoredScenario:
            sha256 = uow.scenarios.get(scenario).sha256
            return uow.scenarios.tag(sha256, add=changes.add, remove=changes.remove)

        return Answer(msgspec.convert(asdict(store.transact(change)), shapes.Scenario))

    return service_app("ScenarioDB", router, token=token)
