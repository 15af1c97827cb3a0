"""A limited child process on this machine, watched until its end.

The child is forked, not started anew: the parent has loaded neither NumPy nor an engine, so that
a fork costs a millisecond where a second interpreter costs twenty, and works from a zipapp too.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import glob
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Callable, Dict, Mapping, Optional, Sequence, Set, Tuple, Union

MAX_LINE_BYTES = 4 * 1024 * 1024
"""A longer message is not one of ours."""

_PARENT_POLL_INTERVAL_S = 0.5
"""Interval between checks of the parent process on kernels without pidfd (before 5.3)."""

_MAX_POLL_S = 60.0
"""poll takes a C int of milliseconds; waking once a minute costs nothing."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_END_S, _END_POLL_INTERVAL_S = 2.0, 0.005
"""A child that has closed its pipes is ending: it has so long to do so by itself."""

_MAX_ROUNDS = 100
"""Rounds in which what a child left is ended; what is started meanwhile is met in the next one."""

Message = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the child may use.

    Attributes:
        wall_s: How long a run may take.
        silence_s: How long it may go without a message or output.
        cpus: CPUs to stay on; empty: all.
    """

    wall_s: float
    silence_s: float
    cpus: Tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChildExit:
    """How the child ended.

    Attributes:
        exit_code: Its status; None when a signal ended it.
        signal: The signal; None when it exited by itself.
        stopped_for: Why we killed it: ``wall``, ``silence`` or ``orphaned``; None: we did not.
        peak_rss_bytes: Largest resident memory of one of its processes, as the kernel counted it.
    """

    exit_code: Optional[int]
    signal: Optional[int]
    stopped_for: Optional[str]
    peak_rss_bytes: int


class Channel:
    """The child's end of the pipe: one JSON object a line."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def send(self, message: Message) -> None:
        """Write one message; blocks while the parent is behind."""
        data = json.dumps(message, allow_nan=False).encode() + b"\n"
        while data:
            data = data[os.write(self.descriptor, data) :]


def run_limited(
    work: Callable[[Channel], int],
    limits: Limits,
    on_message: Callable[[Message], None],
    on_output: Callable[[bytes], None],
    *,
    parent_pid: Optional[int] = None,
    inherited: Sequence[int] = (),
) -> ChildExit:
    """Run ``work`` in a child process and wait for its end.

    The child has its own session and process group, dies with this process, leaves no core file,
    and keeps to its CPUs. Called on the main thread of a process without other threads that hold
    locks, since it forks. Whatever ends this call, the child is dead afterwards.

    Args:
        work: Runs in the child; what it returns is the exit status.
        on_message: Called with every message that the child sent.
        on_output: Called with what the child wrote to stdout and stderr.
        parent_pid: Process that we must not outlive; see `orphaned`.
        inherited: Descriptors that the child keeps.
    """
    messages, messages_in = os.pipe()
    output, output_in = os.pipe()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # bubblewrap ends before what it runs is collected
    others = _children()
    sys.stdout.flush()  # what is buffered must not come out twice
    sys.stderr.flush()
    gc.freeze()  # else the first collection in the child copies every page of ours
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    me = os.getpid()
    child = os.fork()
    if child == 0:
        _child(work, limits, me, (messages_in, *inherited), output_in, signals)
    try:
        os.close(messages_in)
        os.close(output_in)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        stopped_for = _watch(
            {messages: Lines(on_message), output: on_output}, limits, parent_pid, child
        )
        if stopped_for is None:
            _await_end(child)
    finally:
        status, peak_rss_kib = _end(child, others)
        for descriptor in (messages, output):
            os.close(descriptor)
    return ChildExit(
        exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        stopped_for=stopped_for,
        peak_rss_bytes=peak_rss_kib * 1024,
    )


def orphaned(parent_pid: Optional[int]) -> bool:
    """Return whether the parent process has ended: then this process has another parent."""
    return parent_pid is not None and os.getppid() != parent_pid


