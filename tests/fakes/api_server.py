"""A server of canned answers on loopback: what clients are tested against."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it arrived."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> object:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What is sent back; ``body`` that is no bytes is sent as JSON."""

    body: object = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False  # end the connection before the stated length is reached

    def data(self) -> tuple[bytes, str]:
        if isinstance(self.body, bytes):
            return self.body, self.headers.get("Content-Type", "text/plain")
        return json.dumps(self.body).encode(), "application/json"


class FakeServer:
    """Answers in the order that was stated; the last answer of a route stays.

    Checks before an upload accept every description unless a test states another answer.

    Args:
        otherwise: Answers routes without a stated answer, by method and path; None: with 404.
    """

    def __init__(self, otherwise: Callable[[str, str], Answer | None] | None = None) -> None:
        self._otherwise = otherwise or (lambda method, path: None)
        self.asked: list[ReceivedRequest] = []
        self._replies: dict[tuple[str, str], list[Answer]] = defaultdict(list)
        self.on("POST", "/v1/benchmarks/check", {})
        self.on("POST", "/v1/campaigns/check", {})
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                server._handle(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def on(self, method: str, path: str, *replies: object) -> None:
        """State the answers of a route; plain values are bodies of 200."""
        self._replies[method, path] = [
            one if isinstance(one, Answer) else Answer(one) for one in replies
        ]

    def of(self, method: str, path: str) -> list[ReceivedRequest]:
        """The requests of a route so far."""
        return [one for one in self.asked if (one.method, one.path) == (method, path)]

    def _handle(self, http: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(http.path)
        length = int(http.headers.get("Content-Length") or 0)
        asked = ReceivedRequest(
            http.command,
            parts.path,
            parse_qs(parts.query),
            {name.lower(): value for name, value in http.headers.items()},
            http.rfile.read(length),
        )
        with self._lock:
            self.asked.append(asked)
            replies = self._replies.get((asked.method, asked.path))
            missing = self._otherwise(asked.method, asked.path) or Answer(
                {"detail": f"no route {asked.path}", "code": "not_found"}, 404
            )
            answer = (replies.pop(0) if len(replies) > 1 else replies[0]) if replies else missing
        data, kind = answer.data()
        http.send_response_only(answer.status)
        if "Date" not in answer.headers:
            http.send_header("Date", http.date_time_string())
        http.send_header("Content-Type", kind)
        http.send_header("Content-Length", str(len(data) + (10 if answer.cut else 0)))
        for name, value in answer.headers.items():
            if name != "Content-Type":
                http.send_header(name, value)
        http.end_headers()
        http.wfile.write(data)
        if answer.cut:
            http.close_connection = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)
