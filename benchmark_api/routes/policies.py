"""Policies: which there are, which decides, and which is its shadow."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query
from fastapi.responses import Response
from msgspec.structs import asdict, replace

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Operator, Submitter
from edgeyard.benchmark_api.routes.context import BenchmarkId, Body, Context, Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import PolicyIn, parse
from edgeyard.errors import ConfigError, Conflict, FieldError, InvalidInput, NotFound
from edgeyard.scheduler.engine.policies import NamedPolicy, Policies
from edgeyard.scheduler.engine.replay import totals_of
from edgeyard.scheduler.figures.live import measure_policies
from edgeyard.scheduler.figures.metrics import RunMetrics
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model.benchmark import TERMINAL
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.policies import PolicyActivation, PolicyOverride, PolicyRole
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/v1/policies", tags=["policies"])
own = Router(prefix="/v1/benchmarks", tags=["policies"])
"""Routes of benchmarks that are decided by a policy of their own."""

MAX_CYCLES = 10_000
MAX_ENDED = 10_000


@router.get("")
def policies(caller: Submitter, context: Ctx) -> Answer[shapes.Policies]:
    """Policies that Edgeyard brings and all that ever were at work, with what each is doing.

    `overrides`: benchmarks that wait and are decided by a policy of their own.
    """
    with context.services.store.read() as uow:
        overrides = [
            each
            for each in uow.policies.overrides().values()
            if caller.may_see(uow.benchmarks.get(each.benchmark_id).user_id)
        ]
    return Answer(
        shapes.Policies(
            items=list(_items(context).values()),
            overrides=[
                shapes.PolicyOverride(
                    benchmark_id=each.benchmark_id,
                    policy=each.name,
                    version=each.version,
                    since=each.at,
                    by_user_id=each.by_user_id,
                )
                for each in overrides
            ],
        )
    )


@router.get("/comparison")
def comparison(
    caller: Operator,
    context: Ctx,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_CYCLES)] = 1000,
) -> Answer[shapes.Comparison]:
    """What shadow policies decided in recorded cycles, next to what was done; newest first.

    `policies`: figures of the benchmarks that ended in this time, of the newest 10,000, by the
    policy that decided them. Policies that decided at different times met different benchmarks.
    """
    try:
        found = context.services.engine.shadows(_utc(since), _utc(until), limit)
    except ConfigError as error:
        raise InvalidInput.at("", "; ".join(error.problems)) from error
    with context.services.store.read() as uow:
        ended = uow.policies.ended(since=_utc(since), until=_utc(until), limit=MAX_ENDED)
    return Answer(
        shapes.Comparison(
            cycles=[views.same(shapes.ComparedCycle, each, seq=seq) for seq, each in found],
            shadows=[
                views.same(
                    shapes.ShadowTotals,
                    totals_of([each for _, each in found if each.policy == policy]),
                    policy=policy,
                )
                for policy in sorted({each.policy for _, each in found})
            ],
            policies=[
                _figures(policy, metrics) for policy, metrics in measure_policies(ended).items()
            ],
        )
    )


def _figures(policy: str, metrics: RunMetrics) -> shapes.PolicyFigures:
    return views.same(
        shapes.PolicyFigures,
        metrics,
        policy=policy,
        benchmarks=metrics.jobs,
        figures={
            name: shapes.FigureOfPolicy(
                jobs=found.jobs,
                at_least=found.at_least,
                mean=_known(found.interval.mean),
                low=_known(found.interval.low),
                high=_known(found.interval.high),
                p50=_known(found.p50),
                p90=_known(found.p90),
                p99=_known(found.p99),
                max=_known(found.max),
            )
            for name, found in metrics.figures.items()
        },
        fairness=_known(metrics.fairness),
    )


def _known(value: float) -> float | None:
    """Return a number for JSON, which has no NaN."""
    return value if math.isfinite(value) else None


def _utc(when: datetime | None) -> datetime | None:
    return when if when is None or when.tzinfo else when.replace(tzinfo=UTC)


@router.get("/{name}")
def policy(
    name: str,
    caller: Submitter,
    context: Ctx,
    version: Annotated[int | None, Query(ge=1, le=1_000_000)] = None,
) -> Answer[shapes.PolicyText]:
    """One policy with its text; of several versions the highest, unless one is stated."""
    with context.services.store.read() as uow:
        found = context.services.policies.named(uow, name, version)
    return Answer(_with_text(context, found.name, found.version, found.text))


@router.put("/{role}", openapi_extra=accepts("PolicyIn"))
def activate(
    role: PolicyRole, body: Body, caller: Operator, context: Ctx
) -> Answer[shapes.PolicyText]:
    """Let a policy decide (`active`), or decide as the shadow of the active one (`shadow`).

    It is checked first, and taken up by the next cycle. Its text is kept for good: 409 where its
    name and version already exist with another text.
    """
    text, chosen = _policy_of(body, context)
    services = context.services
    now = services.clock.now()

    def change(uow: UnitOfWork) -> str:
        before, after = _in_role(uow, role), _facts(chosen)
        stored = services.policies.keep(uow, chosen, text, caller.user_id, now)
        uow.policies.activate(
            PolicyActivation(
                role=role,
                name=chosen.name,
                version=chosen.version,
                text=stored,
                by_user_id=caller.user_id,
                at=now,
            )
        )
        uow.log.append(
            Event(
                at=now,
                kind=f"policy.{role.value}",
                user_id=caller.user_id,
                data={**after, "before": before, "after": after},
            )
        )
        return stored

    stored = services.store.transact(change)
    services.engine.wake()
    return Answer(_with_text(context, chosen.name, chosen.version, stored))


@router.delete("/{role}", status_code=204)
def deactivate(role: PolicyRole, caller: Operator, context: Ctx) -> Response:
    """Return to the configured policy (`active`), or end the shadow (`shadow`)."""
    services = context.services

    def change(uow: UnitOfWork) -> None:
        before = _in_role(uow, role)
        uow.policies.deactivate(role)
        uow.log.append(
            Event(
                at=services.clock.now(),
                kind=f"policy.{role.value}",
                user_id=caller.user_id,
                data={"policy": None, "before": before, "after": {}},
            )
        )

    services.store.transact(change)
    services.engine.wake()
    return Response(status_code=204)


@own.put("/{benchmark_id}/policy", status_code=204, openapi_extra=accepts("PolicyIn"))
def override(benchmark_id: BenchmarkId, body: Body, caller: Operator, context: Ctx) -> Response:
    """Have one benchmark decided by a policy of its own, before all others, from now on.

    409 where its name and version already exist with another text, and for a benchmark of a gang
    that has not started: one policy decides all of the gang.
    """
    text, chosen = _policy_of(body, context)
    services = context.services
    now = services.clock.now()

    def change(uow: UnitOfWork) -> None:
        benchmark = uow.benchmarks.get(benchmark_id)
        if benchmark.status in TERMINAL:
            raise Conflict(f"benchmark {benchmark_id} has ended: it is {benchmark.status}")
        if benchmark.waits_for_gang:
            raise Conflict(
                f"benchmark {benchmark_id} starts together with the others of its gang, and one "
                "policy decides all of them: activate the policy, or wait until they have started"
            )
        stored = services.policies.keep(uow, chosen, text, caller.user_id, now)
        made = PolicyOverride(
            benchmark_id=benchmark_id,
            name=chosen.name,
            version=chosen.version,
            text=stored,
            by_user_id=caller.user_id,
            at=now,
        )
        before = uow.policies.overrides().get(benchmark_id)
        uow.policies.override(benchmark_id, made)
        _log_override(uow, caller, benchmark_id, now, before, chosen)

    services.store.transact(change)
    services.engine.wake()
    return Response(status_code=204)


@own.delete("/{benchmark_id}/policy", status_code=204)
def no_override(benchmark_id: BenchmarkId, caller: Operator, context: Ctx) -> Response:
    """Have it decided by the active policy again, with all others."""
    services = context.services

    def change(uow: UnitOfWork) -> None:
        uow.benchmarks.get(benchmark_id)
        before = uow.policies.overrides().get(benchmark_id)
        uow.policies.override(benchmark_id, None)
        _log_override(uow, caller, benchmark_id, services.clock.now(), before, None)

    services.store.transact(change)
    services.engine.wake()
    return Response(status_code=204)


def _facts(policy: Policy | PolicyActivation | PolicyOverride | None) -> dict[str, object]:
    """Return which policy it is, for the log of acts; nothing where it is the lab's own."""
    return {} if policy is None else {"policy": policy.name, "version": policy.version}


