"""A webhook's receiver on loopback: keeps what it gets, answers as a test states."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class ReceivedFile:
    """One request."""

    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


@dataclass
class Receiver:
    """``status`` is what it answers; 0: it hangs up. While `silent` is set, it answers nothing."""

    url: str = ""
    status: int = 204
    got: list[ReceivedFile] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)

    def types(self) -> list[str]:
        return [each.json["type"] for each in self.got]


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Listens until the block is left."""
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.got.append(ReceivedFile({k.lower(): v for k, v in self.headers.items()}, body))
            if made.silent.is_set():
                made.closing.wait()
            if not made.status:
                self.close_connection = True
                return
            self.send_response(made.status)
            if 300 <= made.status < 400:
                self.send_header("Location", made.url + "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="receiver", args=(0.05,))
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    try:
        yield made
    finally:
        made.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
