"""A webhook's receiver on loopback: keeps what it gets, answers as a test states."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.builders.web import QuietHandler, serving


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
    """``status`` is what it answers; 0: it hangs up. While `silent` is set, it answers nothing.

    A body that contains ``refuses`` is answered with 400.
    """

    url: str = ""
    status: int = 204
    refuses: str = ""
    got: list[ReceivedFile] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)

    def types(self) -> list[str]:
        return [each.json["type"] for each in self.got]


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Listens until the block is left."""
    made = Receiver()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            made.got.append(ReceivedFile(headers, self.body()))
            if made.silent.is_set():
                made.closing.wait()
            if not made.status:
                self.close_connection = True
                return
            is_elsewhere = 300 <= made.status < 400
            there = {"Location": made.url + "/elsewhere"} if is_elsewhere else {}
            refused = made.refuses and made.refuses in made.got[-1].body.decode()
            self.answer(b"", 400 if refused else made.status, **there)

    with serving(Handler) as url:
        made.url = f"{url}/hook"
        try:
            yield made
        finally:
            made.closing.set()
