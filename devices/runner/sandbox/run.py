"""Starts a run in its sandbox, and takes its results out of it."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from edgeyard.devices.runner.engine import BoardFacts
from edgeyard.devices.runner.sandbox import seccomp
from edgeyard.devices.runner.sandbox.plan import BUBBLEWRAP, OFF, OUTBOX, Plan
from edgeyard.devices.runner.spec import RunSpec
from edgeyard.devices.runner.transports.local import (
    Channel,
    ChildExit,
    Limits,
    Message,
    run_limited,
)
from edgeyard.errors import RunFailed

MAX_FILES = 256
MAX_RESULT_BYTES = 16 * 2**30
MAX_OPEN_FILES = 1024
MAX_PROCESSES = 128
"""Besides the engine's threads, which count as processes."""

_THREADS_EACH = 4
_SPARE_CPU_S = 60
_BLOCK = 1024 * 1024
_PR_CAPBSET_DROP = 24
_MAX_CAPABILITY = 63

_BOOTSTRAP = """
import json, sys
order = json.load(sys.stdin)
sys.path[:] = order["path"]
from edgeyard.devices.runner.confined import main
main(order)
"""

_IMPORTS = """
from edgeyard.devices.runner import accuracy, conditions, dataset, engines, feeds, measure, task
from edgeyard.devices.runner import training, training_loop, trust
"""
_COMPILE_S = 60.0

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "NOMAD_MEMORY_LIMIT")
_PASSED_ON_PREFIXES = (
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "CUDA_",
    "NVIDIA_",
    "ORT_",
    "TF_",
    "XNNPACK_",
)
"""What engines are set by. Everything else of the runner's environment stays with the runner."""


