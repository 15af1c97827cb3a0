"""Calls of the HTTP API: the token, retries with back-off, problems turned into errors."""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import quote

import httpx

from edgeyard import __version__
from edgeyard.benchmark_api.sdk.config import ClientSettings
from edgeyard.benchmark_api.sdk.errors import (
    ApiError,
    AuthError,
    NotFoundError,
    ServerNotReached,
    StateConflict,
    ValidationFailed,
)
from edgeyard.benchmark_api.sdk.fields import Record, records, text
from edgeyard.errors import FieldError, InvalidInput
from edgeyard.proxies import http_client, proxy_for

TRIES = 6
"""Tries, about 12 s with the delays below: a server that restarts is back by then."""
FIRST_DELAY_S = 0.2
MAX_DELAY_S = 5.0
MAX_WAIT_S = 30.0
"""Maximum of all waits before further tries of one call: a server that asks for more is not waited
for, and the caller gets its answer. One that has no room left (507) will not have it within
that."""
MAX_ANSWER_BYTES = 128 << 20
"""Maximum size of an unpacked answer; files are streamed, and have no such limit."""
MAX_ERROR_TEXT = 4000
"""Maximum number of characters of each text of an error: many times what a server writes."""
MAX_ERRORS = 1000
MAX_PAGES = 100_000
MAX_EMPTY_PAGES = 100
_CHUNK_BYTES = 1 << 16
_MAX_RETRY_AFTER = 100
_DAY_S = 86400.0
REASON_HEADER = "X-Edgeyard-Reason"
"""Why something is changed, percent-encoded UTF-8."""
_RETRIED_STATUSES = frozenset({429, 502, 503, 504})
_TIMEOUT = httpx.Timeout(60.0, connect=5.0)

Json = object
BodyFactory = Callable[[], Mapping[str, object]]
"""Makes the body's arguments for httpx anew for each try: a stream can be sent only once."""


