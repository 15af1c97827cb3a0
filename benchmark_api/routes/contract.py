"""The response contract: a route answers the model that its annotation names, and documents it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from fastapi import APIRouter
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from edgeyard.benchmark_api.routes.documented import PROBLEMS

T = TypeVar("T")

REF_TEMPLATE = "#/components/schemas/{name}"


class Answer(Response, Generic[T]):
    """A JSON answer of type ``T``.

    A route that is annotated with ``Answer[Board]`` answers a `Board`: mypy checks that it builds
    one, and `Router` documents it.

    Attributes:
        content: What it answers, for pages that show it.
    """

    media_type = "application/json"

    def __init__(
        self, content: T, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Encode the content, without checking it again.

        Args:
            content: A model of ``schemas``, or plain JSON values.
            status: HTTP status.
            headers: Further headers.
        """
        self.content = content
        super().__init__(_ENCODER.encode(content), status, dict(headers or {}))


class Route(APIRoute):
    """An `APIRoute` that costs next to nothing where the path begins differently.

    An app asks its routes one by one, some 250; nearly all begin differently, and to match their
    patterns took a tenth of a short answer's time.
    """

    def __init__(self, path: str, *args: Any, **options: Any) -> None:
        """Take the arguments of an `APIRoute`."""
        super().__init__(path, *args, **options)
        self._begin = path.partition("{")[0]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether and how the route answers a request, as `APIRoute` does."""
        if not scope["path"].startswith(self._begin):
            return Match.NONE, {}
        return super().matches(scope)


class PageRouter(APIRouter):
    """An `APIRouter` of pages, which the reference of the API leaves out."""

    def __init__(self) -> None:
        """Start without routes."""
        super().__init__(include_in_schema=False, route_class=Route)


class Router(APIRouter):
    """An `APIRouter` that documents what its routes are annotated to answer, and `PROBLEMS`.

    An app takes its routes as they are (``app.router.routes.extend``): `FastAPI.include_router`
    would build each of them again at the app's first request.

    Attributes:
        shapes: The types of all answers of its routes.
    """

    def __init__(self, **options: Any) -> None:
        """Take the options of an `APIRouter`."""
        self.shapes: list[Any] = []
        super().__init__(responses=PROBLEMS, route_class=Route, **options)

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Add a route; the first `Answer` of its annotation has the route's own status."""
        if shapes := answer_types(endpoint):
            self.shapes += shapes
            options["response_model"] = None
            own = documented(options.get("status_code") or 200, shapes[0])
            options["responses"] = own | (options.get("responses") or {})
        super().add_api_route(path, endpoint, **options)


def answer_types(endpoint: Callable[..., Any]) -> list[Any]:
    """Return the types of all `Answer` that a route is annotated to return."""
    annotation = get_type_hints(endpoint).get("return")
    options = [annotation] if get_origin(annotation) is Answer else get_args(annotation)
    return [get_args(each)[0] for each in options if get_origin(each) is Answer]


def documented(status: int, shape: Any) -> dict[int | str, dict[str, Any]]:
    """Return the entry of ``/openapi.json`` for a JSON answer of a type."""
    (schema,), _ = msgspec.json.schema_components([shape], ref_template=REF_TEMPLATE)
    content = {"application/json": {"schema": schema}}
    return {status: {"description": "Successful Response", "content": content}}


def components(shapes: Iterable[Any]) -> dict[str, Any]:
    """Return the schemas of these types and of all that they refer to, by name."""
    return msgspec.json.schema_components(shapes, ref_template=REF_TEMPLATE)[1]


def _plain(value: object) -> object:
    """Return what stands for a value of a foreign type, for example a number of NumPy."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
