"""ScenarioDB: scenarios, and simulations of them. All submitters see both."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, cast

import msgspec
from fastapi import Query, Request
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.routes.context import Body, Context, Ctx, Heavy, RawBody, read_small
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts, accepts_document
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.body import MAX_NODES, check_counts, parse_object
from edgeyard.benchmark_api.schemas.requests import SimulationIn, TagsIn, parse
from edgeyard.benchmark_api.views import same
from edgeyard.errors import Forbidden, NotFound, TooLarge
from edgeyard.scheduler.engine import quotas
from edgeyard.scheduler.model.quotas import quotas_of
from edgeyard.scheduler.model.scenarios import (
    SimulationState,
    StoredScenario,
    StoredSimulation,
)
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.simulator.scenario import scenario_from_json
from edgeyard.simulator.stored import stored_scenario

scenarios = Router(prefix="/v1/scenarios", tags=["scenarios"])
simulations = Router(prefix="/v1/simulations", tags=["scenarios"])

_LIMIT = "scenario_limit_bytes"
MAX_VALUES, MAX_OBJECTS = 2_000_000, 200_000
"""Counts in the JSON of a scenario: a few seconds of work, and some 300 MiB while it is read."""
_Limit = Annotated[int, Query(ge=1, le=1000)]
_Tags = Annotated[
    list[str], Query(max_length=50, description="Tag of the scenarios; may be repeated.")
]
_Text = Annotated[str, Query(max_length=500)]


@scenarios.post("", status_code=201, openapi_extra=accepts_document(None))
async def add(
    heavy: Heavy,
    request: Request,
    caller: Submitter,
    context: Ctx,
    tag: _Tags = [],  # noqa: B006  # FastAPI's own way
    source: _Text = "",
) -> Answer[shapes.Scenario]:
    """Store a scenario, of which the body is the JSON; 200 where its content is stored already.

    What is stored already keeps its name, and gets the tags if it is yours.
    """
    limit = context.services.settings.scenario_limit_bytes
    try:
        body = await read_small(request, limit)
    except TooLarge as error:
        raise TooLarge("the scenario", limit, _LIMIT) from error
    return await heavy.run(partial(_add, context, caller, body, tag, source))


def _add(
    context: Context, caller: Caller, body: RawBody, tags: list[str], source: str
) -> Answer[shapes.Scenario]:
    services = context.services
    check_counts(
        body.data,
        values=MAX_VALUES,
        objects=MAX_OBJECTS,
        accepted=f"at most {MAX_VALUES} values, {MAX_OBJECTS} of them objects",
    )
    tree = parse_object(body.data, body.content_type)
    stored, text = stored_scenario(
        scenario_from_json(tree, source="the body"),
        created_at=services.clock.now(),
        tags=tags,
        source=source,
        by_user_id=caller.user_id,
    )

    def store(uow: UnitOfWork) -> tuple[StoredScenario, bool]:
        try:
            before = uow.scenarios.get(stored.sha256)
        except NotFound:
            before = None
        if before is not None and not caller.may_see(before.by_user_id):
            return before, False
        new = uow.scenarios.add(stored, text)
        quotas.check_stored(uow, caller.user_id, quotas_of(caller.user, services.settings.quotas))
        return uow.scenarios.get(stored.sha256), new

    services.check_room(caller.user)
    found, new = services.store.transact(store)
    location = {"Location": f"{services.public_url}/v1/scenarios/{found.sha256}"}
    return Answer(_scenario(found), 201 if new else 200, location)


@scenarios.get("")
def list_scenarios(
    caller: Submitter,
    context: Ctx,
    name: _Text | None = None,
    world: Literal["boards", "nodes"] | None = None,
    tag: _Tags = [],  # noqa: B006
    limit: _Limit = 100,
    cursor: str | None = None,
) -> Answer[shapes.ScenarioPage]:
    """Stored scenarios, newest first; with several tags: those that have all of them."""
    with context.services.store.read() as uow:
        found, following = uow.scenarios.page(
            name=name, world=world, tags=tag, limit=limit, cursor=cursor
        )
    items = [_scenario(each) for each in found]
    return Answer(shapes.ScenarioPage(items=items, next_cursor=following))


@scenarios.get("/{scenario}")
def show(scenario: str, caller: Submitter, context: Ctx) -> Answer[shapes.Scenario]:
    """A scenario by its hash, the beginning of it, or its name (the newest of that name)."""
    with context.services.store.read() as uow:
        return Answer(_scenario(uow.scenarios.get(scenario)))


@scenarios.get("/{scenario}/content")
def download(scenario: str, caller: Submitter, context: Ctx) -> Answer[shapes.JsonObject]:
    """The content of a scenario, as `POST /v1/scenarios` takes it."""
    with context.services.store.read() as uow:
        body = uow.scenarios.body(uow.scenarios.get(scenario).sha256)
    return Answer(cast(shapes.JsonObject, msgspec.Raw(body.encode())))


@scenarios.post("/{scenario}/tags", openapi_extra=accepts("TagsIn"))
def tag(scenario: str, body: Body, caller: Submitter, context: Ctx) -> Answer[shapes.Scenario]:
    """Add and remove tags; yours, or anybody's for operators."""
    changes = parse(TagsIn, body.tree())

    def change(uow: UnitOfWork) -> StoredScenario:
        sha256 = _own(uow, scenario, caller).sha256
        return uow.scenarios.tag(sha256, add=changes.add, remove=changes.remove)

    return Answer(_scenario(context.services.store.transact(change)))


