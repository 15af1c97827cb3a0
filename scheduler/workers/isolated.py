"""The server's side: one scorer in its own process, and the set of all of them."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit
from edgeyard.scheduler.workers.frames import (
    MAX_TEXT_BYTES,
    BrokenFrameError,
    Frame,
    pickled,
    receive,
    send,
)

logger = logging.getLogger(__name__)

Options = Mapping[str, str | int | float | bool]

START_S = 30.0
"""Maximum time for starting an interpreter with NumPy and the scorer on a busy machine."""

MAX_BUDGET_S = 60.0
"""Time limit of a scorer without a budget; the cycle waits for it."""

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONPATH", "OMP_NUM_THREADS", "TMPDIR")
"""Environment variables that a scorer gets; it gets none of the server's settings and secrets."""


class WorkerError(Exception):
    """The scorer of a worker raised, or the worker ended."""


class IsolatedScorer:
    """A scorer in its own process. Thread-safe; calls are made one after another.

    A scorer that takes longer than its time budget is killed with its process, and started again
    behind the scenes: the time of the start counts against the next budget. What it answers is
    read as bare numbers, as many as were asked for.
    """

    def __init__(self, name: str, source: str, options: Options, min_budget_s: float = 0.0) -> None:
        """Start the process, and wait for its greeting.

        Args:
            name: What policies call it.
            source: ``module:attribute`` or ``/path/to/file.py:attribute``.
            options: Arguments to make it with.
            min_budget_s: Time that a call has also where its policy allows less.

        Raises:
            WorkerError: It can't be made, and why.
        """
        self.name = name
        self._min_budget_s = min_budget_s
        self._words = (source, json.dumps(dict(options)))
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._greeted = False
        self._start()
        try:
            greeting = self._greeting(time.monotonic() + START_S)
            self.objective = str(greeting["objective"])[:60]
            self.kind = ScorerKind(str(greeting["kind"]))
            self.unit = ScoreUnit(str(greeting["unit"]))
        except (TimeoutError, KeyError, ValueError) as error:
            self.close()
            raise WorkerError(f"{source} did not start: {error!r}") from error
        except BaseException:
            self.close()
            raise

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """Implement `Scorer.score`.

        Raises:
            TimeoutError: No answer within the budget; the process was killed.
            WorkerError: The scorer raised, or answered what is no answer.
        """
        budget_s = min(max(pairs.budget_s, self._min_budget_s), MAX_BUDGET_S)
        until_s = time.monotonic() + budget_s
        if not self._lock.acquire(timeout=budget_s):
            raise TimeoutError(f"busy with another question for {budget_s:g} s")
        try:
            return self._ask(batch, pairs, until_s)
        except TimeoutError as error:
            self._restart()
            raise TimeoutError(f"no answer within {budget_s:g} s") from error
        except (OSError, EOFError) as error:
            self._restart()
            raise WorkerError("its process ended") from error
        except BrokenFrameError as error:
            self._restart()
            raise WorkerError(str(error)) from error
        finally:
            self._lock.release()

    def close(self) -> None:
        """Kill the process."""
        link, process = self._link, self._process
        self._link = self._process = None
        if link is not None:
            link.close()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _ask(self, batch: Batch, pairs: Pairs, until_s: float) -> NDArray[np.float32]:
        if self._link is None:
            self._start()
        if not self._greeted:
            self._greeting(until_s)
        link = self._link
        assert link is not None
        link.settimeout(max(until_s - time.monotonic(), 0.001))
        send(link, Frame.ASK, *pickled((batch, pairs)))
        max_bytes = max(4 * len(pairs), MAX_TEXT_BYTES)
        kind, data = receive(link, max_bytes=max_bytes, until_s=until_s)
        if kind is Frame.FAILED:
            raise WorkerError(data.decode("utf-8", "replace")[:300])
        if kind is not Frame.SCORES or len(data) % 4:
            raise BrokenFrameError(f"{kind.name.lower()} of {len(data)} bytes where scores go")
        return np.frombuffer(data, dtype="<f4")

    def _greeting(self, until_s: float) -> Mapping[str, object]:
        link = self._link
        assert link is not None
        try:
            kind, data = receive(link, max_bytes=MAX_TEXT_BYTES, until_s=until_s)
        except (EOFError, OSError, BrokenFrameError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise WorkerError("its process ended before it began") from error
        if kind is Frame.FAILED:
            raise WorkerError(data.decode("utf-8", "replace")[:300])
        greeting = json.loads(data)
        if kind is not Frame.HELLO or not isinstance(greeting, dict):
            raise ValueError(f"{kind.name.lower()} instead of a greeting")
        self._greeted = True
        return greeting

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "edgeyard.scheduler.workers.worker",
                    str(theirs.fileno()),
                    *self._words,
                ],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                start_new_session=True,
            )
        self._link, self._greeted = ours, False

    def _restart(self) -> None:
        self.close()
        self._start()
        logger.warning(
            "a scorer was killed and started again",
            extra={"event": "scorer.restarted", "scorer": self.name},
        )


class Workers:
    """All isolated scorers, one process each, even if several policies name one. Thread-safe."""

    def __init__(self, min_budget_s: float = 0.0) -> None:
        """Start no process yet.

        Args:
            min_budget_s: See `IsolatedScorer`.
        """
        self._min_budget_s = min_budget_s
        self._lock = threading.Lock()
        self._scorers: dict[tuple[str, str, str], IsolatedScorer] = {}

    def scorer(self, name: str, source: str, options: Options) -> IsolatedScorer:
        """Return a scorer, and start it if it is not running.

        Raises:
            WorkerError: It can't be made, and why.
        """
        key = (name, source, json.dumps(dict(options), sort_keys=True))
        with self._lock:
            if key not in self._scorers:
                self._scorers[key] = IsolatedScorer(name, source, options, self._min_budget_s)
            return self._scorers[key]

    def close(self) -> None:
        """Kill all processes."""
        with self._lock:
            scorers, self._scorers = self._scorers, {}
        for scorer in scorers.values():
            scorer.close()
