"""Everything in one process: the web, the engine and, by default, the embedded cluster."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

import uvicorn
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api import logs
from edgeyard.benchmark_api.bootstrap import Server
from edgeyard.benchmark_api.connections import bounded_protocol, listen, raise_descriptor_limit
from edgeyard.benchmark_api.memory import give_back_freed_memory
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import ConfigError

logger = logging.getLogger(__name__)

EXIT_CONFIG = 2
_GRACE_S = 5
"""How long requests under way and streams may take when the server is stopped."""

_BACKLOG = 2048
"""Connections that the kernel holds until they are accepted; later ones try again in seconds."""

_ACCEPTED_AT_ONCE = 32
"""Connections accepted before those over the limit are closed: each takes a file descriptor."""

_SWITCH_INTERVAL_S = 0.0005
"""How long a thread may compute before another one gets its turn. The event loop waits for its turn
some ten times a request, behind every thread that computes: at Python's 5 ms, a few of them cost it
half a second."""


_GARBAGE_THRESHOLDS = (10_000, 10, 10)
"""Thresholds of Python's collector of cycles. A full collection looks at all that is alive while
nothing else runs: a second with 10,000 benchmarks in the queue. Python makes one only if what has
grown old since the last one is a quarter of that; with a third number of 1,000 there was none for a
day, and what was in cycles of connections that were open at a lesser one stayed."""


def serve(
    data_dir: Path | None = None,
    port: int | None = None,
    host: str | None = None,
    config: Path | None = None,
    role: str | None = None,
) -> int:
    """Run until SIGTERM or SIGINT; SIGHUP reloads settings and the files that they name.

    Prints one line with the URL to stdout when requests are answered and jobs are placed.

    Returns:
        Exit status: 0 after a clean stop, 2 when a setting or a file is wrong (reported on stderr).
    """

    def load() -> Settings:
        return Settings.load(config, data_dir=data_dir, port=port, host=host, role=role)

    give_back_freed_memory()
    hangups = _Hangups()
    try:
        settings = load()
        logs.configure(settings.log_level, settings.log_format)
        listener = listen(settings.host, settings.port)
        try:
            parts = Server(settings, listener.getsockname()[1])
        except BaseException:
            listener.close()
            raise
    except ConfigError as error:
        for problem in error.problems:
            sys.stderr.write(f"edgeyard: {problem}\n")
        return EXIT_CONFIG
    try:
        hangups.answer(lambda: parts.reloader.reload(load))
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        collect_seldom()
        server = _HttpServer(parts, settings.max_connections)
        server.run(sockets=[listener])
        return 0 if server.started else 1
    finally:
        hangups.close()
        parts.close()
        listener.close()


def collect_seldom() -> None:
    """Collect cycles now, and from then on as seldom as a server can afford."""
    gc.collect()
    gc.freeze()  # what is loaded by now stays, and is not looked at again
    gc.set_threshold(*_GARBAGE_THRESHOLDS)


class _Hangups:
    """Answers SIGHUP on a thread of its own; until there is an answer, the signal waits."""

    def __init__(self) -> None:
        self._signals: SimpleQueue[bool] = SimpleQueue()  # may be put to by a signal's handler
        self._thread: threading.Thread | None = None
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGHUP, lambda number, frame: self._signals.put(True))

    def answer(self, reload: Callable[[], object]) -> None:
        """Reload at each signal, of those that came before too."""

        def run() -> None:
            while self._signals.get():
                reload()

        self._thread = threading.Thread(target=run, name="edgeyard-reload")
        self._thread.start()

    def close(self) -> None:
        """End the thread; later signals are left unanswered, but end nothing."""
        self._signals.put(False)
        if self._thread is not None:
            self._thread.join()


class _HttpServer(uvicorn.Server):
    """Starts the engine once requests are answered: a task's first call must find us."""

    def __init__(self, parts: Server, max_connections: int) -> None:
        super().__init__(
            uvicorn.Config(
                parts.app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # X-Forwarded-For may say anything
                timeout_graceful_shutdown=_GRACE_S,
                timeout_keep_alive=30,
                backlog=_ACCEPTED_AT_ONCE,  # asyncio accepts as many before it looks at any
                http=bounded_protocol(raise_descriptor_limit(max_connections)),
            )
        )
        self._parts = parts

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests, then place jobs, then say so."""
        await super().startup(sockets=sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)
        await run_in_threadpool(self._parts.start)
        sys.stdout.write(f"Edgeyard is ready at {self._parts.public_url}\n")
        # What a journal keeps is read by others than who started the server.
        if not stat.S_ISSOCK(os.fstat(1).st_mode):
            link = await run_in_threadpool(self._parts.sign_in_link)
            if link is not None:
                sys.stdout.write(f"Open {link} to sign in as its admin (once, for 10 minutes)\n")
        sys.stdout.flush()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Obey signals as uvicorn does, but raise none again that was obeyed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {
            number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.handle_exit(number, frame)
