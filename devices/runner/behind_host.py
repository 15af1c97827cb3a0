"""On a board behind its host: take a run over an ssh session, do it, and leave nothing behind.

``transports/ssh.py`` is the other end. Everything goes over the session's own stdin and stdout:

::

    in   {"environ": {...}, "files": [{"name", "size"}, ...]} and a newline, then the files
         afterwards a byte now and then: the host lives
    out  {"kind": "running"}, {"kind": "progress", "percent", "phase", "message"}, ...
         {"kind": "file", "name", "size"} and the file, for each result, then {"kind": "done"}

When the host closes the session or is silent for a while, or the program is stopped, the run is
ended and its folder removed. A folder that a power cut left is removed at the next run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Dict, List, Mapping, Optional

OPTION = "--behind-host"
FOLDER_PREFIX = "edgeyard-"

HEARTBEAT_S = 10.0
"""Interval of the host's keep-alive messages; each wakes the board for some microseconds."""

SILENT_S = 60.0
"""Maximum silence of the host; after it the connection counts as lost, whatever TCP reports."""

_BLOCK = 256 * 1024
_MAX_HEADER = 64 * 1024
_END_S = 5.0
_FOLDER = re.compile(FOLDER_PREFIX + r"([0-9]+)-.+")

BOOTSTRAP = """
import os, sys, tempfile
def take(count):
    data = b""
    while len(data) < count:
        more = os.read(0, min(65536, count - len(data)))
        if not more:
            sys.exit(1)
        data += more
    return data
size = b""
while not size.endswith(b"\\n"):
    size += take(1)
program = take(int(size))
folder = tempfile.mkdtemp(prefix="{prefix}%d-" % os.getpid())
path = os.path.join(folder, "runner.pyz")
with open(path, "wb") as file:
    file.write(program)
os.execv(sys.executable, [sys.executable, path, "{option}", folder])
""".replace("{prefix}", FOLDER_PREFIX).replace("{option}", OPTION)
"""What the board's Python is handed on its command line: it takes this program in and runs it."""


class _HostGone(Exception):
    """The host closed the connection, or sent less than it had announced."""


def serve(folder: Path) -> int:
    """Do one run in a folder of our own, which is gone afterwards; the exit status."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    _sweep(folder.parent)
    try:
        environ = _take_in(folder / "local")
        _send({"kind": "running"})
        _run(folder, environ)
        for path in sorted((folder / "local" / "results").glob("*")):
            if path.is_file() and not path.name.startswith("."):
                _hand_out(path)
        _send({"kind": "done"})
        return 0
    except (_HostGone, BrokenPipeError):
        return 1
    except OSError as error:
        sys.stderr.write(f"the board can't keep what the run needs: {error}\n")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _take_in(local: Path) -> Mapping[str, str]:
    header = json.loads(_line())
    local.mkdir()
    for file in header["files"]:
        name, left = Path(file["name"]).name, int(file["size"])
        with (local / name).open("xb") as out:
            while left:
                data = _take(min(_BLOCK, left))
                out.write(data)
                left -= len(data)
    environ = header["environ"]
    return {str(key): str(value) for key, value in environ.items()}


def _run(folder: Path, environ: Mapping[str, str]) -> None:
    own = {
        **os.environ,
        **environ,
        "NOMAD_TASK_DIR": str(folder / "local"),
        "TMPDIR": str(folder),  # engines leave things there
    }
    child = subprocess.Popen(
        [sys.executable, str(folder / "runner.pyz")],
        cwd=folder,
        env=own,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _watch(child)
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(_END_S)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def _watch(child: "subprocess.Popen[bytes]") -> None:
    """Until the child has ended.

    Raises:
        _HostGone: The host closed the connection first.
    """
    heard = time.monotonic()
    watched: List[int] = [0]
    pidfd: Optional[int] = None
    with contextlib.suppress(OSError, AttributeError):  # Linux before 5.3
        pidfd = os.pidfd_open(child.pid)
        watched.append(pidfd)
    try:
        while child.poll() is None:
            left_s = heard + SILENT_S - time.monotonic()
            if left_s <= 0:
                raise _HostGone
            ready, _, _ = select.select(watched, [], [], left_s if pidfd is not None else 0.5)
            if 0 in ready:
                if not os.read(0, 4096):
                    raise _HostGone
                heard = time.monotonic()
    finally:
        if pidfd is not None:
            os.close(pidfd)


def _hand_out(path: Path) -> None:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        _send({"kind": "file", "name": path.name, "size": size})
        while size:
            data = file.read(min(_BLOCK, size))
            if not data:
                raise _HostGone  # it shrank: what was announced can't be kept
            _write(data)
            size -= len(data)


def _send(message: Dict[str, object]) -> None:
    _write(json.dumps(message).encode() + b"\n")


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _take(count: int) -> bytes:
    ready, _, _ = select.select([0], [], [], SILENT_S)
    data = os.read(0, count) if ready else b""
    if not data:
        raise _HostGone
    return data


def _line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += _take(1)
        if len(line) > _MAX_HEADER:
            raise _HostGone
    return line


def _sweep(folder: Path) -> None:
    """Remove what runs left here that ended without cleaning up."""
    for path in folder.glob(f"{FOLDER_PREFIX}*"):
        match = _FOLDER.fullmatch(path.name)
        with contextlib.suppress(OSError):
            if (
                match
                and path.stat().st_uid == os.getuid()
                and not Path(f"/proc/{match[1]}").exists()
            ):
                shutil.rmtree(path, ignore_errors=True)


def _stop(number: int, frame: Optional[FrameType]) -> None:
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)
