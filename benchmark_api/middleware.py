"""Around every request: its id, its time, and headers that keep browsers from being clever."""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgeyard.benchmark_api.metrics import Metrics

logger = logging.getLogger(__name__)

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
    ),
}


class Around:
    """ASGI middleware; written by hand, since Starlette's base class breaks streaming."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

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
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for name, value in _SECURITY.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, passed_on)
        finally:
            self._note(scope, status, time.monotonic() - began, request_id)

    def _note(self, scope: Scope, status: int, took_s: float, request_id: str) -> None:
        # The route's template, never the path: ids are no labels.
        route = getattr(scope.get("route"), "path", "") or "none"
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.http.labels(method, route, str(status)).observe(took_s)
        if logger.isEnabledFor(logging.DEBUG) or status >= 500:
            logger.log(
                logging.ERROR if status >= 500 and status != 503 else logging.DEBUG,
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


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode("ascii"))
    return secrets.token_hex(8)
