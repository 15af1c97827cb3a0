"""Policies: which there are, which decides, and which decides beside it."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import Operator, Submitter
from edgeyard.benchmark_api.routes.context import Body, Context, Ctx, answer
from edgeyard.benchmark_api.routes.documented import accepts, answers
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import PolicyIn, parse
from edgeyard.errors import ConfigError, InvalidInput, NotFound
from edgeyard.scheduler.framework.policy import built_in_policies, read_policy
from edgeyard.scheduler.model.records import Event, PolicyActivation, PolicySeat
from edgeyard.scheduler.model.wire import JsonObject, time_to_json

router = APIRouter(prefix="/v1/policies", tags=["policies"])


@router.get("", responses=answers(200, shapes.Policies))
def policies(caller: Submitter, context: Ctx) -> Response:
    """Policies that Edgeyard brings and those that were activated, with what each is doing."""
    return answer({"items": list(_known(context).values())})


@router.get("/{name}", responses=answers(200, shapes.PolicyText))
def policy(name: str, caller: Submitter, context: Ctx) -> Response:
    """One policy with its text."""
    found = _known(context).get(name)
    if found is None:
        raise NotFound("policy", name)
    return answer({**found, "text": _text(name, context)})


@router.put("/{seat}", responses=answers(200, shapes.PolicyText), openapi_extra=accepts("PolicyIn"))
def activate(seat: PolicySeat, body: Body, caller: Operator, context: Ctx) -> Response:
    """Let a policy decide (`active`), or decide beside the active one (`shadow`).

    It is checked first, and taken up by the next cycle; its text is kept as it is now.
    """
    asked = parse(PolicyIn, body.tree())
    services = context.services
    try:
        text = asked.text if asked.text is not None else read_policy(_built_in(asked.name))
        chosen = services.policies.check(text, asked.name or "text")
    except ConfigError as error:
        raise InvalidInput.at("/text", "; ".join(error.problems)) from error
    now = services.clock.now()
    with services.store.write() as uow:
        uow.cycles.activate(
            PolicyActivation(
                seat=seat,
                name=chosen.name,
                version=chosen.version,
                text=text,
                by_user_id=caller.user_id,
                at=now,
            )
        )
        uow.log.append(
            Event(
                at=now,
                kind=f"policy.{seat.value}",
                user_id=caller.user_id,
                data={"policy": chosen.name, "version": chosen.version},
            )
        )
    services.engine.wake()
    return answer({**_known(context)[chosen.name], "text": text})


@router.delete("/{seat}", status_code=204)
def deactivate(seat: PolicySeat, caller: Operator, context: Ctx) -> Response:
    """Go back to the configured policy (`active`), or decide nothing beside it (`shadow`)."""
    services = context.services
    with services.store.write() as uow:
        uow.cycles.deactivate(seat)
        uow.log.append(
            Event(
                at=services.clock.now(),
                kind=f"policy.{seat.value}",
                user_id=caller.user_id,
                data={"policy": None},
            )
        )
    services.engine.wake()
    return Response(status_code=204)


def _built_in(name: str | None) -> str:
    """The name, if it is one of ours: a server reads no file that a request names."""
    if name is None or name not in built_in_policies():
        raise InvalidInput.at(
            "/name",
            f"{name!r} is no policy that Edgeyard brings: {', '.join(built_in_policies())}; "
            "send another one's text",
        )
    return name


def _known(context: Context) -> dict[str, JsonObject]:
    services = context.services
    with services.store.read() as uow:
        activated = uow.cycles.activated()
    configured = services.policies.configured.policy
    found: dict[str, JsonObject] = {
        name: _item(name, services.policies.check(read_policy(name), name).version, "built-in")
        for name in built_in_policies()
    }
    found.setdefault(
        configured.name, _item(configured.name, configured.version, "the server's settings")
    )
    if PolicySeat.ACTIVE not in activated:
        found[configured.name]["seats"] = [PolicySeat.ACTIVE.value]
    for activation in activated.values():
        item = found.setdefault(
            activation.name, _item(activation.name, activation.version, activation.by_user_id)
        )
        item |= {
            "version": activation.version,
            "seats": sorted(
                seat.value for seat, each in activated.items() if each.name == activation.name
            ),
            "since": time_to_json(activation.at),
            "by_user_id": activation.by_user_id,
        }
    return found


def _item(name: str, version: int, source: str) -> JsonObject:
    return {
        "name": name,
        "version": version,
        "source": source,
        "seats": [],
        "since": None,
        "by_user_id": None,
    }


def _text(name: str, context: Context) -> str:
    with context.services.store.read() as uow:
        for activation in uow.cycles.activated().values():
            if activation.name == name:
                return activation.text
    return read_policy(name if name in built_in_policies() else context.services.settings.policy)
