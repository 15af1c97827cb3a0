"""Families, engines, boards and parameters, as the client's ``ResourceConfigurator`` keeps them.

What is registered here is an announcement: it is listed, and a board gets its ``target_uid`` and a
first entry for the boards file. Which boards the lab has is said by the inventory and the hosts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.problems import ProblemAnswer, client_problem
from edgeyard.benchmark_api.routes.context import Body, Context, Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.routes.platform import catalogue, translation
from edgeyard.benchmark_api.schemas import parameters
from edgeyard.benchmark_api.schemas import platform as shapes
from edgeyard.benchmark_api.schemas.answers import JsonObject
from edgeyard.benchmark_api.schemas.fields import EngineName, Family, LongText, Text, pattern
from edgeyard.benchmark_api.schemas.requests import parse
from edgeyard.benchmark_api.services import Services
from edgeyard.errors import Conflict, Forbidden, InvalidInput, NotFound
from edgeyard.scheduler.engine import quotas
from edgeyard.scheduler.model.registration import Registration, RegistrationKind
from edgeyard.scheduler.model.strict_json import time_to_json
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/api/targets", tags=["platform"])

MAX_ENGINES_PER_PARAMETER = 10
"""The list of engines, which needs no token, repeats a parameter for each engine that takes it."""

_FAMILY, _ENGINE = RegistrationKind.FAMILY, RegistrationKind.ENGINE
_BOARD, _PARAMETER = RegistrationKind.BOARD, RegistrationKind.PARAMETER
_SHAPE = ConfigDict(extra="forbid", strict=True)
_KEY = re.compile(r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")
ParameterKey = Annotated[
    str,
    StringConstraints(strict=True),
    pattern(_KEY, "a parameter's key", "letters, digits, '.', '_', '-', beginning with a letter"),
]
_SUFFIX = re.compile(r"^\.[A-Za-z0-9]{1,15}$")
Suffix = Annotated[
    str,
    StringConstraints(strict=True),
    pattern(_SUFFIX, "a file extension", "a dot and up to 15 letters or digits, e.g. .onnx"),
]


class FamilyIn(BaseModel):
    """A new family of boards."""

    model_config = _SHAPE

    name: Family
    display_name: Text
    description: LongText = ""


class EngineIn(BaseModel):
    """A new engine."""

    model_config = _SHAPE

    name: EngineName
    display_name: Text
    description: LongText = ""
    supported_file_extensions: list[Suffix] = Field([], max_length=20)


class BoardIn(BaseModel):
    """A new board of a family."""

    model_config = _SHAPE

    hardware_type_id: Family
    engine_ids: list[EngineName] = Field(min_length=1, max_length=20)
    notes: LongText = ""
    serial_number: Text = ""


class ParameterIn(BaseModel):
    """A parameter of engines."""

    model_config = _SHAPE

    key: ParameterKey
    display_name: Text
    description: LongText = ""
    type: Literal["string", "integer", "number", "boolean", "object", "array", "enum"]
    default_values: object = ""


class ParameterChange(ParameterIn):
    """What is said of a parameter from now on."""

    key: ParameterKey | None = Field(
        None, description="The parameter's present key, which cannot be changed."
    )  # type: ignore[assignment]


BODIES = (FamilyIn, EngineIn, BoardIn, ParameterIn, ParameterChange)


@router.get("/status")
async def status() -> Answer[shapes.PlatformObject]:
    """That these doors are served; needs no token."""
    return Answer({"status": "ok"})


@router.get("/hardware-types/all")
def list_families(context: Ctx) -> Answer[list[shapes.PlatformObject]]:
    """All families, those of the lab's boards first; needs no token."""
    return Answer(list(_families(context).values()))


@router.post("/hardware-types", status_code=201, openapi_extra=accepts("FamilyIn"))
def create_family(body: Body, caller: Submitter, context: Ctx) -> Answer[shapes.PlatformObject]:
    """Register a family of boards."""
    request = parse(FamilyIn, body.tree())
    if request.name in catalogue.families(context.services):
        raise Conflict(f"the lab has boards of the family {request.name} already")
    fields = request.model_dump(exclude={"name"})
    return _registered(context, caller, _FAMILY, request.name, fields)


@router.delete("/hardware-types/{name}")
def delete_family(name: str, caller: Submitter, context: Ctx) -> Answer[shapes.PlatformObject]:
    """Forget a family that has no boards."""
    if name in catalogue.families(context.services):
        raise Conflict(f"the lab has boards of {name}: its inventory names them")

    def unused(uow: UnitOfWork) -> None:
        for each in uow.registrations.of_kind(_BOARD):
            if each.body.get("hardware_type_id") == name:
                raise Conflict(f"{each.name} is registered as a board of {name}: delete it first")

    return _unregistered(context, caller, _FAMILY, name, unused)


