"""Checks of answers against the models that the API documents."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
from fastapi.routing import APIRoute

from edgeyard.benchmark_api.app import ROUTERS
from edgeyard.benchmark_api.routes.contract import answer_types


def routes() -> list[APIRoute]:
    """Return all routes of the API."""
    return [each for router in ROUTERS for each in router.routes if isinstance(each, APIRoute)]


def violation(shape: Any, body: object) -> str | None:
    """Return how a JSON value differs from a model; None where it is exactly the model's.

    A field that the model lacks does not survive the way through it, and one that it requires may
    not be missing.
    """
    try:
        read = msgspec.to_builtins(msgspec.convert(body, shape))
    except msgspec.ValidationError as error:
        return str(error)
    return None if read == body else f"{shape} reads {body} as {read}"


def check_answer(response: httpx.Response) -> None:
    """Fail where a route answers JSON that is not the model which it documents."""
    if not response.is_success or response.headers.get("content-type") != "application/json":
        return
    response.read()
    path, method = response.request.url.path, response.request.method
    for route in routes():
        if method in (route.methods or ()) and route.path_regex.fullmatch(path):
            shapes = answer_types(route.endpoint)
            found = [violation(shape, response.json()) for shape in shapes]
            assert None in found, f"{method} {path} breaks its contract: {found}"
            return
