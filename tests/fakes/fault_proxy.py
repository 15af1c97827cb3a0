"""A proxy before an HTTP API that does to its calls what networks and tired servers do."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Fault(StrEnum):
    """What happens to one call."""

    ERROR_BEFORE = "error_before"  # 500, and nothing was done
    ERROR_AFTER = "error_after"  # 500, though it was done
    SILENT_BEFORE = "silent_before"  # never an answer, nothing was done
    SILENT_AFTER = "silent_after"  # never an answer, though it was done
    RESET = "reset"  # done, then the connection breaks
    TRUNCATED = "truncated"  # half of the answer, as if it were whole
    GARBAGE = "garbage"  # an answer of another kind
    BUSY = "busy"  # 429
    WRONG_INDEX = "wrong_index"  # the answer, under an index from the future


class StreamFault(StrEnum):
    """What happens to one stream of lines."""

    SLOW = "slow"  # each line comes late
    DOUBLED = "doubled"  # each line comes twice
    REORDERED = "reordered"  # neighbours change places
    CUT = "cut"  # it ends in the middle of a line
    GARBAGE = "garbage"  # a line of something else
    WRONG_INDEX = "wrong_index"  # indexes that go up and down
    LOST = "lost"  # every second line never comes


Choose = Callable[[str, str], Fault | None]
ChooseStream = Callable[[], StreamFault | None]

STREAM = "/v1/event/stream"
_HOP_BY_HOP = {"transfer-encoding", "connection", "content-length", "keep-alive"}


class FaultProxy:
    """Passes calls on to ``upstream`` and spoils those that ``choose`` names.

    Attributes:
        choose: Asked with method and path of each call; may be replaced at any time.
        choose_stream: Asked for each new event stream.
        done: How often each fault was played.
    """

    def __init__(
        self,
        upstream: str,
        *,
        choose: Choose = lambda method, path: None,
        choose_stream: ChooseStream = lambda: None,
        silence_s: float = 2.0,
        slow_s: float = 0.3,
    ) -> None:
        parts = urlsplit(upstream)
        self.upstream = (str(parts.hostname), int(parts.port or 80))
        self.choose = choose
        self.choose_stream = choose_stream
        self.silence_s = silence_s
        self.slow_s = slow_s
        self.done: Counter[str] = Counter()
        self.stopping = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True  # a stream that nobody reads must not keep the test
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="fault-proxy", args=(0.05,)
        )

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def seldom(seed: int, chance: float) -> Choose:
    """Any fault, on so many of the calls."""
    dice = random.Random(seed)
    faults = list(Fault)
    lock = threading.Lock()

    def choose(method: str, path: str) -> Fault | None:
        with lock:
            return dice.choice(faults) if dice.random() < chance else None

    return choose


def any_stream(seed: int) -> ChooseStream:
    """A fault on every stream."""
    dice = random.Random(seed)
    return lambda: dice.choice(list(StreamFault))


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else None
            with contextlib.suppress(ConnectionError, TimeoutError, http.client.HTTPException):
                if self.path.startswith(STREAM):
                    self._stream()
                else:
                    self._call(body)
                return
            self.close_connection = True

        do_GET = do_POST = do_PUT = do_DELETE = _any

        def _call(self, body: bytes | None) -> None:
            fault = proxy.choose(self.command, self.path)
            if fault is not None:
                proxy.done[fault] += 1
            if fault is Fault.ERROR_BEFORE:
                return self._answer(500, b"rpc error: No cluster leader")
            if fault is Fault.BUSY:
                return self._answer(429, b"too many requests")
            if fault is Fault.SILENT_BEFORE:
                return self._be_silent()
            connection = http.client.HTTPConnection(*proxy.upstream, timeout=30)
            try:
                headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
                connection.request(self.command, self.path, body=body, headers=headers)
                response = connection.getresponse()
                data, status = response.read(), response.status
                answered = [
                    (k, v) for k, v in response.getheaders() if k.lower() not in _HOP_BY_HOP
                ]
            finally:
                connection.close()
            if fault is Fault.ERROR_AFTER:
                return self._answer(500, b"rpc error: leadership lost while committing log")
            if fault is Fault.SILENT_AFTER:
                return self._be_silent()
            if fault is Fault.RESET:
                self.close_connection = True
                return None
            if fault is Fault.TRUNCATED:
                data = data[: len(data) // 2]
            elif fault is Fault.GARBAGE:
                data = b"<html><body>Bad gateway</body></html>"
            elif fault is Fault.WRONG_INDEX:
                answered = [(k, "999999999" if k == "X-Nomad-Index" else v) for k, v in answered]
            self._answer(status, data, answered)

        def _answer(
            self, status: int, data: bytes, headers: list[tuple[str, str]] | None = None
        ) -> None:
            self.send_response(status)
            for name, value in headers or ():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _be_silent(self) -> None:
            proxy.stopping.wait(proxy.silence_s)
            self.close_connection = True

        def _stream(self) -> None:
            fault = proxy.choose_stream()
            if fault is not None:
                proxy.done[fault] += 1
            connection = http.client.HTTPConnection(*proxy.upstream, timeout=30)
            self.close_connection = True
            try:
                headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
                connection.request("GET", self.path, headers=headers)
                response = connection.getresponse()
                if response.status != 200:
                    return self._answer(response.status, response.read())
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Connection", "close")
                self.end_headers()
                for line in _spoiled(_lines(response), fault, proxy):
                    if proxy.stopping.is_set():
                        return None
                    self.wfile.write(line)
                    self.wfile.flush()
            finally:
                connection.close()

    return Handler


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while line := response.readline():
        yield line


def _spoiled(
    lines: Iterator[bytes], fault: StreamFault | None, proxy: FaultProxy
) -> Iterator[bytes]:
    held: bytes | None = None
    for number, line in enumerate(lines):
        if fault is StreamFault.SLOW:
            proxy.stopping.wait(proxy.slow_s)
            yield line
        elif fault is StreamFault.DOUBLED:
            yield from (line, line)
        elif fault is StreamFault.REORDERED:
            if held is None:
                held = line
            else:
                yield from (line, held)
                held = None
        elif fault is StreamFault.CUT and number >= 5:
            yield line[: len(line) // 2]
            return
        elif fault is StreamFault.GARBAGE and number == 5:
            yield b'{"Index": tru\n'
        elif fault is StreamFault.WRONG_INDEX and line.strip() not in (b"{}", b""):
            yield json.dumps({**json.loads(line), "Index": (number * 7919) % 100_000}).encode()
            yield b"\n"
        elif fault is StreamFault.LOST and number % 2:
            continue
        else:
            yield line