def die_with_parent(expected_parent: int) -> None:
    """Have the kernel kill this process when the thread that forked it ends.

    The parent may have died before the call took effect, which the kernel does not report.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != expected_parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _child(
    work: Callable[[Channel], int],
    limits: Limits,
    parent: int,
    kept: Tuple[int, ...],
    output_in: int,
    signals: set[Union[int, signal.Signals]],
) -> None:
    """The child's whole life; never returns."""
    status = 70  # EX_SOFTWARE: `work` did not come to its end
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        os.setsid()
        die_with_parent(parent)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limits.cpus:
            with contextlib.suppress(OSError):  # the report says where it really ran
                os.sched_setaffinity(0, limits.cpus)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output_in, 1), (output_in, 2)):
            os.dup2(source, target)
        # the parent's sockets and log are none of the child's business
        begin = 3
        for descriptor in (*sorted(kept), 4096):
            os.closerange(begin, descriptor)
            begin = descriptor + 1
        output_in = 2
        status = work(Channel(kept[0]))
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        os.write(output_in, traceback.format_exc().encode(errors="replace"))
    finally:
        # no interpreter exit: an engine's destructors may hang, and buffers of ours are empty
        os._exit(status)


class Lines:
    """Cuts what comes through the pipe into messages; what is not one is dropped."""

    def __init__(self, on_message: Callable[[Message], None]) -> None:
        self._on_message = on_message
        self._buffer = b""

    def __call__(self, data: bytes) -> None:
        """Take in what came through."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > MAX_LINE_BYTES:
            self._buffer = b""
        for line in lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict):
                self._on_message(message)


def _watch(
    readers: Dict[int, Callable[[bytes], None]],
    limits: Limits,
    parent_pid: Optional[int],
    child: int,
) -> Optional[str]:
    """Pass on what the child says until it ends; the reason, when it has to be stopped."""
    started = heard = time.monotonic()
    poll = select.poll()
    for descriptor in readers:
        poll.register(descriptor, select.POLLIN)
    parent_fd = _pidfd(parent_pid)
    if parent_fd is not None:
        poll.register(parent_fd, select.POLLIN)
    open_ones = set(readers)
    try:
        while open_ones:
            now = time.monotonic()
            if orphaned(parent_pid):
                return "orphaned"
            if now - started >= limits.wall_s:
                return "wall"
            if now - heard >= limits.silence_s:
                return "silence"
            wait_s = min(started + limits.wall_s, heard + limits.silence_s) - now
            wait_s = min(wait_s, _MAX_POLL_S)
            if parent_pid is not None and parent_fd is None:
                wait_s = min(wait_s, _PARENT_POLL_INTERVAL_S)
            for descriptor, _ in poll.poll(max(1.0, wait_s * 1000)):
                if descriptor not in readers:
                    continue
                heard = time.monotonic()
                data = os.read(descriptor, 65536)
                if data:
                    readers[descriptor](data)
                else:
                    poll.unregister(descriptor)
                    open_ones.discard(descriptor)
    finally:
        if parent_fd is not None:
            os.close(parent_fd)
    return None


def _pidfd(pid: Optional[int]) -> Optional[int]:
    """Return a descriptor that becomes readable when the process ends; None where there is none.

    PR_SET_PDEATHSIG would not do for our own parent: it fires when the *thread* that started us
    ends, and servers start tasks from threads that come and go.
    """
    if pid is None or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _await_end(child: int) -> None:
    """Let a child that is ending do so: killed now, it would not say how it ended."""
    deadline = time.monotonic() + _END_S
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(_END_POLL_INTERVAL_S)


def _children() -> Set[int]:
    """Return the processes whose parent this process is."""
    found: Set[int] = set()
    for listed in glob.glob("/proc/self/task/*/children"):
        with contextlib.suppress(OSError), open(listed, encoding="ascii") as file:
            found.update(map(int, file.read().split()))
    return found


def _end(child: int, others: Set[int]) -> Tuple[int, int]:
    """Kill and collect the child, its group, and what it left to us as orphans.

    Args:
        others: Children of ours that are none of its.

    Returns:
        Status of the child, and the largest resident memory of all of them, KiB.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # a zombie's group still takes signals: an exit status that is already there stays
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    peak_rss_kib = usage.ru_maxrss
    for _ in range(_MAX_ROUNDS):
        orphans = _children() - others
        if not orphans:
            break
        for orphan in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(orphan, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                peak_rss_kib = max(peak_rss_kib, os.wait4(orphan, 0)[2].ru_maxrss)
    return status, peak_rss_kib