def _families(context: Context) -> dict[str, JsonObject]:
    with context.services.store.read() as uow:
        found = catalogue.registered(uow.registrations.of_kind(_FAMILY))
    own = catalogue.families(context.services)
    return own | {name: each for name, each in found.items() if name not in own}


@router.get("/engines/all")
def list_engines(context: Ctx) -> Answer[list[shapes.PlatformObject]]:
    """All engines, those of the lab's boards first; needs no token."""
    return Answer(list(_engines(context).values()))


@router.post("/engines", status_code=201, openapi_extra=accepts("EngineIn"))
def create_engine(body: Body, caller: Submitter, context: Ctx) -> Answer[shapes.PlatformObject]:
    """Register an engine."""
    request = parse(EngineIn, body.tree())
    if request.name in catalogue.engines(context.services):
        raise Conflict(f"the lab has boards with the engine {request.name} already")
    fields = request.model_dump(exclude={"name"})
    return _registered(context, caller, _ENGINE, request.name, fields)


@router.delete("/engines/{name}")
def delete_engine(name: str, caller: Submitter, context: Ctx) -> Answer[shapes.PlatformObject]:
    """Forget an engine that no board has."""
    if name in catalogue.engines(context.services):
        raise Conflict(f"the lab has boards with {name}: its inventory names them")

    def unused(uow: UnitOfWork) -> None:
        for each in uow.registrations.of_kind(_BOARD):
            engines = each.body.get("engine_ids")
            if isinstance(engines, list) and name in engines:
                raise Conflict(f"{each.name} is registered with {name}: delete it first")

    return _unregistered(context, caller, _ENGINE, name, unused)


def _engines(context: Context) -> dict[str, JsonObject]:
    with context.services.store.read() as uow:
        found = catalogue.registered(uow.registrations.of_kind(_ENGINE))
        added = uow.registrations.of_kind(_PARAMETER)
    for name, each in found.items():
        each["parameters"] = [
            {key: _parameter(one)[key] for key in ("id", "key", "display_name", "type")}
            for one in added
            if name in _engines_of(one)
        ]
    own = catalogue.engines(context.services)
    return own | {name: each for name, each in found.items() if name not in own}


@router.get("/hardware-instances")
def list_boards(caller: Submitter, context: Ctx) -> Answer[list[shapes.PlatformObject]]:
    """Boards that you registered."""
    known = {each.target_uid for each in catalogue.boards(context.services)}
    with context.services.store.read() as uow:
        found = uow.registrations.of_kind(_BOARD)
    return Answer([_shown(each, known) for each in found if each.user_id == caller.user_id])


@router.post("/hardware-instances", status_code=201, openapi_extra=accepts("BoardIn"))
def create_board(body: Body, caller: Submitter, context: Ctx) -> Answer[shapes.PlatformObject]:
    """Register a board: it gets the ``target_uid`` that its host has to announce."""
    request = parse(BoardIn, body.tree())
    family = request.hardware_type_id
    families = _families(context)
    if family not in families:
        choice = ", ".join(families)
        raise InvalidInput.at("/hardware_type_id", "no such family is known", choice)
    known = _engines(context)
    for number, engine in enumerate(request.engine_ids):
        if engine not in known:
            choice = ", ".join(known)
            raise InvalidInput.at(f"/engine_ids/{number}", "no such engine is known", choice)
    fields = request.model_dump()
    taken = {each.target_uid for each in catalogue.boards(context.services)}
    now = context.services.clock.now()

    def add(uow: UnitOfWork) -> Registration:
        uow.registrations.lock()
        found = uow.registrations.of_kind(_BOARD)
        uid = _free_uid(family, taken | {each.name for each in found})
        made = Registration(
            kind=_BOARD, name=uid, user_id=caller.user_id, body=fields, created_at=now
        )
        _add(uow, made, caller, context.services)
        return made

    return Answer(_shown(context.services.store.transact(add), taken), 201)


@router.delete("/hardware-instances/{inventory_id}")
def delete_board(
    inventory_id: str, caller: Submitter, context: Ctx
) -> Answer[shapes.PlatformObject]:
    """Forget a board; one that the inventory names stays in the lab."""
    return _unregistered(context, caller, _BOARD, inventory_id, None)


