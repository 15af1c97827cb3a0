"""Hand a programme to CBC or HiGHS in a process of its own, which is killed when its time is up.

No solver keeps to its time limit at every instant: preprocessing of a large programme does not ask
the clock. So each solver gets 80 % of its time by its own option, and is killed with all it started
when the whole time is over. What it printed is read up to a limit, what it wrote is checked, and a
solver that hangs, crashes, writes nonsense or prints without end costs its time and no more.

CBC is started for each programme: the program that comes with PuLP. HiGHS is SciPy's; the Python
process that it runs in is kept for the next programme, because it takes half a second to start, and
replaced after any fault.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.solvers.exchange import (
    ANSWER,
    Programme,
    answer_from_bytes,
    programme_to_bytes,
)

SOLVERS = ("cbc", "highs")

MIN_TIME_S = 0.02
"""Minimum time limit; with less no solver is started."""

MAX_START_S = 30.0
"""Maximum time in which a worker starts; afterwards it is killed."""

_SOLVE_SHARE = 0.8
"""Share of the time limit for solving; the rest is for writing the result."""

_MAX_OUTPUT_BYTES = 1 << 20
"""Maximum bytes that a solver may print; one that prints more is killed."""

_MAX_FILE_BYTES = 16 << 20

_BOUND = re.compile(r"^(?:Lower|Upper) bound:\s+(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a solver.

    One thread and a limit on nodes: unless its time is up a solver gives the same plan each time.

    Attributes:
        solver: ``cbc`` or ``highs``.
        time_s: When it is over, the solver's process is killed.
        gap: Relative, at which a plan is good enough.
        nodes: Of the search tree.
        command: Program to start instead of the solver's own, with the same protocol. Tests and
            other builds of the solvers use it.
    """

    solver: str = "cbc"
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


def ready(solver: str) -> str:
    """Return what keeps the solver from being used; "" where nothing does.

    Loads what solving takes, which is slow once: called when a scorer is made, not in a cycle.
    """
    import scipy.optimize
    import scipy.sparse  # noqa: F401

    if solver not in SOLVERS:
        return f"unknown solver {solver!r}: expected one of {', '.join(SOLVERS)}"
    if solver == "cbc" and not os.access(_cbc_path(), os.X_OK):
        return f"PuLP's CBC cannot be executed: {_cbc_path()}; use highs"
    if solver == "highs":
        _highs.start()
    return ""


def run(programme: Programme, limits: Limits) -> SolverResult:
    """Solve a programme within its limits; never raises for what a solver does.

    Raises:
        ValueError: There is no such solver.
    """
    if limits.solver not in SOLVERS:
        raise ValueError(f"unknown solver {limits.solver!r}: expected one of {', '.join(SOLVERS)}")
    began = time.monotonic()
    if limits.time_s < MIN_TIME_S:
        return SolverResult(
            problem=f"a time limit of {limits.time_s:.3g} s is too short to start {limits.solver}"
        )
    try:
        solve = _cbc if limits.solver == "cbc" else _solve_with_highs
        chosen, bound, proven = solve(programme, limits, began + limits.time_s)
        value = float(programme.costs[chosen].sum())
        if not programme.holds(chosen):
            raise _SolverError(f"{limits.solver} returned a solution that breaks a constraint")
    except (_SolverError, OSError) as error:
        return SolverResult(seconds=time.monotonic() - began, problem=str(error))
    gap = abs(value - bound) / max(abs(value), 1e-12)
    return SolverResult(
        chosen=chosen,
        optimal=proven or gap <= limits.gap,
        value=value,
        gap=0.0 if np.isnan(gap) and proven else gap,
        seconds=time.monotonic() - began,
    )


def _cbc_path() -> str:
    from pulp.apis.coin_api import pulp_cbc_path  # the CBC that PuLP brings

    return str(pulp_cbc_path)


def _cbc(
    programme: Programme, limits: Limits, deadline_s: float
) -> tuple[NDArray[np.bool_], float, bool]:
    """Return which variables are 1, the bound (NaN for none), and whether it is proven optimal."""
    with tempfile.TemporaryDirectory(prefix="edgeyard-cbc-") as folder:
        model, solution = Path(folder) / "model.mps", Path(folder) / "solution.txt"
        model.write_text(programme.as_mps())
        arguments = [
            *(limits.command or (_cbc_path(),)),
            str(model),
            *("-sec", f"{limits.time_s * _SOLVE_SHARE:.3f}", "-timeMode", "elapsed"),
            *("-ratio", f"{limits.gap:g}", "-maxN", str(limits.nodes), "-threads", "1"),
            *("-branch", "-solution", str(solution)),
        ]
        process = _started(arguments, folder)
        try:
            printed = _read_to_end(process, deadline_s)
        finally:
            _kill(process)
        if process.returncode:
            raise _SolverError(f"cbc ended with status {process.returncode}")
        if not solution.is_file():
            raise _SolverError("cbc wrote no solution")
        with solution.open("rb") as file:
            written = file.read(_MAX_FILE_BYTES).decode(errors="replace")
    chosen, proven = _solution_of(written, len(programme.costs))
    bounds = _BOUND.findall(printed)
    try:
        bound = float(bounds[-1]) if bounds else np.nan
    except ValueError:
        bound = np.nan
    return chosen, bound, proven and not bounds


