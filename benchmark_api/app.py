"""The web app: routes, errors and what surrounds every request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.concurrency import run_in_threadpool
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import Lifespan

from edgeyard import __version__
from edgeyard.benchmark_api import pages, problems
from edgeyard.benchmark_api.acts import REASON_HEADER, ROUTE_ACTS, FailedSignIns
from edgeyard.benchmark_api.auth import Authenticator
from edgeyard.benchmark_api.extensions import server_pages, server_routers
from edgeyard.benchmark_api.heavy_work import HeavyWork
from edgeyard.benchmark_api.metrics import Metrics
from edgeyard.benchmark_api.middleware import RequestMiddleware
from edgeyard.benchmark_api.pages.page import problem_page
from edgeyard.benchmark_api.passwords import LoginLimits, Passwords
from edgeyard.benchmark_api.rate_limits import RateLimits
from edgeyard.benchmark_api.routes import (
    accounts,
    acts,
    alerts,
    benchmarks,
    campaigns,
    checks,
    contract,
    credits,
    exchange,
    files,
    groups,
    health,
    inspection,
    lab,
    limits,
    models,
    platform,
    policies,
    reservations,
    results,
    schedules,
    scorers,
    series,
    shares,
    submitting,
    subscriptions,
    tasks,
    twin,
    uploads,
    usage,
)
from edgeyard.benchmark_api.routes.context import Context
from edgeyard.benchmark_api.routes.contract import Router
from edgeyard.benchmark_api.routes.sign_in_links import SignInLinks
from edgeyard.benchmark_api.routes.tail import LogTail
from edgeyard.benchmark_api.schemas import platform as platform_bodies
from edgeyard.benchmark_api.schemas import requests
from edgeyard.benchmark_api.schemas.answers import Problem
from edgeyard.benchmark_api.schemas.description import JobDescriptionIn
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.submission.offer import Offers
from edgeyard.benchmark_api.submission.store import Submissions
from edgeyard.scheduler.twin.document import component_schemas
from edgeyard.scheduler.twin.posted import DigitalTwin

ROUTERS: tuple[Router, ...] = (
    submitting.router,
    benchmarks.router,
    inspection.router,
    results.router,
    campaigns.router,
    alerts.router,
    checks.router,
    series.router,
    files.router,
    uploads.router,
    tasks.router,
    lab.router,
    reservations.router,
    shares.router,
    subscriptions.router,
    subscriptions.deliveries,
    credits.router,
    groups.router,
    limits.router,
    usage.router,
    policies.router,
    policies.own,
    scorers.router,
    models.router,
    *server_routers(),
    twin.router,
    schedules.router,
    exchange.router,
    accounts.router,
    acts.router,
    health.router,
    *platform.ROUTERS,
)

BODIES = (
    JobDescriptionIn,
    requests.CampaignIn,
    requests.UserIn,
    requests.UserChange,
    requests.PasswordIn,
    requests.WebhookIn,
    requests.TokenIn,
    requests.DrainIn,
    requests.QuarantineIn,
    requests.LeaseIn,
    requests.ShareIn,
    requests.SubscriptionIn,
    requests.CheckIn,
    requests.PriorityIn,
    requests.FileNameIn,
    requests.CreditsIn,
    requests.RateIn,
    requests.PolicyIn,
    requests.ProgressIn,
    requests.ExchangeIn,
    requests.TagsIn,
    requests.SimulationIn,
    requests.ComparisonIn,
    platform_bodies.LoginIn,
    platform_bodies.RefreshIn,
    *platform.BODIES,
)
"""Bodies that are read by hand; the reference shows their schemas."""

_PUBLIC = (
    *("/livez", "/readyz", "/v1/version", "/download/{name}"),
    *platform.PUBLIC,
)
"""Paths that need no token: none shows data of a user, and names of downloads can't be guessed."""


def create_app(services: Services, metrics: Metrics | None = None) -> FastAPI:
    """Return the app over its services; its lifespan starts them.

    Args:
        metrics: Shared with the engine; None: the app's own.
    """
    metrics = metrics or Metrics(services.settings.cluster_name)
    tail = LogTail(services.store)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tail.start()
        try:
            yield
        finally:
            await run_in_threadpool(tail.stop)

    engine_only = services.settings.role == "engine"
    app = _routes(lifespan, (health.router,) if engine_only else ROUTERS)
    if not engine_only:
        # people wait for pages: theirs are looked at before the many routes of the API
        routers = (*pages.ROUTERS, *server_pages())
        app.router.routes[:0] = [route for router in routers for route in router.routes]
        app.state.problem_page = problem_page
    authenticator = Authenticator(services.store, services.clock)
    app.state.authenticator = authenticator
    app.state.failed_sign_ins = FailedSignIns(services.store, services.clock.now)
    app.state.rate_limits = RateLimits(services.settings, services.clock.monotonic_s)
    app.state.context = Context(
        services=services,
        metrics=metrics,
        authenticator=authenticator,
        tail=tail,
        submissions=Submissions(services, metrics),
        offers=Offers(services.usable_boards, services.joined),
        passwords=Passwords(LoginLimits(services.settings, services.clock.monotonic_s)),
        heavy=HeavyWork(lambda: services.settings.heavy_requests_per_user),
        posted=DigitalTwin(services.settings.twin_limit_bytes),
        links=SignInLinks(services.clock.monotonic_s),
    )
    metrics.watch(services)
    if services.settings.allowed_hosts:
        app.add_middleware(
            TrustedHostMiddleware, allowed_hosts=list(services.settings.allowed_hosts)
        )
    app.add_middleware(
        RequestMiddleware,
        metrics=metrics,
        rate_limits=app.state.rate_limits,
        now=services.clock.now,
    )
    return app


def openapi_document() -> dict[str, Any]:
    """Return the document of ``/openapi.json``; needs no services."""
    return _openapi(_routes(None, ROUTERS))


def _routes(lifespan: Lifespan[FastAPI] | None, routers: Sequence[Router]) -> FastAPI:
    app = FastAPI(
        title="Edgeyard",
        version=__version__,
        description="Benchmarks of models on edge boards.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    problems.install(app)
    for router in routers:
        app.router.routes.extend(router.routes)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's own way
    return app


_ACTS = {
    (method, path.replace(":path}", "}")) for (method, path), kind in ROUTE_ACTS.items() if kind
}

_REASON = {
    "name": REASON_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "Why, for the log of acts: percent-encoded UTF-8. A `reason` in the body "
    "precedes it.",
}


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Return the reference, with the bodies that are read by hand and who may call what."""
    if app.openapi_schema is None:
        api = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        components = api.setdefault("components", {}).setdefault("schemas", {})
        template = "#/components/schemas/{model}"
        _, bodies = models_json_schema(
            [(body, "validation") for body in BODIES], ref_template=template
        )
        components.update(bodies["$defs"])
        components.update(
            contract.components(
                [Problem, *(shape for router in ROUTERS for shape in router.shapes)]
            )
        )
        components.update(component_schemas())
        for unused in ("HTTPValidationError", "ValidationError"):
            components.pop(unused, None)
        api["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        for path, operations in api["paths"].items():
            for method, operation in operations.items():
                operation["responses"].pop("422", None)  # a problem like all others: 4XX
                if (method.upper(), path) in _ACTS:
                    operation.setdefault("parameters", []).append(_REASON)
                operation["security"] = [] if path in _PUBLIC else [{"bearer": []}]
        app.openapi_schema = api
    return app.openapi_schema
