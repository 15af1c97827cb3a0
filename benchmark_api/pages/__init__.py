"""Pages of the lab for browsers: what `/v1` answers, as HTML."""

from __future__ import annotations

from fastapi import APIRouter

from edgeyard.benchmark_api.pages import (
    acts,
    alerts,
    assets,
    benchmarks,
    boards,
    changes,
    checks,
    compare,
    history,
    models,
    overview,
    policies,
    queue,
    shares,
    sign_in,
    submit,
    subscriptions,
    usage,
)

ROUTERS: tuple[APIRouter, ...] = (
    overview.router,
    sign_in.router,
    boards.router,
    queue.router,
    benchmarks.router,
    submit.router,
    shares.router,
    subscriptions.router,
    compare.router,
    alerts.router,
    checks.router,
    usage.router,
    history.router,
    policies.router,
    models.router,
    acts.router,
    changes.router,
    assets.router,
)
