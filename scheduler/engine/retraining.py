"""Trainings of models from the lab's history, each in a process of its own.

The process limits its memory, processor time and priority itself, and registers what it learned in
the store. The server only starts it, notes its end, and can end it: no decision waits for it. Its
command ties its life to the server's: a training whose server dies is killed, and leaves nothing of
the model that it was at. The next one trains that model again.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from queue import SimpleQueue
from typing import IO

from edgeyard.errors import Conflict, Unavailable, reason_of
from edgeyard.scheduler.engine.metrics import Observe
from edgeyard.scheduler.ports import Clock

logger = logging.getLogger(__name__)

FIRST_AFTER_S = 300.0
"""Minimum time from the start of a server to its first training."""

CHECK_S = 1.0
"""Interval between checks of the process and the training interval."""

STOP_S = 5.0
"""Longest wait for a training that was asked to end, before it is killed."""

_MAX_MESSAGE_BYTES = 2_000

NOTHING_LEARNED = 2
"""Exit code of a training that registered no model, for example because too few runs ended."""

_RESULTS = {0: "learned", NOTHING_LEARNED: "nothing_learned"}

TRAINING_RESULTS = (*_RESULTS.values(), "failed", "stopped")
"""How a training can end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """The last training of this server.

    Attributes:
        running: Whether it has not ended yet.
        began_at: None: there was none since the server started.
        ended_at: None: it runs, or there was none.
        result: One of `TRAINING_RESULTS`; "": no end yet.
        message: What it reported last, for people.
    """

    running: bool = False
    began_at: datetime | None = None
    ended_at: datetime | None = None
    result: str = ""
    message: str = ""


class Retraining:
    """Starts, watches and ends trainings, one at a time. Thread-safe."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        clock: Clock,
        observe: Observe,
    ) -> None:
        """Start nothing yet.

        Args:
            command: Of the training; exits with 0, or with `NOTHING_LEARNED`.
            environment: Of its process, whole.
            clock: The server's.
            observe: Takes metrics.
        """
        self._command, self._environment = list(command), dict(environment)
        self._clock, self._observe = clock, observe
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._waiter: threading.Thread | None = None
        self._log: IO[bytes] | None = None
        self._stopping = self._closed = False
        self._state = TrainingState()
        self._last_s = clock.monotonic_s()

    @property
    def state(self) -> TrainingState:
        """The last training, as it is now."""
        with self._lock:
            self._reap()
            return self._state

    def run_if_due(self, every_s: float) -> None:
        """Note the end of a training, and begin the next one when its time has come.

        Args:
            every_s: Between two beginnings, or from the last `stop`; 0: never.
        """
        with self._lock:
            self._reap()
            if self._process is not None or every_s <= 0.0 or self._closed:
                return
            first = self._state.began_at is None
            wait_s = min(every_s, FIRST_AFTER_S) if first else every_s
            if self._clock.monotonic_s() - self._last_s >= wait_s:
                self._begin()

    def begin(self) -> TrainingState:
        """Begin a training now.

        Raises:
            Conflict: One is running, or the server stops.
            Unavailable: Its process can't be started.
        """
        with self._lock:
            self._reap()
            if self._process is not None:
                raise Conflict("a training is running already: wait for its end, or stop it")
            if self._closed:
                raise Conflict("the server is stopping: begin the training after its next start")
            self._begin()
            if not self._state.running:
                raise Unavailable(self._state.message)
            return self._state

    def stop(self) -> TrainingState:
        """End the running training; what it registered before stays.

        Raises:
            Conflict: None is running.
        """
        with self._lock:
            self._reap()
            if self._process is None:
                raise Conflict("no training is running")
            self._end()
            self._last_s = self._clock.monotonic_s()
            return self._state

    def leave(self) -> None:
        """End a training that runs, because another server leads: that one begins the next."""
        with self._lock:
            self._reap()
            if self._process is not None:
                self._end()

    def close(self) -> None:
        """End a training that runs, because the server stops; none begins afterwards."""
        with self._lock:
            self._closed = True
            self._reap()
            if self._process is not None:
                self._end()

    def _begin(self) -> None:
        self._last_s = self._clock.monotonic_s()
        self._stopping = False
        self._state = TrainingState(began_at=self._clock.now())
        try:
            log = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
        except OSError as error:
            self._fail(error)
            return
        started: SimpleQueue[subprocess.Popen[bytes] | OSError] = SimpleQueue()
        self._waiter = threading.Thread(
            target=self._run, args=(log, started), name="edgeyard-training"
        )
        self._waiter.start()
        found = started.get()
        if isinstance(found, OSError):
            self._waiter.join()
            log.close()
            self._fail(found)
            return
        self._process, self._log = found, log
        self._state = replace(self._state, running=True)
        logger.info("training began", extra={"event": "training.began"})

    def _run(self, log: IO[bytes], started: SimpleQueue[subprocess.Popen[bytes] | OSError]) -> None:
        """Start the process, and outlive it: the kernel kills it when this thread ends."""
        try:
            process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            started.put(error)
            return
        started.put(process)
        with suppress(ChildProcessError):  # another thread was first
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    def _end(self) -> None:
        process = self._process
        assert process is not None
        self._stopping = True
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._reap()

    def _reap(self) -> None:
        """Note the end of the process, if it has ended."""
        process, log, waiter = self._process, self._log, self._waiter
        if process is None or log is None or (code := process.poll()) is None:
            return
        if waiter is not None:
            waiter.join()
        log.seek(max(log.seek(0, 2) - _MAX_MESSAGE_BYTES, 0))
        message = log.read().decode("utf-8", "replace").strip()
        log.close()
        self._process = self._log = self._waiter = None
        result = "stopped" if self._stopping else _RESULTS.get(code, "failed")
        if result == "failed":
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            message = f"it ended with {how}: {message or 'it reported nothing'}"
        self._finish(result, message)

    def _fail(self, error: OSError) -> None:
        self._finish("failed", f"the training can't be started: {reason_of(error)}")

    def _finish(self, result: str, message: str) -> None:
        self._state = replace(
            self._state,
            running=False,
            ended_at=self._clock.now(),
            result=result,
            message=message,
        )
        self._observe("trainings_total", 1, {"result": result})
        logger.log(
            logging.ERROR if result == "failed" else logging.INFO,
            "training ended",
            extra={"event": "training.ended", "result": result, "report": message},
        )