def _in_role(uow: UnitOfWork, role: PolicyRole) -> dict[str, object]:
    return _facts(uow.policies.activated().get(role))


def _log_override(
    uow: UnitOfWork,
    caller: Caller,
    benchmark_id: str,
    now: datetime,
    before: PolicyOverride | None,
    chosen: Policy | None,
) -> None:
    uow.log.append(
        Event(
            at=now,
            kind="policy.override",
            benchmark_id=benchmark_id,
            user_id=caller.user_id,
            data={
                "policy": None if chosen is None else chosen.name,
                "version": None if chosen is None else chosen.version,
                "before": _facts(before),
                "after": _facts(chosen),
            },
        )
    )


def _policy_of(body: Body, context: Context) -> tuple[str, Policy]:
    """Return the policy's text that a request means, and the policy."""
    request = parse(PolicyIn, body.tree())
    policies = context.services.policies
    text = request.text
    if text is None:
        with context.services.store.read() as uow:
            text = _named(policies, uow, str(request.name)).text
    try:
        return text, policies.check(text, request.name or "policy")
    except ConfigError as error:
        raise InvalidInput([FieldError("/text", problem) for problem in error.problems]) from error


def _named(policies: Policies, uow: UnitOfWork, reference: str) -> NamedPolicy:
    """``NAME`` or ``NAME/VERSION``: a server reads no file that a request names."""
    name, slash, version = reference.rpartition("/")
    try:
        if slash and version.isdecimal() and len(version) < 10:
            return policies.named(uow, name, int(version))
        return policies.named(uow, reference, None)
    except NotFound as error:
        known = ", ".join(dict.fromkeys(each.name for each in policies.known(uow).values()))
        raise InvalidInput.at(
            "/name", f"there is no policy {reference!r}", f"one of {known}"
        ) from error


def _with_text(context: Context, name: str, version: int, text: str) -> shapes.PolicyText:
    return shapes.PolicyText(**asdict(_items(context)[name, version]), text=text)


def _items(context: Context) -> dict[tuple[str, int], shapes.Policy]:
    policies = context.services.policies
    with context.services.store.read() as uow:
        activated = uow.policies.activated()
        known = policies.known(uow)
    found = {
        key: shapes.Policy(
            name=each.name,
            version=each.version,
            source=each.source,
            roles=[],
            since=None,
            by_user_id=None,
        )
        for key, each in known.items()
    }
    if PolicyRole.ACTIVE not in activated:
        configured = policies.configured.policy
        key = configured.name, configured.version
        found[key] = replace(found[key], roles=[PolicyRole.ACTIVE.value])
    for activation in activated.values():
        key = activation.name, activation.version
        found[key] = replace(
            found[key],
            roles=sorted(
                role.value for role, each in activated.items() if (each.name, each.version) == key
            ),
            since=activation.at,
            by_user_id=activation.by_user_id,
        )
    return found