class Api:
    """One server's HTTP API. Thread-safe, as `httpx.Client` is."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings
        self._sleep = sleep
        self._reason: ContextVar[str] = ContextVar("reason", default="")
        headers = {"User-Agent": f"edgeyard/{__version__}"}
        if settings.token:
            headers["Authorization"] = f"Bearer {settings.token}"
        self._proxy = proxy_for(settings.url) if transport is None else None
        self._http = http_client(
            settings.url,
            self._proxy,
            base_url=settings.url,
            headers=headers,
            transport=transport,
            timeout=_TIMEOUT,
        )

    def introduce(self, agent: str) -> None:
        """Name another program than the SDK in the log of acts, such as ``edgeyard-cli/0.2.0``."""
        self._http.headers["User-Agent"] = agent

    @contextmanager
    def because(self, reason: str) -> Iterator[None]:
        """Send a reason, for the log of acts, with what this thread changes in the block."""
        token = self._reason.set(reason)
        try:
            yield
        finally:
            self._reason.reset(token)

    def close(self) -> None:
        """Release the connections."""
        self._http.close()

    def get(self, path: str, params: Mapping[str, object] | None = None) -> Json:
        """Return the decoded JSON of a GET."""
        return _json(self.request("GET", path, params=params))

    def post(
        self,
        path: str,
        body: Json = None,
        *,
        params: Mapping[str, object] | None = None,
        key: str | None = None,
    ) -> Json:
        """Return the decoded JSON of a POST.

        Args:
            path: Path of the API.
            body: The JSON body; None: none.
            params: Query parameters; those that are None are left out.
            key: Idempotency key; with it the request is retried like a GET.
        """
        headers = {"Idempotency-Key": key} if key else {}
        make = None if body is None else lambda: {"json": body}
        return _json(
            self.request(
                "POST", path, params=params, headers=headers, make_body=make, idempotent=bool(key)
            )
        )

    def put(self, path: str, body: Json) -> Json:
        """Return the decoded JSON of a PUT, which is retried like a GET."""
        return _json(self.request("PUT", path, make_body=lambda: {"json": body}))

    def patch(self, path: str, body: Json) -> Json:
        """Return the decoded JSON of a PATCH, which is retried: sending it twice does no harm."""
        return _json(self.request("PATCH", path, make_body=lambda: {"json": body}, idempotent=True))

    def delete(self, path: str) -> Json:
        """Return the decoded JSON of a DELETE whose answer is what it leaves."""
        return _json(self.request("DELETE", path))

    def page(self, path: str, params: Mapping[str, object] | None = None) -> Record:
        """Return the decoded JSON of a GET of a list, or of a part of it, with its ``items``.

        Raises:
            ApiError: Also where the answer has none: it is not that of an Edgeyard server.
        """
        response = self.request("GET", path, params=params)
        answer = _json(response)
        if isinstance(answer, Mapping) and isinstance(answer.get("items"), list):
            return answer
        raise foreign(response, "something that is not a list")

    def pages(self, path: str, params: Mapping[str, object] | None = None) -> Iterator[Record]:
        """Return the items of a list, over all its pages, as JSON values.

        Raises:
            ApiError: Also where the list can't end: a page that was there before is named again, or
                page after page is empty.
        """
        cursor: str | None = None
        seen: set[str] = set()
        empty = 0
        while True:
            page = self.page(path, {**(params or {}), "cursor": cursor})
            items = records(page, "items")
            yield from items
            cursor = text(page, "next_cursor")
            if not cursor:
                return
            empty = 0 if items else empty + 1
            if empty >= MAX_EMPTY_PAGES or cursor in seen or len(seen) >= MAX_PAGES:
                raise ApiError(
                    200,
                    "endless_list",
                    f"{self.settings.url}{path} answers a list without an end: after "
                    f"{len(seen) + 1} pages it names another one; is this an Edgeyard server?",
                )
            seen.add(cursor)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        make_body: BodyFactory | None = None,
        idempotent: bool | None = None,
        tries: int = TRIES,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        """Send a request, again after failures that may pass, and return the server's answer.

        Args:
            method: HTTP method.
            path: Path of the API.
            params: Query parameters; those that are None are left out.
            headers: Further headers.
            make_body: Makes the body anew for each try; None: no body.
            tries: Maximum number of tries.
            timeout_s: Maximum wait for each part of the exchange; None: 60 s.
            idempotent: Sending it twice does no harm; None: as the method says. What isn't is only
                tried again where the server can't have acted: no connection, or 429.

        Raises:
            ApiError: The server refuses the request.
            ServerNotReached: No answer after all tries.
        """
        waited_s = 0.0
        again = method in ("GET", "HEAD", "PUT") if idempotent is None else idempotent
        for number in range(1, tries + 1):
            try:
                request = self._build(method, path, params, headers, make_body)
                if timeout_s is not None:
                    patient = httpx.Timeout(timeout_s, connect=5.0)
                    request.extensions["timeout"] = patient.as_dict()
                response = _read(self._http.send(request, stream=True))
            except httpx.TransportError as error:
                sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
                if number == tries or (sent and not again):
                    raise self._not_reached(error) from error
                self._sleep(delay_s(number))
                continue
            if response.is_success:
                return response
            problem = problem_of(response)
            retried = response.status_code == 429 or (
                again and response.status_code in _RETRIED_STATUSES
            )
            wait_s = max(problem.retry_after_s or 0.0, delay_s(number))
            if number == tries or not retried or waited_s + wait_s > MAX_WAIT_S:
                raise problem
            waited_s += wait_s
            self._sleep(wait_s)
        raise AssertionError("unreachable")

    def ready(self) -> Mapping[str, object]:
        """Return the answer of ``/readyz?verbose``, whether the server is ready or not; one try.

        Raises:
            ServerNotReached: No answer.
            ApiError: The answer is not that of an Edgeyard server.
        """
        request = self._build("GET", "/readyz", {"verbose": "1"}, None, None)
        try:
            response = _read(self._http.send(request, stream=True))
        except httpx.TransportError as error:
            raise self._not_reached(error) from error
        answer = _parsed(response)
        if not isinstance(answer, Mapping):
            raise problem_of(response)
        return answer

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        params: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[httpx.Response]:
        """Send a GET and yield its answer, whose body is read as it arrives.

        Raises:
            ApiError: The server refuses the request.
            ServerNotReached: The connection failed, also half-way through the body.
        """
        request = self._build("GET", path, params, headers, None)
        request.extensions["timeout"] = httpx.Timeout(timeout_s or 60.0, connect=5.0).as_dict()
        try:
            response = self._http.send(request, stream=True)
            try:
                if not response.is_success:
                    raise problem_of(_read(response))
                yield response
            finally:
                response.close()
        except httpx.DecodingError as error:
            raise foreign(response, "what can't be unpacked") from error
        except httpx.TransportError as error:
            raise self._not_reached(error) from error

    def _not_reached(self, error: httpx.TransportError) -> ServerNotReached:
        reason, proxy = _reason(error), self._proxy
        if proxy is not None and isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            reason = f"the proxy {proxy.shown} ({proxy.variable}) can't be reached: {reason}"
        elif proxy is not None and isinstance(error, httpx.ProxyError):
            reason = f"the proxy {proxy.shown} ({proxy.variable}) refuses: {reason}"
        return ServerNotReached(self.settings.url, reason)

    def _build(
        self,
        method: str,
        path: str,
        params: Mapping[str, object] | None,
        headers: Mapping[str, str] | None,
        make_body: BodyFactory | None,
    ) -> httpx.Request:
        given = {name: value for name, value in (params or {}).items() if value is not None}
        body = make_body() if make_body else {}
        return self._http.build_request(
            method,
            path,
            params=given,  # type: ignore[arg-type]
            headers={**self._stated_reason(method), **(headers or {})},
            **body,  # type: ignore[arg-type]
        )

    def _stated_reason(self, method: str) -> Mapping[str, str]:
        reason = self._reason.get()
        return {REASON_HEADER: quote(reason)} if reason and method not in ("GET", "HEAD") else {}


def part(text: str) -> str:
    """Return one part of a path, quoted whole: an id can't lead elsewhere.

    Raises:
        InvalidInput: It is empty.
    """
    if not text:
        raise InvalidInput.at("ID", "is empty", "an id or a name")
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if text in (".", "..") else quoted


def problem_of(response: httpx.Response) -> ApiError:
    """Return the exception for an answer with an error status."""
    code, detail = "", ""
    errors: tuple[FieldError, ...] = ()
    body = _parsed(response)
    if isinstance(body, Mapping):
        code = _error_text(body.get("code"))
        detail = _error_text(body.get("detail") or body.get("title"))
        errors = tuple(
            FieldError(
                _error_text(item.get("pointer")),
                _error_text(item.get("reason")),
                _error_text(item.get("accepted")),
            )
            for item in records(body, "errors")[:MAX_ERRORS]
        )
    if not detail and not errors:
        start = " ".join(response.text[:_CHUNK_BYTES].split())[:200]
        detail = f"{response.request.url} answered {response.status_code} {start}".rstrip()
        if response.has_redirect_location:
            leads = f"it leads to {response.headers['Location'][:200]}"
            detail += f": {leads}; is this the URL of an Edgeyard server?"
    status = response.status_code
    kind: type[ApiError] = {
        400: ValidationFailed,
        401: AuthError,
        403: AuthError,
        404: NotFoundError,
        409: StateConflict,
        422: ValidationFailed,
    }.get(status, ApiError)
    return kind(status, code, detail, errors, _retry_after_s(response.headers.get("Retry-After")))


def _error_text(value: object) -> str:
    """Return a text of an error, shortened to what a person reads; "" for nothing."""
    text = str(value or "")
    return text if len(text) <= MAX_ERROR_TEXT else f"{text[:MAX_ERROR_TEXT]}..."


def foreign(response: httpx.Response, what: str) -> ApiError:
    """Return the error for an answer that no Edgeyard server gives.

    Args:
        response: The answer.
        what: What it is, to go on after "answered".
    """
    return ApiError(
        response.status_code,
        "not_json",
        f"{response.request.url} answered {what}; is this the URL of an Edgeyard server?",
    )


def _json(response: httpx.Response) -> Json:
    if response.status_code == 204 or not response.content:
        return None
    answer = _parsed(response)
    if answer is _NOT_JSON:
        raise foreign(response, "something that is not JSON")
    if not isinstance(answer, Mapping):
        raise foreign(response, "JSON that is not an object")
    return answer


def _retry_after_s(header: str | None) -> float | None:
    """Return stated seconds, or those until a stated date (RFC 9110, 10.2.3), at most a day."""
    if not header or len(header) > _MAX_RETRY_AFTER:
        return None
    try:
        if re.fullmatch(r"[0-9]+", header.strip(), re.ASCII):
            wait_s = float(header)
        else:
            wait_s = (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return min(max(0.0, wait_s), _DAY_S)


def _read(response: httpx.Response) -> httpx.Response:
    """Read the body of an answer, and close it.

    Raises:
        ApiError: It can't be unpacked, or is then larger than any answer of a server.
    """
    with contextlib.closing(response):
        found = bytearray()
        try:
            for chunk in response.iter_bytes(_CHUNK_BYTES):
                found += chunk
                if len(found) > MAX_ANSWER_BYTES:
                    raise foreign(response, f"more than {MAX_ANSWER_BYTES >> 20} MiB")
        except httpx.DecodingError as error:
            raise foreign(response, "what can't be unpacked") from error
    headers = [
        (name, value) for name, value in response.headers.raw if name.lower() not in _OF_BODY
    ]
    return httpx.Response(
        response.status_code, headers=headers, content=bytes(found), request=response.request
    )


_OF_BODY = (b"content-encoding", b"content-length", b"transfer-encoding")
_NOT_JSON = object()


def _parsed(response: httpx.Response) -> Json:
    """Return the JSON of an answer; `_NOT_JSON` for anything else, also for what nests too deep."""
    try:
        return response.json()
    except (ValueError, RecursionError):
        return _NOT_JSON


def delay_s(number: int) -> float:
    """Return the wait after a try: it doubles, and a random half keeps many clients apart."""
    whole = min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** (number - 1))
    return whole * (0.5 + random.random() / 2)


def _reason(error: httpx.TransportError) -> str:
    words = {
        httpx.ConnectTimeout: "connecting took too long",
        httpx.ReadTimeout: "the answer took too long",
        httpx.WriteTimeout: "sending took too long",
        httpx.RemoteProtocolError: "the connection was cut",
    }
    said = str(error).partition("] ")[2] or str(error)  # without the errno in front
    return words.get(type(error)) or said or type(error).__name__
