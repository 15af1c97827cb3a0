"""A run on a board that is reached by ssh: one session, over which everything goes.

The runner's one-file program, the model and the data go there, progress and the log come back as
they happen, the result at the end; the board needs no way to the server, and is told no token.
When this process ends, however it does, the session ends with it, and the board cleans up:
`edgeyard.devices.runner.behind_host`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import shlex
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional

import edgeyard
from edgeyard.devices.model import SshAddress
from edgeyard.devices.runner.behind_host import BOOTSTRAP, HEARTBEAT_S
from edgeyard.devices.runner.result import REPORT
from edgeyard.devices.runner.spec import RunSpec
from edgeyard.devices.runner.transports.local import die_with_parent, orphaned
from edgeyard.devices.ssh import ssh_command
from edgeyard.errors import RunFailed

STALLED_S = 60.0
"""A board that takes nothing in for so long, or says nothing after its run's time, is given up."""

_LOOK_S = 0.5  # for our parent
_BLOCK = 256 * 1024
_MAX_LINE = 1024 * 1024
_MOST_RESULTS_BYTES = 16 * 2**30
_TAIL_CHARACTERS = 300
_SSH_FAILED = 255
_MOST_RESULTS = 256
_MOST_REPORT_BYTES = 64 * 1024**2
"""It is read into memory; what is big belongs into files of its own."""

_NOT_FOUND = (126, 127)
_FACTS = ("target_uid", "family", "cpus", "threads", "ram_bytes", "emulated")
"""What the board is told of itself: no address, no hooks, no paths of its host."""

_PASSED_ON = (
    "NOMAD_ALLOC_ID",
    "NOMAD_NODE_ID",
    "TARGET",
    "RUNTIME",
    "VERSION_TAG",
    "NB_INFERENCE",
    "BENCHMARK_TYPE",
    "MODEL_FILENAME",
    "DATASET_FILENAME",
    "ODT_CONFIG_FILENAME",
)
"""Of the task's environment: all of the platform's variables but where results go."""

OnMessage = Callable[[Mapping[str, object]], None]
OnOutput = Callable[[bytes], None]


class Orphaned(Exception):
    """The process that started us is gone."""