@scenarios.delete("/{scenario}", status_code=204)
def remove(scenario: str, caller: Submitter, context: Ctx) -> Response:
    """Remove a scenario: yours, or anybody's for operators. 409 where simulations refer to it."""

    def change(uow: UnitOfWork) -> None:
        uow.scenarios.remove(_own(uow, scenario, caller).sha256)

    context.services.store.transact(change, frees_space=True)
    return Response(status_code=204)


@simulations.get("")
def list_simulations(
    caller: Submitter,
    context: Ctx,
    scenario: _Text | None = None,
    policy: _Text | None = None,
    kind: _Text | None = None,
    limit: _Limit = 100,
    cursor: str | None = None,
) -> Answer[shapes.SimulationPage]:
    """Stored simulations, newest first; `scenario` is a hash, the beginning of it, or a name."""
    with context.services.store.read() as uow:
        sha256 = None if scenario is None else uow.scenarios.get(scenario).sha256
        found, following = uow.simulations.runs(
            scenario=sha256, policy=policy, kind=kind, limit=limit, cursor=cursor
        )
    items = [_simulation(each) for each in found]
    return Answer(shapes.SimulationPage(items=items, next_cursor=following))


@simulations.get("/{run_id}")
def simulation(run_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.Simulation]:
    """A stored simulation with its metrics."""
    with context.services.store.read() as uow:
        return Answer(_simulation(uow.simulations.run(run_id)))


@simulations.put("/{run_id}", openapi_extra=accepts("SimulationIn"))
async def save(
    heavy: Heavy, run_id: str, body: Body, caller: Submitter, context: Ctx
) -> Answer[shapes.Simulation]:
    """Store a simulation that ran elsewhere, or replace yours with this id."""
    return await heavy.run(partial(_save, run_id, body, caller, context))


def _save(
    run_id: str, body: RawBody, caller: Caller, context: Context
) -> Answer[shapes.Simulation]:
    given = parse(SimulationIn, {**body.tree(MAX_NODES), "run_id": run_id})
    services = context.services

    def change(uow: UnitOfWork) -> StoredSimulation:
        of = uow.scenarios.get(given.scenario)
        before = _run(uow, run_id)
        if before is not None:
            _check_own(caller, before.by_user_id, "simulation")
        run = StoredSimulation(
            run_id=run_id,
            kind=given.kind,
            state=SimulationState(given.state),
            scenario=of.sha256,
            scenario_name=of.name,
            policy=given.policy,
            seed=given.seed,
            version=given.version,
            metrics=given.metrics,
            columns_file=given.columns_file,
            wall_s=given.wall_s,
            created_at=services.clock.now() if before is None else before.created_at,
            by_user_id=caller.user_id if before is None else before.by_user_id,
        )
        uow.simulations.save_run(run)
        quotas.check_stored(uow, caller.user_id, quotas_of(caller.user, services.settings.quotas))
        return run

    services.check_room(caller.user)
    return Answer(_simulation(services.store.transact(change)))


@simulations.delete("/{run_id}", status_code=204)
def remove_simulation(run_id: str, caller: Submitter, context: Ctx) -> Response:
    """Remove a simulation: yours, or anybody's for operators."""

    def change(uow: UnitOfWork) -> None:
        _check_own(caller, uow.simulations.run(run_id).by_user_id, "simulation")
        uow.simulations.remove(run_id)

    context.services.store.transact(change, frees_space=True)
    return Response(status_code=204)


def _own(uow: UnitOfWork, reference: str, caller: Caller) -> StoredScenario:
    found = uow.scenarios.get(reference)
    _check_own(caller, found.by_user_id, "scenario")
    return found


def _check_own(caller: Caller, user_id: str, what: str) -> None:
    if not caller.may_see(user_id):
        raise Forbidden(f"the {what} is another user's: only they and operators may change it")


def _run(uow: UnitOfWork, run_id: str) -> StoredSimulation | None:
    try:
        return uow.simulations.run(run_id)
    except NotFound:
        return None


def _scenario(stored: StoredScenario) -> shapes.Scenario:
    return same(shapes.Scenario, stored)


def _simulation(stored: StoredSimulation) -> shapes.Simulation:
    return same(shapes.Simulation, stored)
