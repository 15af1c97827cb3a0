"""What the services of the test environment share: who may call, bounds, errors and Swagger UI."""

from __future__ import annotations

import hmac
import ipaddress
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgeyard import __version__
from edgeyard.benchmark_api import problems, swagger
from edgeyard.benchmark_api.connections import bounded_protocol, listen, raise_descriptor_limit
from edgeyard.benchmark_api.middleware import SECURITY_HEADERS
from edgeyard.benchmark_api.routes.context import read_bounded
from edgeyard.benchmark_api.routes.contract import Answer, Router, components
from edgeyard.benchmark_api.schemas.answers import Problem
from edgeyard.benchmark_api.schemas.body import check_json_type, refuse_repeated_keys
from edgeyard.errors import Forbidden, InvalidInput, NotAuthenticated, TooLarge, reason_of
from edgeyard.scheduler.twin.document import invalid_data, with_declared_types

T = TypeVar("T")

TOKEN_VARIABLE = "EDGEYARD_STE_TOKEN"
MIN_TOKEN_CHARACTERS = 16
MAX_CONNECTIONS = 512
MAX_SMALL_BODY_BYTES = 64 * 1024
_LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})


def ste_token() -> str:
    """Return the token of the services: of EDGEYARD_STE_TOKEN, or of the file that
    EDGEYARD_STE_TOKEN_FILE names; "": there is none.

    Raises:
        InvalidInput: The file can't be read, or the token is too short to be one.
    """
    token = os.environ.get(TOKEN_VARIABLE, "")
    file = os.environ.get(f"{TOKEN_VARIABLE}_FILE", "")
    if file and not token:
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = f"{file} can't be read: {reason_of(error)}"
            raise InvalidInput.at(f"{TOKEN_VARIABLE}_FILE", reason, "a file with a token") from None
    if token and (len(token) < MIN_TOKEN_CHARACTERS or not token.isascii() or " " in token):
        reason = f"the token has {len(token)} characters, or others than letters and digits"
        accepted = f"at least {MIN_TOKEN_CHARACTERS} letters and digits"
        raise InvalidInput.at(TOKEN_VARIABLE, reason, accepted)
    return token


def service_app(
    title: str,
    router: Router,
    *,
    token: str = "",
    bodies: Iterable[Any] = (),
    on_stop: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Return the app of one service.

    Args:
        title: Name of the service.
        router: Its routes.
        token: What callers send as bearer token; "": all who reach the service may call.
        bodies: Types of the bodies that are read by hand, for the schema.
        on_stop: Called when the service stops.
    """

    async def authenticate(request: Request) -> None:
        given = request.headers.get("authorization", "")
        if token and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise NotAuthenticated(f"send Authorization: Bearer TOKEN, with the {TOKEN_VARIABLE}")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(on_stop)

    app = FastAPI(
        title=title,
        version=__version__,
        description="A service of DECICE's synthetic test environment.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    problems.install(app)
    swagger.install(app)
    app.include_router(router, dependencies=[Depends(authenticate)])
    app.include_router(_LIVEZ)
    shapes = [*router.shapes, *_LIVEZ.shapes, *bodies]
    app.openapi = lambda: _openapi(app, shapes)  # type: ignore[method-assign]
    app.add_middleware(_Guard, loopback_only=not token)
    return app


_LIVEZ = Router(tags=["service"])


@_LIVEZ.get("/livez", openapi_extra={"security": []})
async def livez() -> Answer[dict[str, str]]:
    """The process answers; needs no token, so that an orchestrator can ask."""
    return Answer({"status": "ok"})


def _openapi(app: FastAPI, shapes: Iterable[Any]) -> dict[str, Any]:
    if app.openapi_schema is None:
        api = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = api.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(with_declared_types(components([Problem, *shapes])))
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        api["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        for operations in api["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)  # a problem like all others: 4XX
                operation.setdefault("security", [{"bearer": []}])
        app.openapi_schema = api
    return app.openapi_schema


class _Guard:
    """Sets the headers of answers, and refuses what a page of another site makes a browser send."""

    def __init__(self, app: ASGIApp, loopback_only: bool) -> None:
        self._app, self._loopback_only = app, loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def passed_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                more = [each for each in SECURITY_HEADERS if each[0] not in own]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        foreign = bool(origin) and _netloc(origin) != host
        if foreign or (self._loopback_only and not _is_loopback(_host_name(host))):
            refused = Forbidden("requests of another site's pages are refused")
            await problems.problem_of(refused)(scope, receive, passed_on)
            return
        await self._app(scope, receive, passed_on)


def _netloc(url: str) -> str | None:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return None


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name in _LOOPBACK_NAMES


async def read_body(request: Request, limit: int = MAX_SMALL_BODY_BYTES) -> bytes:
    """Read a JSON body; call it after the caller is authenticated.

    Raises:
        TooLarge: Over the limit, in bytes.
        WrongMediaType: It is declared as something else.
    """
    try:
        body = await read_bounded(request, limit, lambda size: None)
    except TooLarge as error:
        raise TooLarge("the body", limit) from error
    check_json_type(body.content_type)
    return body.data


def decoded(body: bytes, kind: type[T]) -> T:
    """Return a body as a value of a type.

    Raises:
        InvalidInput: It is none; names the field.
    """
    try:
        found = msgspec.json.decode(body or b"{}", type=kind)
        refuse_repeated_keys(body or b"{}")
        return found
    except msgspec.ValidationError as error:
        raise invalid_data(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput.at("", f"is not valid JSON: {error}", "a JSON object") from None


def accepts(schema: str | None) -> dict[str, Any]:
    """Return what a route states of its JSON body; ``schema`` names a component, None: any."""
    shape = {"$ref": f"#/components/schemas/{schema}"} if schema else {"type": "object"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": shape}}}}


class Health(msgspec.Struct, kw_only=True):
    """That a service answers, and what it is."""

    status: str = "ok"
    service: str
    version: str = __version__


def add_health(router: Router, service: str) -> None:
    """Add the health check of a service that has no more to report."""

    @router.get("/health_check", summary="Health Check")
    def health_check() -> Answer[Health]:
        """Whether the service answers."""
        return Answer(Health(service=service))


def check_address(host: str, token: str) -> None:
    """Check that a service without a token is reached from this machine alone.

    Raises:
        InvalidInput: Others reach it.
    """
    if not token and not _is_loopback(host):
        reason = f"{host} is reached by others, and {TOKEN_VARIABLE} states no token"
        raise InvalidInput.at("--host", reason, "127.0.0.1, or a token")


def serve(app: FastAPI, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT; print one line with the URL when requests are answered.

    Args:
        app: The service.
        host: Address to listen on.
        port: 0: a free one.

    Raises:
        ConfigError: The address can't be listened on.
    """
    shown = f"[{host}]" if ":" in host else host
    with listen(host, port) as listener:
        _Server(app, f"http://{shown}:{listener.getsockname()[1]}").run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(self, app: FastAPI, url: str) -> None:
        connections = raise_descriptor_limit(MAX_CONNECTIONS)
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                timeout_graceful_shutdown=5,
                http=bounded_protocol(connections),
            )
        )
        self._ready = f"{app.title} is ready at {url}\n"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests, then print the URL."""
        await super().startup(sockets=sockets)
        sys.stdout.write(self._ready)
        sys.stdout.flush()
