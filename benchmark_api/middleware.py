"""Around every request: its id, its time, and headers that keep browsers from being clever."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable
from datetime import datetime

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgeyard.benchmark_api.acts import begun
from edgeyard.benchmark_api.metrics import Metrics
from edgeyard.benchmark_api.problems import problem_of
from edgeyard.benchmark_api.rate_limits import RateLimits
from edgeyard.errors import RateLimited
from edgeyard.scheduler.model.acts import acting_as

logger = logging.getLogger(__name__)

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_COUNTED_BY_ADDRESS = frozenset(
    {
        "/readyz",
        "/docs",
        "/openapi.json",
        "/api/targets/engines/all",
        "/api/targets/hardware-types/all",
    }
)
"""Paths that need no token, and whose answers cost more than a refusal: they are rate-limited."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    ),
]
"""Headers that each answer gets unless it sets them itself."""


class RequestMiddleware:
    """ASGI middleware; written by hand, since Starlette's base class breaks streaming."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        rate_limits: RateLimits,
        now: Callable[[], datetime],
    ) -> None:
        self._app = app
        self._now = now
        self._metrics = metrics
        self._rate_limits = rate_limits
        # Looking a labelled figure up costs more than the rest of this class.
        self._observe: dict[tuple[str, str, int], Callable[[float], None]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        request_id = _request_id(scope)
        status = 500

        async def passed_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(header for header in SECURITY_HEADERS if header[0] not in own),
                    (b"x-request-id", request_id.encode("ascii")),
                ]
            await send(message)

        try:
            if scope["path"] in _COUNTED_BY_ADDRESS:
                try:
                    self._rate_limits.count_address(scope)
                except RateLimited as error:
                    await problem_of(error)(scope, receive, passed_on)
                    return
            with acting_as(begun(scope, self._rate_limits.address(scope), self._now())):
                await self._app(scope, receive, passed_on)
        finally:
            self._rate_limits.close_request(scope)
            self._note(scope, status, time.monotonic() - began, request_id)

    def _note(self, scope: Scope, status: int, took_s: float, request_id: str) -> None:
        # The route's template, never the path: ids are no labels.
        route = getattr(scope.get("route"), "path", "") or "none"
        method = scope["method"] if scope["method"] in _METHODS else "other"
        key = (method, route, status)
        observe = self._observe.get(key)
        if observe is None:
            observe = self._metrics.http.labels(method, route, str(status)).observe
            self._observe[key] = observe
        observe(took_s)
        level = _log_level(status)
        if logger.isEnabledFor(level):
            logger.log(
                level,
                "request answered",
                extra={
                    "event": "request",
                    "request_id": request_id,
                    "method": method,
                    "route": route,
                    "status": status,
                    "took_ms": round(took_s * 1000, 1),
                },
            )


def _log_level(status: int) -> int:
    """Return how serious an answer is for an operator, who can mend only what broke here."""
    if status == 501:  # not built, as the answer states
        return logging.INFO
    if status == 507:  # a quota, or a disk that somebody has to make room on
        return logging.WARNING
    return logging.ERROR if status >= 500 and status != 503 else logging.DEBUG


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode("ascii"))
    return secrets.token_hex(8)
