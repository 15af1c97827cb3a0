"""Hand a programme to HiGHS in a process of its own, which is killed when its time is up.

No solver keeps to its time limit at every instant: preprocessing of a large programme does not ask
the clock. So HiGHS gets 80 % of the time by its own option, and its process is killed with all it
started when the whole time is over. What it answers is read up to a limit and checked: a solver
that hangs, crashes, writes nonsense or writes without end costs its time and no more.

HiGHS is SciPy's. The Python process that it runs in is kept for the next programme, because it
takes half a second to start, and replaced after any fault.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.solvers.exchange import STARTED, Programme, SolverAnswer

MIN_TIME_S = 0.02
"""Minimum time limit; with less no solver is started."""

MAX_START_S = 30.0
"""Maximum time in which a worker starts; afterwards it is killed."""

_SOLVE_SHARE = 0.8
"""Share of the time limit for solving; the rest is for writing the result."""

_ITEM_BYTES = 8
"""Of a number in an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a solver.

    One thread and a limit on nodes: unless its time is up a solver gives the same plan each time.

    Attributes:
        time_s: When it is over, the solver's process is killed.
        gap: Relative, at which a plan is good enough.
        nodes: Of the search tree.
        command: Program to start instead of `edgeyard.scheduler.solvers.worker`, with the same
            protocol.
    """

    time_s: float = 1.0
    gap: float = 0.005
    nodes: int = 10_000
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolverResult:
    """What a solver found.

    Attributes:
        chosen: Shape (variables,): which are 1; None: it found nothing.
        optimal: Proven within the gap that was allowed.
        value: Of the objective.
        gap: ``|value - bound| / |value|``; NaN where the solver reported no bound.
        seconds: From its start to its end.
        problem: Why it found nothing; "" otherwise.
    """

    chosen: NDArray[np.bool_] | None = None
    optimal: bool = False
    value: float = np.nan
    gap: float = np.nan
    seconds: float = 0.0
    problem: str = ""


class _SolverError(Exception):
    """A solver gave no answer; the text says why."""


def start_solver() -> None:
    """Start the solver's process unless it was started before, and wait until it is ready.

    So that the time of the first programme, in a cycle, is for solving alone.
    """
    import pulp  # noqa: F401

    _solver.start()


def run(programme: Programme, limits: Limits) -> SolverResult:
    """Solve a programme within its limits; never raises for what a solver does."""
    began = time.monotonic()
    if limits.time_s < MIN_TIME_S:
        return SolverResult(
            problem=f"a time limit of {limits.time_s:.3g} s is too short to start the solver"
        )
    try:
        answer = _answer(programme, limits, began + limits.time_s)
        if answer.chosen is None:
            raise _SolverError("the solver found no plan")
        if not programme.holds(answer.chosen):
            raise _SolverError("the solver returned a solution that breaks a constraint")
    except (_SolverError, OSError) as error:
        return SolverResult(seconds=time.monotonic() - began, problem=str(error))
    value = float(programme.costs[answer.chosen].sum())
    gap = abs(value - answer.bound) / max(abs(value), 1e-12)
    return SolverResult(
        chosen=answer.chosen,
        optimal=answer.proven or gap <= limits.gap,
        value=value,
        gap=0.0 if np.isnan(gap) and answer.proven else gap,
        seconds=time.monotonic() - began,
    )


def _answer(programme: Programme, limits: Limits, deadline_s: float) -> SolverAnswer:
    options = {
        "time_limit": limits.time_s * _SOLVE_SHARE,
        "mip_rel_gap": limits.gap,
        "node_limit": limits.nodes,
    }
    variables = len(programme.costs)
    worker = _Worker(limits.command) if limits.command else _solver
    try:
        answered = worker.ask(pickle.dumps((programme, options)), variables, deadline_s)
        return SolverAnswer.from_bytes(answered, variables)
    except ValueError as error:
        raise _SolverError(f"the solver wrote an answer that cannot be read: {error}") from error
    finally:
        if limits.command:
            worker.close()


class _Worker:
    """A process that solves one programme after another; killed and replaced after a fault."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._is_ready = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the process unless there is one, and wait until it can solve."""
        with self._lock:
            if self._process is None:
                with contextlib.suppress(_SolverError):  # which the first programme reports
                    self._await_start(self._running(), time.monotonic() + MAX_START_S)

    def ask(self, request: bytes, variables: int, deadline_s: float) -> bytes:
        """Send a request and return the answer.

        Args:
            request: The programme and its options.
            variables: Of the programme.
            deadline_s: By the monotonic clock.

        Raises:
            _SolverError: There was none in time.
        """
        if not self._lock.acquire(timeout=max(deadline_s - time.monotonic(), 0.0)):
            raise _SolverError("the solver was solving another programme until the time limit")
        try:
            process = self._running()
            self._await_start(process, deadline_s)
            try:
                _send(process, request, deadline_s)
                return _receive(process, _ITEM_BYTES * (2 + variables), deadline_s)
            except BaseException:
                self._stop()
                self._running()  # ready again for the next programme
                raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """Stop the process."""
        with self._lock:
            self._stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._stop()
            self._process = _started(self._command)
            self._started_s, self._is_ready = time.monotonic(), False
        return self._process

    def _await_start(self, process: subprocess.Popen[bytes], deadline_s: float) -> None:
        """Wait until the process has started. One that still starts at the deadline is kept."""
        if self._is_ready:
            return
        assert process.stdout is not None
        try:
            _wait_for(process.stdout.fileno(), select.POLLIN, deadline_s)
        except _SolverError:
            if time.monotonic() - self._started_s > MAX_START_S:
                self._stop()
            raise _SolverError("the solver had not started before the time limit") from None
        if os.read(process.stdout.fileno(), 1) != STARTED:
            self._stop()
            raise _SolverError("the solver's process ended during its start")
        self._is_ready = True

    def _stop(self) -> None:
        if self._process is not None:
            _kill(self._process)
            self._process = None


