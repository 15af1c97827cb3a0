"""Bare peers as processes of their own, and what a server's processes hold in memory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.process import Server, await_ready, free_port


@contextmanager
def peer(app: str, **environment: str) -> Iterator[Server]:
    """A bare app by uvicorn, started as ours is: one process, no access log."""
    port = free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "uvicorn", app, "--port", str(port)),
            *("--no-access-log", "--log-level", "warning"),
        ],
        env={**os.environ, **environment},
    )
    server = Server(f"http://127.0.0.1:{port}", port, process)
    try:
        await_ready(process, port, "/livez")
        yield server
    finally:
        server.end()


def resident_bytes(server: Server) -> int:
    """Anonymous memory (RssAnon) of the server's process and its children."""
    pid = server.process.pid
    return sum(_anonymous_bytes(each) for each in (pid, *_children(pid)))


def _anonymous_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
