"""An HTTP transport whose requests end in time, however slowly the other side sends.

Ordinary time-outs bound one read. A server that sends a byte every few seconds never meets them, so
that one request can hold a thread for hours. Here every wait is also bounded by the request's
deadline, and is given up when the caller no longer wants the answer.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import httpcore
import httpx

from edgeyard.errors import Cancelled
from edgeyard.tls import shared_context

_CHECK_S = 0.25
"""Time between two checks whether the caller still needs the answer, seconds."""


def never() -> bool:
    """Return False: the default of callers that never cancel a request."""
    return False


class BoundedTransport(httpx.BaseTransport):
    """For `httpx.Client`: one request, of which the answer is there by a deadline or not at all.

    Args:
        deadline_s: On `time.monotonic`'s clock; later waits raise `httpcore.TimeoutException`.
        cancelled: Asked a few times a second; once true, waits raise `Cancelled`.
    """

    def __init__(self, deadline_s: float, cancelled: Callable[[], bool]) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=shared_context(trust_env=False),
            max_connections=1,
            max_keepalive_connections=0,
            network_backend=_Backend(_Bounds(deadline_s, cancelled)),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; see `httpx.BaseTransport`."""
        assert isinstance(request.stream, httpx.SyncByteStream)
        answer = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        assert isinstance(answer.stream, Iterable)
        return httpx.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer.stream),
            extensions=answer.extensions,
        )

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream

    def close(self) -> None:
        getattr(self._stream, "close", lambda: None)()


class _Bounds:
    def __init__(self, deadline_s: float, cancelled: Callable[[], bool]) -> None:
        self._deadline_s = deadline_s
        self._cancelled = cancelled

    def slices(self, timeout_s: float | None) -> Iterator[float]:
        """Time-outs, in seconds, of the short waits that make up one wait.

        Raises:
            Cancelled: The caller no longer wants the answer.
        """
        until_s = self._deadline_s
        if timeout_s is not None:
            until_s = min(until_s, time.monotonic() + timeout_s)
        while True:
            if self._cancelled():
                raise Cancelled
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            yield min(left_s, _CHECK_S)

    def whole(self, timeout_s: float | None) -> float:
        """Return the time-out, in seconds, of a wait that can't be taken apart.

        Raises:
            httpcore.ConnectTimeout: The deadline is over.
        """
        for _ in self.slices(timeout_s):
            left_s = self._deadline_s - time.monotonic()
            return max(0.001, left_s if timeout_s is None else min(timeout_s, left_s))
        raise httpcore.ConnectTimeout


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, bounds: _Bounds) -> None:
        self._stream = stream
        self._bounds = bounds

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        for slice_s in self._bounds.slices(timeout):
            try:
                return self._stream.read(max_bytes, slice_s)
            except httpcore.ReadTimeout:
                continue
        raise httpcore.ReadTimeout

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._bounds.whole(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(
            self._stream.start_tls(ssl_context, server_hostname, self._bounds.whole(timeout)),
            self._bounds,
        )

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, bounds: _Bounds) -> None:
        self._bounds = bounds
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        made = self._backend.connect_tcp(
            host, port, self._bounds.whole(timeout), local_address, socket_options
        )
        return _Stream(made, self._bounds)