@router.get("/hardware-instances/{inventory_id}/default-config")
def default_config(
    inventory_id: str, caller: Submitter, context: Ctx
) -> Answer[shapes.PlatformObject]:
    """An entry of the boards file for a board that you registered, to be filled in."""
    with context.services.store.read() as uow:
        found = uow.registrations.get(_BOARD, inventory_id)
    if not caller.may_see(found.user_id):
        raise NotFound("board", inventory_id)
    engines = found.body.get("engine_ids")
    entry = {
        "target_uid": found.name,
        "memory": {"storage": 2**30, "ram": 2**30},
        "engines": {
            str(each): {"version": "", "supported_types": ["TYPE1"]}
            for each in (engines if isinstance(engines, list) else [])
        },
    }
    return Answer({str(found.body["hardware_type_id"]): [entry]})


def _free_uid(family: str, taken: set[str]) -> str:
    for number in range(100_000):
        uid = f"{family}-{number // 9999 + 1:04}-{number % 9999 + 1:04}"
        if uid not in taken:
            return uid
    raise Conflict(f"all numbers of boards of {family} are taken")


def _shown(board: Registration, known: set[str]) -> JsonObject:
    return {
        "id": board.name,
        "inventory_id": board.name,
        "created_at": time_to_json(board.created_at),
        "in_inventory": board.name in known,
        **board.body,
    }


@router.get("/engine-parameter-types")
def parameter_types(caller: Submitter) -> Answer[list[str]]:
    """Types that a parameter may have."""
    return Answer(list(parameters.TYPES))


@router.get("/engine-parameters/all")
def list_parameters(caller: Submitter, context: Ctx) -> Answer[list[shapes.PlatformObject]]:
    """All parameters, the built-in engines' first."""
    with context.services.store.read() as uow:
        found = uow.registrations.of_kind(_PARAMETER)
    return Answer([each.as_json() for each in parameters.BUILT_IN] + [*map(_parameter, found)])


@router.get("/engine-parameters")
def own_parameters(
    caller: Submitter, context: Ctx
) -> Answer[list[shapes.PlatformObject]] | ProblemAnswer:
    """List the parameters that you registered; 404 if none: the client can't print no rows."""
    with context.services.store.read() as uow:
        found = uow.registrations.of_kind(_PARAMETER)
    own = [_parameter(each) for each in found if each.user_id == caller.user_id]
    if not own:
        return client_problem(404, "not_found", "you have registered no parameters")
    return Answer(own)


@router.post("/engine-parameters", status_code=201, openapi_extra=accepts("ParameterIn"))
def create_parameter(body: Body, caller: Submitter, context: Ctx) -> Answer[shapes.PlatformObject]:
    """Register a parameter."""
    return _create_parameter(parse(ParameterIn, body.tree()), caller, context, None)


@router.post("/engines/{engine}/parameters", status_code=201, openapi_extra=accepts("ParameterIn"))
def create_engine_parameter(
    engine: str, body: Body, caller: Submitter, context: Ctx
) -> Answer[shapes.PlatformObject]:
    """Register a parameter of an engine that you registered."""
    return _create_parameter(parse(ParameterIn, body.tree()), caller, context, engine)


@router.get("/engine-parameters/{key}")
def show_parameter(key: str, caller: Submitter, context: Ctx) -> Answer[shapes.PlatformObject]:
    """One parameter."""
    for each in parameters.BUILT_IN:
        if each.key == key:
            return Answer(each.as_json())
    with context.services.store.read() as uow:
        return Answer(_parameter(uow.registrations.get(_PARAMETER, key)))


@router.patch("/engine-parameters/{key}", openapi_extra=accepts("ParameterChange"))
def change_parameter(
    key: str, body: Body, caller: Submitter, context: Ctx
) -> Answer[shapes.PlatformObject]:
    """Replace what is said of a parameter; its key stays."""
    _refuse_built_in(key)
    request = parse(ParameterChange, body.tree())
    if request.key not in (None, key):
        raise InvalidInput.at("/key", "can't be changed", f"{key[:100]}, or another parameter")

    def change(uow: UnitOfWork) -> Registration:
        known = _owned(uow, _PARAMETER, key, caller)
        saved = replace(known, body=_parameter_fields(request) | {"engines": _engines_of(known)})
        uow.registrations.save(saved)
        return saved

    return Answer(_parameter(context.services.store.transact(change)))


@router.delete("/engine-parameters/{key}")
def delete_parameter(key: str, caller: Submitter, context: Ctx) -> Answer[shapes.PlatformObject]:
    """Forget a parameter."""
    _refuse_built_in(key)
    return _unregistered(context, caller, _PARAMETER, key, None)


@router.post("/engines/{engine}/parameters/{key}")
def add_parameter(
    engine: str, key: str, caller: Submitter, context: Ctx
) -> Answer[shapes.PlatformObject]:
    """Say that an engine that you registered takes a parameter of yours."""
    return _linked(engine, key, caller, context, lambda engines: sorted({*engines, engine}))