class ConfinedRun:
    """One run in a process that is confined; see the package.

    Attributes:
        ending: How the process ended; None while it has not.
    """

    def __init__(self, spec: RunSpec, board: BoardFacts, plan: Plan) -> None:
        self._spec, self._board, self._plan = spec, board, plan
        wrapped = plan.method == BUBBLEWRAP
        self._folder = None if wrapped else spec.task_dir / "outbox"
        self._outbox = OUTBOX if wrapped else str(self._folder)
        self._results: Optional[int] = None
        self.ending: Optional[ChildExit] = None

    def run(
        self,
        on_message: Callable[[Message], None],
        on_output: Callable[[bytes], None],
        *,
        parent_pid: Optional[int] = None,
    ) -> ChildExit:
        """Start it and wait for its end; see `run_limited`."""
        spec, board = self._spec, self._board
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(mode=0o700)
        if self._plan.method != OFF:
            _compile(spec.engine)
        if self._plan.uid is not None:
            _let_read(spec.input_paths)
        handover, theirs = socket.socketpair()
        with handover:
            with theirs:
                me = os.getpid()
                ending = run_limited(
                    lambda channel: self._start(channel, theirs.fileno(), me),
                    Limits(
                        wall_s=spec.user_time_s,
                        silence_s=spec.no_output_timeout_s,
                        cpus=board.cpus,
                    ),
                    on_message,
                    on_output,
                    parent_pid=parent_pid,
                    inherited=(theirs.fileno(),),
                )
            handover.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                _, descriptors, _, _ = socket.recv_fds(handover, 64, 1)
                self._results = descriptors[0] if descriptors else None
        self.ending = self._as_ended(ending)
        return self.ending

    def collect(self, names: Sequence[str]) -> List[str]:
        """Copy results into the runner's own folder; the names of those that were there.

        Only plain files are taken, whatever the run put in their place.

        Raises:
            RunFailed: ``user_input``: there are too many, or they are too large. ``board_fault``:
                they can't be written here.
        """
        if self._results is None:
            return []
        limit = self._board.storage_bytes or MAX_RESULT_BYTES
        if len(names) > MAX_FILES:
            raise RunFailed("user_input", f"the run left {len(names)} files; {MAX_FILES} are kept")
        taken: List[str] = []
        for name in dict.fromkeys(names):
            try:
                size = _copy(self._results, name, self._spec.results_dir / name, limit)
            except OSError as error:
                raise RunFailed("board_fault", f"{name!r} can't be kept here: {error}") from error
            if size is not None:
                limit -= size
                taken.append(name)
        return taken

    def close(self) -> None:
        """Remove what the run left."""
        if self._results is not None:
            os.close(self._results)
            self._results = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, channel: Channel, handover: int, parent: int) -> int:
        """In the forked child: become the confined process."""
        order = json.dumps(self._order(channel.descriptor, handover, parent)).encode()
        descriptor = os.memfd_create("order")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(order)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.dup2(descriptor, 0)
        os.close(descriptor)
        for each in (channel.descriptor, handover):
            os.set_inheritable(each, True)
        if self._plan.method not in (BUBBLEWRAP, OFF):
            libc = ctypes.CDLL(None)
            for capability in range(_MAX_CAPABILITY + 1):  # for a runner that is root
                libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        words = [*self._plan.prefix, sys.executable, "-I", "-c", _BOOTSTRAP]
        os.execve(words[0], words, self._environment())

    def _environment(self) -> Dict[str, str]:
        home = "/tmp" if self._plan.method == BUBBLEWRAP else self._outbox
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
        }
        return {**kept, "HOME": home, "TMPDIR": home}

    def _order(self, channel: int, handover: int, parent: int) -> Mapping[str, object]:
        spec, board, plan = self._spec, self._board, self._plan
        # what the runner alone may have: token, addresses, paths of its host
        shown = replace(
            spec, token=None, upload_url="", progress_url=None, out_dir=Path(self._outbox)
        )
        facts = BoardFacts(
            target_uid=board.target_uid,
            family=board.family,
            cpus=board.cpus,
            threads=board.threads,
            duty_cycle=board.duty_cycle,
            ram_bytes=board.ram_bytes,
            emulated=board.emulated,
            energy_s=board.energy_s,
        )
        document = asdict(shown)
        document.update(task_dir=str(spec.task_dir), out_dir=self._outbox)
        board_fields = asdict(facts)
        for name in ("sandbox", "hooks", "ssh", "energy_rail", "energy_command"):
            board_fields.pop(name)
        return {
            "path": [path for path in sys.path if path],
            "parent": parent,
            "channel": channel,
            "handover": handover,
            "method": plan.method,
            "uid": plan.uid,
            "outbox": self._outbox,
            "readable": list(plan.readable),
            "devices": list(plan.devices),
            "filtered": plan.method != OFF and seccomp.available(),
            "limits": self._limits(),
            "spec": document,
            "board": board_fields,
        }

    def _limits(self) -> Dict[str, int]:
        board, plan = self._board, self._plan
        cpus = max(board.threads, len(board.cpus), 1)
        room = plan.scratch_bytes or board.storage_bytes or MAX_RESULT_BYTES
        limits = {
            "CORE": 0,
            "NOFILE": MAX_OPEN_FILES,
            "FSIZE": max(room, self._model_bytes()),  # engines load a sealed copy of the model
            "CPU": int(self._spec.user_time_s * cpus) + _SPARE_CPU_S,
        }
        if plan.method == BUBBLEWRAP:  # elsewhere other processes of the same user would count
            limits["NPROC"] = MAX_PROCESSES + _THREADS_EACH * board.threads
        return limits

    def _model_bytes(self) -> int:
        with contextlib.suppress(OSError):
            return self._spec.path(self._spec.model).stat().st_size
        return 0

    def _as_ended(self, ending: ChildExit) -> ChildExit:
        """Bubblewrap shows a signal by its status."""
        status = ending.exit_code
        if self._plan.method != BUBBLEWRAP or status is None or status <= 128:
            return ending
        number = status - 128
        if number not in signal.valid_signals():
            return ending
        return replace(ending, exit_code=None, signal=number)


def _compile(engine: str) -> None:
    """Have Python keep the compiled modules of the run: a confined run can't, and would be slow.

    Done once; no model is read.
    """
    module = str(Path(__file__).parents[1] / "measure.py")
    compiled = importlib.util.cache_from_source(module)
    if sys.dont_write_bytecode or not os.access(os.path.dirname(module), os.W_OK):
        return
    with contextlib.suppress(OSError):
        if os.path.getmtime(compiled) >= os.path.getmtime(module):
            return
    code = f"import sys\nsys.path[:] = {sys.path!r}\n" + _IMPORTS + f"engines.find({engine!r})\n"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-I", "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMPILE_S,
            env={"PATH": os.defpath},
        )


def _copy(folder: int, name: str, into: Path, limit: int) -> Optional[int]:
    """Copy a file; its size, None where there is no plain file of that name."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        source = os.open(name, flags, dir_fd=folder)
    except OSError:
        return None
    with open(source, "rb") as file:
        facts = os.fstat(source)
        if not stat.S_ISREG(facts.st_mode):
            return None
        if facts.st_size > limit:
            raise RunFailed("user_input", f"the run's file {name!r} is too large to be kept")
        left = facts.st_size
        with into.open("wb") as out:
            while left and (data := file.read(min(_BLOCK, left))):
                out.write(data)
                left -= len(data)
    return facts.st_size


def _let_read(paths: Sequence[Path]) -> None:
    """Inputs must be readable by the run's own user; their folder is still closed to everybody."""
    for path in paths:
        with contextlib.suppress(OSError):
            path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o444)