def run_on_board(
    spec: RunSpec,
    address: SshAddress,
    environ: Mapping[str, str],
    on_message: OnMessage,
    on_output: OnOutput,
    *,
    parent_pid: Optional[int] = None,
) -> None:
    """Run there, and bring what it wrote into ``spec.results_dir``.

    Args:
        environ: Of our task: what the board may know of it goes there.
        on_message: Called with every progress message of the board.
        on_output: Called with what is logged there.
        parent_pid: Process that we must not outlive.

    Raises:
        RunFailed: ``network``: the board could not be reached, or the link was cut.
            ``board_fault``: it could not run our program, or handed nonsense back.
        Orphaned: See ``parent_pid``; everything was ended.
    """
    command = f"exec {shlex.quote(address.python)} -u -c {shlex.quote(BOOTSTRAP)}"
    me = os.getpid()
    try:
        session = subprocess.Popen(
            ssh_command(address, command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            preexec_fn=lambda: die_with_parent(me),
        )
    except OSError as error:
        raise RunFailed("board_fault", f"the board's host can't start ssh: {error}") from error
    link = _Link(session, address, on_output, parent_pid)
    try:
        for piece in _parcel(spec, environ):
            link.send(piece)
        _receive(link, spec, on_message)
    finally:
        link.close()


def _parcel(spec: RunSpec, environ: Mapping[str, str]) -> Iterator[bytes]:
    """Program, header and files."""
    program = _program()
    yield f"{len(program)}\n".encode() + program
    # as the host's plugin said it: what it left open, such as threads, the board knows itself
    told = json.loads(environ["EDGEYARD_BOARD"])
    facts = {key: told[key] for key in _FACTS if key in told}
    document = _document(spec)
    paths = _artifacts(spec)
    files: List[Dict[str, object]] = [{"name": "spec.json", "size": len(document)}]
    files += [{"name": path.name, "size": path.stat().st_size} for path in paths]
    passed_on = {key: environ[key] for key in _PASSED_ON if key in environ}
    header = {
        "environ": {**passed_on, "EDGEYARD_BOARD": json.dumps({**facts, "streams": True})},
        "files": files,
    }
    yield json.dumps(header).encode() + b"\n" + document
    for path, announced in zip(paths, files[1:], strict=True):
        left = announced["size"]
        assert isinstance(left, int)
        with path.open("rb") as file:
            while left:
                data = file.read(min(_BLOCK, left))
                if not data:
                    raise RunFailed("network", f"{path.name} shrank while it was copied")
                yield data
                left -= len(data)


def _artifacts(spec: RunSpec) -> List[Path]:
    """The files that the run needs, and no other of the task's folder."""
    names = [spec.model.filename, *(file.filename for file in spec.datasets)]
    if spec.odt_config is None and spec.odt_config_filename:
        names.append(Path(spec.odt_config_filename).name)
    return [path for name in dict.fromkeys(names) if (path := spec.task_dir / name).is_file()]


def _document(spec: RunSpec) -> bytes:
    """``spec.json`` for the board: as ours, but its results stay there till we fetch them."""
    try:
        document = json.loads((spec.task_dir / "spec.json").read_bytes())
    except FileNotFoundError:  # a host that sets only the platform's variables
        document = {}
    ids = {"benchmark_id": spec.benchmark_id, "job_id": spec.job_id}  # told by the URL, perhaps
    return json.dumps({**document, **ids, "upload_url": "", "progress_url": ""}).encode()


def _program() -> bytes:
    """The runner as one file: ourselves, where we are that file."""
    home = Path(edgeyard.__file__).parents[1]
    if home.is_file():
        return home.read_bytes()
    from edgeyard.devices.runner import pyz

    with tempfile.TemporaryDirectory(prefix="edgeyard-pyz-") as folder:
        return pyz.build(Path(folder) / "runner.pyz").read_bytes()


def _receive(link: "_Link", spec: RunSpec, on_message: OnMessage) -> None:
    patience_s = spec.user_time_s + 2 * STALLED_S
    received = files = 0
    spec.results_dir.mkdir(parents=True, exist_ok=True)
    while True:
        message = _message(link.line(patience_s))
        kind = message.get("kind")
        if kind == "done":
            return
        if kind == "progress":
            on_message({"kind": kind, "phase": message.get("phase"), "percent": _percent(message)})
        elif kind == "file":
            name, size = message.get("name"), message.get("size")
            if not _is_plain(name) or not isinstance(size, int) or size < 0:
                raise RunFailed("board_fault", "the board handed back a file without a plain name")
            received += size
            files += 1
            most = _MOST_REPORT_BYTES if name == REPORT else _MOST_RESULTS_BYTES
            if size > most or received > _MOST_RESULTS_BYTES or files > _MOST_RESULTS:
                raise RunFailed("board_fault", "the board handed back more than can be kept")
            part = spec.results_dir / ".part"
            with part.open("wb") as file:
                link.copy(size, file.write)
            part.replace(spec.results_dir / str(name))
        elif kind != "running":
            raise RunFailed("board_fault", "the board said something that is not ours")


def _percent(message: Mapping[str, object]) -> float:
    percent = message.get("percent")
    if not isinstance(percent, (int, float)) or math.isnan(percent):
        return 0.0
    return float(min(100.0, max(0.0, percent)))


def _is_plain(name: object) -> bool:
    return (
        isinstance(name, str)
        and 0 < len(name.encode("utf-8", "replace")) <= 255
        and name == Path(name).name
        and not name.startswith(".")
        and "\0" not in name
    )


def _message(line: bytes) -> Mapping[str, object]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise RunFailed("board_fault", "the board said something that is not ours")
    return message


class _Link:
    """The session: sends without waiting for ever, hears stdout and stderr, keeps itself heard."""

    def __init__(
        self,
        session: "subprocess.Popen[bytes]",
        address: SshAddress,
        on_output: OnOutput,
        parent_pid: Optional[int],
    ) -> None:
        assert session.stdin is not None
        assert session.stdout is not None
        assert session.stderr is not None
        self._session = session
        self._address = address
        self._on_output = on_output
        self._parent_pid = parent_pid
        self._in, self._out = session.stdin.fileno(), session.stdout.fileno()
        self._err: Optional[int] = session.stderr.fileno()
        self._heard = b""
        self._tail = ""
        self._beat_at = time.monotonic() + HEARTBEAT_S
        os.set_blocking(self._in, False)

    def send(self, data: bytes) -> None:
        """All of it.

        Raises:
            RunFailed: The board is gone, or takes nothing in.
            Orphaned: Our parent is gone.
        """
        until = time.monotonic() + STALLED_S
        while data:
            if self._look(until, writing=True):
                try:
                    data = data[os.write(self._in, data) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    raise self._lost() from None
                until = time.monotonic() + STALLED_S

    def line(self, patience_s: float) -> bytes:
        """The next line that the board says; raises as `send`."""
        until = time.monotonic() + patience_s
        while b"\n" not in self._heard:
            if len(self._heard) > _MAX_LINE:
                raise RunFailed("board_fault", "the board said something that is not ours")
            self._hear(until)
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def copy(self, count: int, write: Callable[[bytes], object]) -> None:
        """The next bytes that the board sends; raises as `send`."""
        while count:
            if not self._heard:
                self._hear(time.monotonic() + STALLED_S)
            data, self._heard = self._heard[:count], self._heard[count:]
            write(data)
            count -= len(data)

    def close(self) -> None:
        """Hang up; the board ends the run and cleans up."""
        for pipe in (self._session.stdin, self._session.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        try:
            self._session.wait(1.0)
        except subprocess.TimeoutExpired:
            self._session.kill()
            self._session.wait()
        if self._session.stderr is not None:
            self._session.stderr.close()

    def _hear(self, until: float) -> None:
        while True:
            if self._look(until, writing=False):
                data = os.read(self._out, _BLOCK)
                if not data:
                    raise self._lost()
                self._heard += data
                return

    def _look(self, until: float, *, writing: bool) -> bool:
        """Wait for a moment; whether the pipe that is asked for is ready."""
        now = time.monotonic()
        if now >= until:
            raise RunFailed("network", f"the board at {self._where()} does not answer any more")
        if orphaned(self._parent_pid):
            raise Orphaned
        if not writing and now >= self._beat_at:
            self._beat_at = now + HEARTBEAT_S
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(self._in, b".")
        reading = [] if writing else [self._out]
        errors = [] if self._err is None else [self._err]
        ready, writable, _ = select.select(
            reading + errors, [self._in] if writing else [], [], min(_LOOK_S, until - now)
        )
        if self._err in ready:
            self._hear_errors()
        return bool(writable) if writing else self._out in ready

    def _hear_errors(self) -> None:
        if self._err is None:
            return
        data = os.read(self._err, _BLOCK)
        if not data:
            self._err = None
            return
        self._tail = (self._tail + data.decode("utf-8", "replace"))[-_TAIL_CHARACTERS:]
        self._on_output(data)

    def _lost(self) -> RunFailed:
        """What the end of the session means."""
        try:
            status = self._session.wait(5.0)
        except subprocess.TimeoutExpired:
            status = _SSH_FAILED
        while self._err is not None:
            ready, _, _ = select.select([self._err], [], [], 0.5)
            if not ready:
                break
            self._hear_errors()
        said = " ".join(self._tail.split())
        where = self._where()
        if status in _NOT_FOUND:
            return RunFailed(
                "board_fault", f"the board at {where} has no {self._address.python}: {said}"
            )
        if status == _SSH_FAILED and "Host key verification failed" in said:
            return RunFailed(
                "board_fault",
                f"the board at {where} shows a host key that is not the known one, and was sent "
                f"nothing: find out why before you change {self._known_hosts()}",
            )
        if status == _SSH_FAILED and "Permission denied" in said:
            return RunFailed(
                "board_fault",
                f"the board at {where} does not let us in: see user and identity_file of its ssh "
                f"entry in the boards file ({said})",
            )
        if status == _SSH_FAILED or status < 0:
            why = said or "the connection was cut"
            return RunFailed("network", f"the board at {where} can't be reached: {why}")
        why = said or "it said nothing"
        return RunFailed("board_fault", f"the board at {where} ended the session: {why}")

    def _known_hosts(self) -> str:
        return self._address.known_hosts_file or "ssh's known_hosts"

    def _where(self) -> str:
        return f"{self._address.host} port {self._address.port}"
