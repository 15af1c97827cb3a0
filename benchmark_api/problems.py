"""Every error as ``application/problem+json`` (RFC 9457), with a stable code."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from edgeyard.benchmark_api.rate_limits import RateLimits
from edgeyard.benchmark_api.schemas.answers import FieldProblem, Problem, ProblemLimit
from edgeyard.benchmark_api.schemas.body import WrongMediaType
from edgeyard.benchmark_api.schemas.fields import field_errors
from edgeyard.errors import (
    ClusterError,
    Conflict,
    EdgeyardError,
    FieldError,
    Forbidden,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    NothingDiffers,
    OutOfSpace,
    QuotaExceeded,
    RateLimited,
    RunFailed,
    TooLarge,
    Unavailable,
    UrlRefused,
)

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
MAX_TEXT = 1024
"""Characters of any one text in a problem: users' values end up in them."""

_KINDS: tuple[tuple[type[EdgeyardError], int, str], ...] = (
    (UrlRefused, 422, "url_refused"),
    (NothingDiffers, 422, "nothing_differs"),
    (InvalidInput, 422, "invalid_input"),
    (NotAuthenticated, 401, "not_authenticated"),
    (Forbidden, 403, "forbidden"),
    (NotFound, 404, "not_found"),
    (Conflict, 409, "conflict"),
    (TooLarge, 413, "too_large"),
    (WrongMediaType, 415, "wrong_media_type"),
    (OutOfSpace, 507, "out_of_space"),
    (QuotaExceeded, 507, "quota_exceeded"),
    (RateLimited, 429, "rate_limited"),
    (Unavailable, 503, "unavailable"),
    (ClusterError, 503, "cluster_unreachable"),
    (RunFailed, 422, "run_failed"),
)
"""First match wins."""

_LIMITS = (OutOfSpace, QuotaExceeded, RateLimited, TooLarge)
"""Errors that say which limit was met."""

_INTERNAL = "an internal error occurred; the server's log states its cause"

_HTTP_CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    413: "too_large",
    415: "wrong_media_type",
}


class BadRequest(EdgeyardError):
    """The request is broken as HTTP: a checksum or a form that does not hold."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class ProblemAnswer(Response):
    """An error as ``application/problem+json``."""

    media_type = MEDIA_TYPE


def problem(
    status: int,
    code: str,
    detail: str,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
    limit: ProblemLimit | None = None,
) -> ProblemAnswer:
    """Return a problem document as an answer."""
    body = Problem(
        type=f"urn:edgeyard:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail[:MAX_TEXT],
        code=code,
        errors=[
            FieldProblem(
                pointer=error.pointer[:MAX_TEXT],
                reason=error.reason[:MAX_TEXT],
                accepted=error.accepted[:MAX_TEXT],
            )
            for error in errors
        ],
        limit=limit,
    )
    # ASCII with escapes: whatever text is in there, it can be written.
    return ProblemAnswer(json.dumps(msgspec.to_builtins(body)), status, dict(headers or {}))


def problem_of(error: EdgeyardError) -> ProblemAnswer:
    """Return the answer to an error of ours."""
    if isinstance(error, BadRequest):
        return problem(400, "bad_request", str(error))
    status, code = next(
        ((status, code) for kind, status, code in _KINDS if isinstance(error, kind)), (500, "")
    )
    if status == 500:
        logger.error("error without an answer", exc_info=error, extra={"event": "unhandled"})
        return problem(500, "internal", _INTERNAL)
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="edgeyard"'
    wait_s = getattr(error, "retry_after_s", None)
    if isinstance(error, QuotaExceeded) and wait_s is not None:
        status = 429  # room comes by itself
    if status == 503 and wait_s is None:
        wait_s = 5.0
    if wait_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
    errors = error.errors if isinstance(error, InvalidInput) else ()
    return problem(status, code, str(error), errors, headers, _limit(error))


def _limit(error: EdgeyardError) -> ProblemLimit | None:
    """Return which limit was met, and whose it is."""
    if not isinstance(error, _LIMITS) or not error.limit:
        return None
    return ProblemLimit(name=error.limit, value=error.value, whose=error.whose)


def install(app: FastAPI) -> None:
    """Answer every error of this app with a problem document."""

    @app.exception_handler(EdgeyardError)
    async def ours(request: Request, error: EdgeyardError) -> Response:
        guessed = isinstance(error, NotFound) and request.url.path.startswith("/download/")
        rate_limits: RateLimits | None = getattr(request.app.state, "rate_limits", None)
        if rate_limits is not None and (guessed or isinstance(error, NotAuthenticated)):
            try:
                rate_limits.count_failure(request.scope)
            except RateLimited as limited:
                return await _for_client(request, problem_of(limited))
        return await _for_client(request, problem_of(error))

    @app.exception_handler(RequestValidationError)
    async def parameters(request: Request, error: RequestValidationError) -> Response:
        found = field_errors(error.errors(), {})
        answer = problem(422, "invalid_input", "; ".join(map(str, found)), found)
        return await _for_client(request, answer)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        code = _HTTP_CODES.get(error.status_code, "http_error")
        detail = {
            404: "there is no such path; /docs lists those that exist",
            405: f"this path does not accept the method {request.method[:20]}",
        }
        answer = problem(
            error.status_code,
            code,
            detail.get(error.status_code, str(error.detail)),
            headers=error.headers,
        )
        return await _for_client(request, answer)

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # the client is gone

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        # Starlette's outermost middleware logs it with its traceback by raising it again.
        return await _for_client(request, problem(500, "internal", _INTERNAL))


async def _for_client(request: Request, answer: ProblemAnswer) -> Response:
    """Return an error in the form that the door states it in, by its path."""
    if request.url.path.startswith("/api/"):
        return _with_error(answer)
    page: Callable[[Request, ProblemAnswer], Awaitable[Response]] | None = getattr(
        request.app.state, "problem_page", None
    )
    if page is not None and (request.url.path + "/").startswith("/ui/"):
        return await page(request, answer)
    return answer


def _with_error(answer: ProblemAnswer) -> ProblemAnswer:
    """Return the problem with the member ``error``, which the platform's client prints."""
    body = json.loads(bytes(answer.body))
    headers = {
        name: value
        for name, value in answer.headers.items()
        if name not in ("content-length", "content-type")
    }
    return ProblemAnswer(json.dumps({"error": body["detail"]} | body), answer.status_code, headers)


def client_problem(status: int, code: str, sentence: str) -> ProblemAnswer:
    """Return a problem at a door of the platform's client."""
    return _with_error(problem(status, code, sentence))
