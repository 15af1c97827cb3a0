"""The doors of the platform's own client, ``daiedge-vlab``, over the services of ``/v1``."""

from __future__ import annotations

from edgeyard.benchmark_api.routes.platform import benchmarks, files, sessions, targets

ROUTERS = (
    sessions.router,
    files.datasets,  # before benchmarks' own, whose ids would match
    files.models,
    benchmarks.router,
    targets.router,
)

BODIES = targets.BODIES

PUBLIC = (
    "/api/users/login",
    "/api/users/token/refresh",
    "/api/benchmarks/status",
    "/api/targets/status",
    "/api/targets/hardware-types/all",
    "/api/targets/engines/all",
)
"""Paths that the client asks without a token."""
