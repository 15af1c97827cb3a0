"""The services of the test environment: apps in threads, and processes of their own."""

from __future__ import annotations

import os
import re
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn
from fastapi import FastAPI

from edgeyard.benchmark_api.connections import BoundedProtocol, bounded_protocol

TOKEN = "a-token-of-the-test"
START_S = 180.0


@contextmanager
def served(
    app: FastAPI, token: str = TOKEN, protocol: type[BoundedProtocol] | None = None
) -> Iterator[httpx.Client]:
    """Serve an app in a thread, with the protocol of a server or the usual one."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, http=protocol or bounded_protocol(64))
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{listener.getsockname()[1]}",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=60.0,
        ) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@dataclass
class Processes:
    """Services that run as processes."""

    folder: Path
    environment: Mapping[str, str]

    @contextmanager
    def service(self, *arguments: str) -> Iterator[str]:
        """Serve one on a free port; yield its URL."""
        words = [sys.executable, "-m", "edgeyard", "ste", "serve", *arguments, "--port", "0"]
        log = self.folder / f"{arguments[0]}.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=errors, env=self.environment, text=True
            )
        try:
            yield _url(process, log)
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()


def processes(folder: Path, token: str = TOKEN) -> Processes:
    """Return what starts services with their data in a folder."""
    return Processes(folder, {**os.environ, "EDGEYARD_STE_TOKEN": token})


def _url(process: subprocess.Popen[str], log: Path) -> str:
    """Wait until a service prints where it answers."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(START_S), f"it did not start: {log.read_text()}"
    line = process.stdout.readline()
    found = re.search(r"http://\S+", line)
    assert found, f"{line!r}: {log.read_text()}"
    return found[0]


def finished(client: httpx.Client, run_id: str, limit_s: float = 300.0) -> dict[str, object]:
    """Wait until a run has ended, and return it."""
    until_s = time.monotonic() + limit_s
    while True:
        found: dict[str, object] = client.get(f"/runs/{run_id}").json()
        if found["state"] not in ("queued", "running"):
            return found
        assert time.monotonic() < until_s, found
        time.sleep(0.05)
