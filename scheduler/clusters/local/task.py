"""The task of one job: its folder, files and process, and why it ended."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from edgeyard.devices.model import Board, Sandbox
from edgeyard.devices.runner.engine import BoardFacts
from edgeyard.devices.runner.memory import is_near
from edgeyard.errors import reason_of
from edgeyard.failpoints import failpoint
from edgeyard.scheduler.clusters.exits import failure_of
from edgeyard.scheduler.clusters.local.admission import LocalJob
from edgeyard.scheduler.clusters.local.boards import DATACENTER, HOST_ID
from edgeyard.scheduler.clusters.local.download import Downloader, DownloadFailed
from edgeyard.scheduler.clusters.local.shim import EXIT_NO_COMMAND, tied
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory

LOG_LIMIT_BYTES = 64 << 20
"""A task that writes more is ended, so that its log does not fill the server's disk."""

LOG_CHECK_INTERVAL_S = 5.0
"""Time between two checks of the logs' sizes; nothing else wakes up while a task measures."""

_REFERENCE = re.compile(r"\$\{([A-Za-z0-9_.-]+)\}")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


NO_ROOM = Failure(
    category=FailureCategory.CLUSTER, sentence="no room was left on the server's disk for its task"
)


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a task ended: with success, stopped by Edgeyard, or with a failure.

    One that found no room on the disk is stopped, with a failure that says so.
    """

    failure: Failure | None = None
    stopped: bool = False


class Task:
    """Runs one job on one board, on the thread that calls `run`.

    That thread lives as long as the process: the kernel ends a process whose *thread* of origin
    ends (PR_SET_PDEATHSIG), which is what ties it to the server's life.
    """

    def __init__(
        self,
        job: LocalJob,
        board: Board,
        secrets: Mapping[str, str],
        folder: Path,
        downloader: Downloader,
        sandbox: Sandbox,
    ) -> None:
        self._job = job
        self._board = board
        self._secrets = secrets
        self._folder = folder
        self._downloader = downloader
        self._sandbox = sandbox
        self._alloc_id = str(uuid.uuid4())
        self._node = {
            "node.unique.id": HOST_ID,
            "node.unique.name": HOST_ID,
            "node.datacenter": DATACENTER,
        }
        self._stopping = threading.Event()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def stop(self) -> None:
        """End the task soon. Any thread, any number of times."""
        self._stopping.set()
        with contextlib.suppress(OSError):  # it is over already
            os.eventfd_write(self._wake, 1)

    def run(self, started: Callable[[], None]) -> TaskEnd:
        """Run the task, from the downloads to the end of its process group.

        Args:
            started: Called when the process is there.
        """
        try:
            self._prepare()
            if self._stopping.is_set():
                return TaskEnd(stopped=True)
            return self._execute(started)
        except DownloadFailed as error:
            return TaskEnd(stopped=True) if self._stopping.is_set() else TaskEnd(error.failure)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return TaskEnd(NO_ROOM, stopped=True)
            sentence = f"the task could not be set up: {reason_of(error)}"
            return TaskEnd(Failure(category=FailureCategory.CLUSTER, sentence=sentence))
        finally:
            clean(self._folder)

    def close(self) -> None:
        """Free its descriptor, after `run` has returned and `stop` is not called any more."""
        os.close(self._wake)

    def _prepare(self) -> None:
        for name in ("local", "secrets", "tmp"):
            (self._folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        alloc_file(self._folder).write_text(self._alloc_id)
        failpoint("alloc:made")
        limit = self._board.storage_bytes or None
        for download in self._job.downloads:
            size = self._downloader.fetch(
                download, self._folder / download.path, limit, self._stopping
            )
            limit = None if limit is None else limit - size
        for file in self._job.secret_files:
            path = self._folder / file.path
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lines = "".join(f"{name}={self._secrets[name]}\n" for name in file.names)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as out:
                out.write(lines)
        failpoint("secrets:written")

    def _execute(self, started: Callable[[], None]) -> TaskEnd:
        failpoint("task:before")
        process = self._spawn()
        pidfd = os.pidfd_open(process.pid)
        try:
            failpoint("task:after")
            started()
            overflow = self._wait(process.pid, pidfd)
        finally:
            # Not reaped yet, so that the number still means this group and no other.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            _, waited, usage = os.wait4(process.pid, 0)
            status = process.returncode = os.waitstatus_to_exitcode(waited)
            os.close(pidfd)
        failpoint("task:ended")
        if overflow is not None:
            return TaskEnd(overflow)
        if self._stopping.is_set() and status != 0:
            return TaskEnd(stopped=True)
        reached_limit = is_near(usage.ru_maxrss * 1024, self._board.ram_bytes)
        return TaskEnd(_failure(status, out_of_memory=reached_limit))

    def _spawn(self) -> subprocess.Popen[bytes]:
        local = self._board.local
        cpus = ",".join(map(str, local.cpus)) if local else ""
        env = self._environment()
        values = {**self._node, **env}
        command = [_interpolated(text, values) for text in (self._job.command, *self._job.args)]
        with (
            log_file(self._folder, "stdout").open("ab") as out,
            log_file(self._folder, "stderr").open("ab") as err,
        ):
            return subprocess.Popen(
                tied(command, cpus, self._board.storage_bytes),
                cwd=self._folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        """Return the environment of the task, without the server's own."""
        folder = self._folder
        env = {
            "PATH": _PATH,
            "HOME": str(folder),
            "TMPDIR": str(folder / "tmp"),
            "LANG": "C.UTF-8",
        }
        nomad = {
            "NOMAD_ALLOC_ID": self._alloc_id,
            "NOMAD_ALLOC_DIR": str(folder),
            "NOMAD_TASK_DIR": str(folder / "local"),
            "NOMAD_SECRETS_DIR": str(folder / "secrets"),
            "NOMAD_ALLOC_INDEX": "0",
            "NOMAD_JOB_ID": self._job.job_id,
            "NOMAD_JOB_NAME": self._job.job_id,
            "NOMAD_GROUP_NAME": self._job.group,
            "NOMAD_TASK_NAME": self._job.task,
            "NOMAD_DC": self._node["node.datacenter"],
            **{f"NOMAD_META_{key}": value for key, value in self._job.meta.items()},
        }
        values = {**self._node, **nomad}
        env |= {name: _interpolated(text, values) for name, text in self._job.env.items()}
        env |= nomad
        for file in self._job.secret_files:
            if file.env:
                env |= {name: self._secrets[name] for name in file.names}
        env["EDGEYARD_BOARD"] = json.dumps(asdict(self._facts()))
        return env

    def _facts(self) -> BoardFacts:
        board = self._board
        return BoardFacts(
            target_uid=board.target_uid,
            family=board.family,
            cpus=board.local.cpus if board.local else (),
            threads=board.local.threads if board.local else 1,
            duty_cycle=board.local.duty_cycle if board.local else 1.0,
            ram_bytes=board.ram_bytes or None,
            progress_file=str(progress_file(self._folder)),
            emulated=True,
            hooks=board.hooks,
            storage_bytes=board.storage_bytes or None,
            sandbox=self._sandbox,
            energy_rail=board.energy_rail,
            energy_command=board.energy_command,
        )

    def _wait(self, pid: int, pidfd: int) -> Failure | None:
        """Wait until the process has ended; return a failure if its log became too large."""
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        overflow: Failure | None = None
        kill_at: float | None = None
        while True:
            wait_s = (
                LOG_CHECK_INTERVAL_S if kill_at is None else max(0.0, kill_at - time.monotonic())
            )
            ready = {descriptor for descriptor, _ in poll.poll(wait_s * 1000 + 1)}
            if pidfd in ready:
                return overflow
            if overflow is None and self._log_overflows():
                overflow = Failure(
                    category=FailureCategory.UNKNOWN,
                    sentence=f"its log grew beyond {LOG_LIMIT_BYTES >> 20} MiB",
                )
            if kill_at is None:
                if self._stopping.is_set() or overflow is not None:
                    _signal_group(pid, signal.SIGTERM)
                    kill_at = time.monotonic() + self._job.kill_timeout_s
                    poll.unregister(self._wake)
            elif time.monotonic() >= kill_at:
                _signal_group(pid, signal.SIGKILL)
                kill_at = time.monotonic() + LOG_CHECK_INTERVAL_S  # till the kernel has done it

    def _log_overflows(self) -> bool:
        sizes = [log_file(self._folder, stream).stat().st_size for stream in ("stdout", "stderr")]
        return sum(sizes) > LOG_LIMIT_BYTES


