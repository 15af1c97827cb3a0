"""What python-nomad needs of a `requests` session, spoken by httpcore.

A dispatch makes three calls, and under load the machine's processors are what bounds the rate:
httpcore, which carries httpx, takes half of what the layers above it add.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlencode

import httpcore

from edgeyard.scheduler.clusters.nomad.access import NomadAccess

FAILURES = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException)
"""Exceptions of calls without an answer."""


class Session:
    """A pool of connections that threads share. Thread-safe."""

    def __init__(self, access: NomadAccess, headers: Mapping[str, str]) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=access.tls(),
            max_connections=access.connections,
            max_keepalive_connections=access.connections,
            keepalive_expiry=5.0,  # as httpx; Nomad keeps them for longer
        )
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._json_headers = [*self._headers, (b"Content-Type", b"application/json")]
        self._extensions: dict[str, object] = {
            "timeout": dict.fromkeys(("connect", "read", "write", "pool"), access.timeout_s)
        }
        if access.tls_server_name is not None:
            self._extensions["sni_hostname"] = access.tls_server_name

    def get(self, url: str, **options: object) -> Response:
        """Send a GET like `requests`; time-outs, TLS and redirects are those of this session."""
        return self._send("GET", url, options)

    def post(self, url: str, **options: object) -> Response:
        """Send a POST; otherwise as `get`."""
        return self._send("POST", url, options)

    def put(self, url: str, **options: object) -> Response:
        """Send a PUT; otherwise as `get`."""
        return self._send("PUT", url, options)

    def delete(self, url: str, **options: object) -> Response:
        """Send a DELETE; otherwise as `get`."""
        return self._send("DELETE", url, options)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def _send(self, method: str, url: str, options: Mapping[str, object]) -> Response:
        params = options.get("params")
        if isinstance(params, Mapping) and params:
            texts = {
                name: str(value).lower() if isinstance(value, bool) else str(value)
                for name, value in params.items()
                if value is not None
            }
            url = f"{url}?{urlencode(texts)}"
        body = options.get("json")
        headers, content = self._headers, b""
        if body is not None:
            headers, content = self._json_headers, json.dumps(body).encode()
        answer = self._pool.request(
            method, url, headers=headers, content=content, extensions=self._extensions
        )
        return Response(answer.status, answer.content)


class Response:
    """An answer with the properties that python-nomad uses."""

    def __init__(self, status_code: int, content: bytes) -> None:
        self.status_code = status_code
        self.content = content
        self.ok = 200 <= status_code < 300

    @property
    def text(self) -> str:
        """Content as text, for error messages."""
        return self.content.decode(errors="replace")

    def json(self) -> object:
        """Raises ValueError where it is none."""
        return json.loads(self.content)