@router.delete("/engines/{engine}/parameters/{key}")
def remove_parameter(
    engine: str, key: str, caller: Submitter, context: Ctx
) -> Answer[shapes.PlatformObject]:
    """Say that an engine does not take a parameter any more."""

    def without(engines: list[str]) -> list[str]:
        if engine not in engines:
            raise NotFound(f"parameter of engine {engine[:50]}", key)
        return [each for each in engines if each != engine]

    return _linked(engine, key, caller, context, without)


def _linked(
    engine: str,
    key: str,
    caller: Caller,
    context: Context,
    change: Callable[[list[str]], list[str]],
) -> Answer[JsonObject]:
    _refuse_built_in(key)
    _refuse_built_in_engine(engine, context.services)

    def work(uow: UnitOfWork) -> Registration:
        _owned(uow, _ENGINE, engine, caller)
        known = _owned(uow, _PARAMETER, key, caller)
        engines = change(_engines_of(known))
        if len(engines) > MAX_ENGINES_PER_PARAMETER:
            raise Conflict(
                f"{key} is a parameter of {MAX_ENGINES_PER_PARAMETER} engines already, and no more "
                "are allowed: register another parameter"
            )
        saved = replace(known, body={**known.body, "engines": engines})
        uow.registrations.save(saved)
        return saved

    return Answer(_parameter(context.services.store.transact(work)))


def _create_parameter(
    request: ParameterIn, caller: Caller, context: Context, engine: str | None
) -> Answer[JsonObject]:
    _refuse_built_in(request.key)
    if engine is not None:
        _refuse_built_in_engine(engine, context.services)
        with context.services.store.read() as uow:
            _owned(uow, _ENGINE, engine, caller)
    fields = _parameter_fields(request) | {"engines": [] if engine is None else [engine]}
    return _registered(context, caller, _PARAMETER, request.key, fields)


def _parameter_fields(request: ParameterIn) -> JsonObject:
    value = translation.text_of(request.default_values)
    if len(value) > 2000:
        raise InvalidInput.at("/default_values", "is too long", "at most 2000 characters")
    return request.model_dump(exclude={"key", "default_values"}) | {"default_values": value}


def _parameter(found: Registration) -> JsonObject:
    return {"id": found.name, "key": found.name, **found.body}


def _engines_of(found: Registration) -> list[str]:
    engines = found.body.get("engines")
    return [str(each) for each in engines] if isinstance(engines, list) else []


def _refuse_built_in(key: str) -> None:
    if any(each.key == key for each in parameters.BUILT_IN):
        raise Conflict(f"{key} is a parameter of Edgeyard's own engines")


def _refuse_built_in_engine(engine: str, services: Services) -> None:
    if engine in catalogue.engines(services):
        raise Conflict(f"engine {engine} of the lab takes the parameters that it has")


def _registered(
    context: Context, caller: Caller, kind: RegistrationKind, name: str, body: Mapping[str, object]
) -> Answer[JsonObject]:
    now = context.services.clock.now()
    made = Registration(kind=kind, name=name, user_id=caller.user_id, body=body, created_at=now)

    def add(uow: UnitOfWork) -> None:
        uow.registrations.lock()
        _add(uow, made, caller, context.services)

    context.services.store.transact(add)
    fields = {"id": name, "name": name, **body}
    return Answer(_parameter(made) if kind is _PARAMETER else fields, 201)


def _unregistered(
    context: Context,
    caller: Caller,
    kind: RegistrationKind,
    name: str,
    check: Callable[[UnitOfWork], None] | None,
) -> Answer[JsonObject]:
    def work(uow: UnitOfWork) -> None:
        _owned(uow, kind, name, caller)
        if check is not None:
            check(uow)
        uow.registrations.remove(kind, name)

    context.services.store.transact(work)
    return Answer({"id": name, "deleted": True})


def _owned(uow: UnitOfWork, kind: RegistrationKind, name: str, caller: Caller) -> Registration:
    """Return what was registered, if the caller may change it. Raises NotFound, Forbidden."""
    found = uow.registrations.get(kind, name)
    if caller.may_see(found.user_id):
        return found
    if kind is _BOARD:
        raise NotFound(kind.value, name)
    raise Forbidden(f"{kind.value} {name} was registered by another user")


def _add(uow: UnitOfWork, new: Registration, caller: Caller, services: Services) -> None:
    """Store a registration. Raises Conflict, and QuotaExceeded where there are too many."""
    uow.registrations.add(new)
    if caller.is_operator:
        return
    quotas.check_registrations(
        uow,
        caller.user_id,
        max_per_user=services.settings.user_max_registrations,
        max_total=services.settings.max_registrations_total,
    )