def alloc_file(folder: Path) -> Path:
    """Return the file that holds the allocation's id while the task may live."""
    return folder / "alloc_id"


def log_file(folder: Path, stream: str) -> Path:
    """Return the log file of a stream of the task."""
    return folder / f"{stream}.log"


def progress_file(folder: Path) -> Path:
    """Return the file to which the task writes its progress: one number, 0-100."""
    return folder / "progress"


def read_progress(folder: Path) -> float:
    """Return the task's progress; 0 while it has reported none, or no number."""
    try:
        return min(100.0, max(0.0, float(progress_file(folder).read_text()[:32])))
    except (OSError, ValueError):
        return 0.0


def clean(folder: Path) -> None:
    """Remove everything except the logs."""
    for name in ("local", "secrets", "tmp"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.suffix != ".log":
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def end_orphans(alloc_ids: frozenset[str]) -> None:
    """Kill the processes of allocations whose server has died.

    Tasks die with their server, but what they started in sessions of its own may not have.
    """
    marks = [f"NOMAD_ALLOC_ID={alloc_id}".encode() for alloc_id in alloc_ids]
    for entry in Path("/proc").iterdir() if marks else ():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if set(marks) & set((entry / "environ").read_bytes().split(b"\0")):
                os.kill(int(entry.name), signal.SIGKILL)


def _interpolated(text: str, values: Mapping[str, str]) -> str:
    """Substitute as Nomad's client does: references without a value stay as they are."""
    return _REFERENCE.sub(lambda match: values.get(match.group(1), match.group()), text)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _failure(status: int, *, out_of_memory: bool) -> Failure | None:
    if status == EXIT_NO_COMMAND:
        sentence = "the task's command could not be started; its log says why"
        return Failure(category=FailureCategory.CLUSTER, sentence=sentence)
    return failure_of(max(0, status), signal_number=max(0, -status), out_of_memory=out_of_memory)
