"""Servers that are made to die at a numbered step of their life."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import multiprocessing
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from deploy.process import Server, free_port

DIED = 137

_PRELOADED = ["tests.acceptance.preloaded"]
_asking = threading.Lock()
"""Held while any life is asked for its end. A life's exit status can be read once; of two threads
that read it at the same time one would get 255. To start a life asks all others."""


@dataclass
class Life:
    """A server in a process of its own, forked from one that has imported everything."""

    process: BaseProcess
    data_dir: Path
    port: int

    def ready(self) -> Server:
        url = f"http://127.0.0.1:{self.port}/readyz?verbose"
        until = time.monotonic() + 120
        seen = "nothing"
        while self.is_alive() and time.monotonic() < until:
            try:
                urllib.request.urlopen(url, timeout=2).close()
            except OSError as error:
                seen = str(error)
                if isinstance(error, urllib.error.HTTPError):
                    with error, contextlib.suppress(OSError, http.client.HTTPException):
                        seen += f": {error.read().decode(errors='replace')}"
                time.sleep(0.02)
                continue
            token = (self.data_dir / "admin.token").read_text().strip()
            return Server(f"http://127.0.0.1:{self.port}", self.port, _no_process(), token)
        log = self.data_dir.parent / "server.log"
        raise RuntimeError(
            f"not ready: exit status {self.process.exitcode}; /readyz: {seen}; the end of its log:"
            f"\n{log.read_text(errors='replace')[-3000:] if log.exists() else ''}"
        )

    def is_alive(self) -> bool:
        with _asking:
            return self.process.is_alive()

    def wait(self, timeout_s: float) -> None:
        """Until it has ended, or for this time."""
        until = time.monotonic() + timeout_s
        while self.is_alive() and (left_s := until - time.monotonic()) > 0:
            connection.wait([self.process.sentinel], min(left_s, 1.0))

    def kill(self) -> None:
        self.process.kill()
        self.wait(60)

    def end(self) -> int | None:
        """Stop it as an operator would; its exit status, also where it has ended before."""
        if self.is_alive():
            self.process.terminate()
            self.wait(60)
        with _asking:
            return self.process.exitcode


@contextlib.contextmanager
def a_life(
    data_dir: Path,
    failpoint: int = 0,
    *,
    threads: str = "",
    port: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Life]:
    """A server for the length of a ``with`` block; killed at its end where it still lives.

    Args:
        failpoint: Step at which it dies; 0: none.
        threads: Only steps of threads whose names begin so are counted.
        port: One for all lives, where tasks outlive the server and look for it again.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    port = port or free_port()
    _await_unlocked(data_dir)
    settings = {
        "EDGEYARD_LOG_LEVEL": "warning",
        "EDGEYARD_ALLOW_HOSTS": "127.0.0.1",
        **(environment or {}),
    }
    process = context.Process(target=_serve, args=(data_dir, port, failpoint, threads, settings))
    with _asking:
        process.start()
    life = Life(process, data_dir, port)
    try:
        yield life
    finally:
        life.kill()


def _await_unlocked(data_dir: Path) -> None:
    """Wait, for some seconds at most, until nothing of a life that has died holds the folder.

    A child that it was just starting holds the lock until it becomes its program: milliseconds,
    or more on a busy machine. Other servers take longer to start than that; a life does not.
    """
    path = data_dir / "server.lock"
    if not path.exists():
        return
    limit = time.monotonic() + 10
    with path.open("ab") as lock:
        while time.monotonic() < limit:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.01)


def attempts_of(shown: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Of a benchmark as the API shows it."""
    attempts: list[Mapping[str, Any]] = shown["attempts"]
    return attempts


def good_reports(server: Server, benchmark_id: str) -> list[Mapping[str, Any]]:
    """Reports of runs that went well."""
    results = server.call("GET", f"/v1/benchmarks/{benchmark_id}/results")
    return [each for each in results["reports"] if each["report"]["status"] == "ok"]


def _serve(
    data_dir: Path, port: int, failpoint: int, threads: str, settings: Mapping[str, str]
) -> None:
    from edgeyard import failpoints
    from edgeyard.benchmark_api.main import serve

    log = os.open(data_dir.parent / "server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= settings
    if failpoint:
        failpoints.arm(failpoint, threads)
    raise SystemExit(serve(data_dir, port))


def _no_process() -> subprocess.Popen[bytes]:
    """The server's process is the test's to end, not the handle's."""
    return cast("subprocess.Popen[bytes]", None)