def _solution_of(written: str, variables: int) -> tuple[NDArray[np.bool_], bool]:
    """Read CBC's solution file: a status, then a line for each variable that is not 0."""
    status, _, rest = written.partition("\n")
    if "nfeasible" in status or "no integer solution" in status or " - " not in status:
        raise _SolverError(f"cbc found no plan: {status[:80]!r}")
    chosen = np.zeros(variables, dtype=np.bool_)
    for line in rest.splitlines():
        words = line.replace("**", "").split()
        try:
            row, value = int(words[1].removeprefix("C")), float(words[2])
        except (IndexError, ValueError) as error:
            raise _SolverError(
                f"cbc wrote a solution that cannot be read: {line[:80]!r}"
            ) from error
        if not 0 <= row < variables:
            raise _SolverError(f"cbc wrote a variable that does not exist: {line[:80]!r}")
        chosen[row] = value > 0.5
    return chosen, status.startswith("Optimal")


class _Worker:
    """A process that solves one programme after another; killed and replaced after a fault."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._is_ready = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the process, so that it is there when it is needed."""
        with self._lock:
            self._running()

    def ask(self, request: bytes, size: int, deadline_s: float) -> bytes:
        """Send a request and return the answer.

        Args:
            request: The programme.
            size: Of the longest answer.
            deadline_s: By the monotonic clock.

        Raises:
            _SolverError: There was none in time.
        """
        if not self._lock.acquire(timeout=max(deadline_s - time.monotonic(), 0.0)):
            raise _SolverError("highs was solving another programme until the time limit")
        try:
            process = self._running()
            self._await_start(process, deadline_s)
            try:
                _send(process, request, deadline_s)
                return _receive(process, size, deadline_s)
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
            self._process = _started([*self._command], None, asks=True)
            self._started_s, self._is_ready = time.monotonic(), False
        return self._process

    def _await_start(self, process: subprocess.Popen[bytes], deadline_s: float) -> None:
        """Wait until the process has started: it sends one byte. One that still starts is kept."""
        if self._is_ready:
            return
        assert process.stdout is not None
        try:
            _wait_for(process.stdout.fileno(), select.POLLIN, deadline_s)
        except _SolverError:
            if time.monotonic() - self._started_s > MAX_START_S:
                self._stop()
            raise _SolverError("highs had not started before the time limit") from None
        if os.read(process.stdout.fileno(), 1) != b"+":
            self._stop()
            raise _SolverError("the solver's process ended during its start")
        self._is_ready = True

    def _stop(self) -> None:
        if self._process is not None:
            _kill(self._process)
            self._process = None


_highs = _Worker((sys.executable, "-m", "edgeyard.scheduler.solvers.highs_worker"))
atexit.register(_highs.close)


def _solve_with_highs(
    programme: Programme, limits: Limits, deadline_s: float
) -> tuple[NDArray[np.bool_], float, bool]:
    """Return the same as `_cbc`."""
    request = programme_to_bytes(
        programme, time_s=limits.time_s * _SOLVE_SHARE, gap=limits.gap, nodes=limits.nodes
    )
    size = ANSWER.size + len(programme.costs)
    worker = _Worker(limits.command) if limits.command else _highs
    try:
        answered = worker.ask(request, size, deadline_s)
    finally:
        if limits.command:
            worker.close()
    try:
        answer = answer_from_bytes(answered, len(programme.costs))
    except ValueError as error:
        raise _SolverError(f"highs wrote an answer that cannot be read: {error}") from error
    if answer.chosen is None:
        raise _SolverError("highs found no plan")
    return answer.chosen, answer.bound, answer.proven


def _started(
    arguments: list[str], folder: str | None, *, asks: bool = False
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        arguments,
        cwd=folder,
        stdin=subprocess.PIPE if asks else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if asks else subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,  # a group of its own, which is killed as a whole
        bufsize=0,
    )
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(OSError):  # it has ended already
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (_MAX_FILE_BYTES,) * 2)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
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


def _read_to_end(process: subprocess.Popen[bytes], deadline_s: float) -> str:
    """Return what the process prints until it ends."""
    assert process.stdout is not None
    fd, printed = process.stdout.fileno(), bytearray()
    while True:
        _wait_for(fd, select.POLLIN, deadline_s)
        if not (chunk := os.read(fd, 1 << 16)):
            break
        printed += chunk
        if len(printed) > _MAX_OUTPUT_BYTES:
            raise _SolverError(
                f"the solver was killed: it printed more than {_MAX_OUTPUT_BYTES} bytes"
            )
    # The end of its output is the end of the process, unless it closed it itself.
    while process.poll() is None:
        if time.monotonic() >= deadline_s:
            raise _SolverError("the solver was killed at its time limit")
        time.sleep(0.0005)
    return printed.decode(errors="replace")


def _send(process: subprocess.Popen[bytes], data: bytes, deadline_s: float) -> None:
    assert process.stdin is not None
    fd, left = process.stdin.fileno(), memoryview(struct.pack("<Q", len(data)) + data)
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
                raise _SolverError("highs wrote an answer that cannot be read")
            expected += length
    return bytes(received[8:])