_solver = _Worker((sys.executable, "-m", "edgeyard.scheduler.solvers.worker"))
atexit.register(_solver.close)


def _started(command: tuple[str, ...]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,  # a group of its own, which is killed as a whole
        bufsize=0,
    )
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
    return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process with all that it started, and collect it.

    Also where the process itself has ended: what it started may still run. Its group's number can't
    belong to another group before it is collected.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()


def _wait_for(fd: int, event: int, deadline_s: float) -> None:
    """Wait until a pipe can be used.

    Raises:
        _SolverError: The time is up first.
    """
    poll = select.poll()
    poll.register(fd, event)
    left_s = deadline_s - time.monotonic()
    if left_s <= 0.0 or not poll.poll(left_s * 1000.0):
        raise _SolverError("the solver was killed at its time limit")


def _send(process: subprocess.Popen[bytes], data: bytes, deadline_s: float) -> None:
    assert process.stdin is not None
    fd, left = process.stdin.fileno(), memoryview(data)
    while left:
        _wait_for(fd, select.POLLOUT, deadline_s)
        try:
            left = left[os.write(fd, left) :]
        except BrokenPipeError as error:
            raise _SolverError("the solver's process ended") from error


def _receive(process: subprocess.Popen[bytes], size: int, deadline_s: float) -> bytes:
    """Return one answer: its length, and that many bytes, at most ``size``."""
    assert process.stdout is not None
    fd, received = process.stdout.fileno(), bytearray()
    expected = 8
    while len(received) < expected:
        _wait_for(fd, select.POLLIN, deadline_s)
        if not (chunk := os.read(fd, expected - len(received))):
            raise _SolverError("the solver's process ended")
        received += chunk
        if len(received) == 8 == expected:
            length = struct.unpack("<Q", received)[0]
            if not 0 < length <= size:
                raise _SolverError("the solver wrote an answer that cannot be read")
            expected += length
    return bytes(received[8:])
