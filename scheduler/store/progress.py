"""Progress of running attempts, written once a second for all of them.

A task reports twice a second, and no report matters after the next one. A synced transaction for
each keeps the disk busy with 38 boards; what is lost in a crash is the last second at most. Changes
of phase and ends do not come here: they are written at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import bindparam, update

from edgeyard.errors import EdgeyardError
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import Benchmark, Status
from edgeyard.scheduler.store.tables import attempts, benchmarks
from edgeyard.scheduler.store.transaction import Transaction

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
"""Minimum time between two writes."""

# Versions stay: who has read one of these may save it all the same.
_SAVE = (
    update(attempts)
    .where(
        attempts.c.benchmark_id == bindparam("id"),
        attempts.c.number == bindparam("n"),
        attempts.c.state == AttemptState.RUNNING.value,
        attempts.c.phase == bindparam("in_phase"),
    )
    .values(progress=bindparam("reached"))
)
_SHOW = (
    update(benchmarks)
    .where(
        benchmarks.c.benchmark_id == bindparam("id"),
        benchmarks.c.status == Status.RUNNING.value,
        benchmarks.c.phase == bindparam("in_phase"),
    )
    .values(progress=bindparam("reached"), progress_message=bindparam("stated"))
)


@dataclass(frozen=True, slots=True)
class PhaseProgress:
    """The progress of an attempt within its phase, and what it reports with it."""

    benchmark_id: str
    number: int
    phase: str
    progress: float
    message: str | None = None


class ProgressBuffer:
    """Buffers the newest progress of each benchmark until it is written. Thread-safe.

    What was written stays here until the next write, because a reader may have read its rows
    before a write and read this buffer after it.
    """

    def __init__(self, write: Callable[[Sequence[PhaseProgress]], object]) -> None:
        """Create an empty buffer; the first `note` starts the thread that writes.

        Args:
            write: Writes all of them in one transaction.
        """
        self._write = write
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._unwritten: dict[str, PhaseProgress] = {}
        self._written: dict[str, PhaseProgress] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def note(self, progress: PhaseProgress) -> None:
        """Buffer the progress of an attempt, which is written within about a second."""
        with self._lock:
            self._unwritten[progress.benchmark_id] = progress
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="edgeyard-progress", daemon=True
                )
                self._thread.start()

    def of(self, benchmark_id: str) -> PhaseProgress | None:
        """Return the newest progress; None if it was written before the last write."""
        return self._unwritten.get(benchmark_id) or self._written.get(benchmark_id)

    def on_attempt(self, attempt: Attempt) -> Attempt:
        """Return the attempt with its newest progress."""
        newest = self.of(attempt.benchmark_id)
        if (
            newest is None
            or (newest.number, newest.phase) != (attempt.number, attempt.phase)
            or attempt.state is not AttemptState.RUNNING
        ):
            return attempt
        return replace(attempt, progress=newest.progress)

    def on_benchmark(self, benchmark: Benchmark) -> Benchmark:
        """Return the benchmark with its newest progress."""
        newest = self.of(benchmark.benchmark_id)
        if newest is None or newest.phase != benchmark.phase or benchmark.status != Status.RUNNING:
            return benchmark
        return replace(benchmark, progress=newest.progress, progress_message=newest.message)

    def flush(self) -> None:
        """Write all buffered progress.

        Raises:
            EdgeyardError: It could not be written, and stays buffered.
        """
        with self._flushing:
            with self._lock:
                newest = dict(self._unwritten)
            if newest:
                self._write([progress for _, progress in sorted(newest.items())])
            with self._lock:
                self._written = newest
                for benchmark_id, progress in newest.items():
                    if self._unwritten.get(benchmark_id) is progress:
                        del self._unwritten[benchmark_id]

    def close(self) -> None:
        """Write all buffered progress, and end the thread."""
        self._closed.set()
        self._try_flush()
        self._written = {}

    def _run(self) -> None:
        while not self._closed.wait(INTERVAL_S):
            self._try_flush()
            with self._lock:
                if not self._unwritten and not self._written:
                    self._thread = None
                    return

    def _try_flush(self) -> None:
        try:
            self.flush()
        except EdgeyardError as error:
            logger.warning(
                "progress of runs could not be stored",
                extra={"event": "progress.failed", "reason": str(error)},
            )
        except Exception:
            logger.exception(
                "storing progress of runs failed unexpectedly", extra={"event": "progress.broke"}
            )


def write_progress(tx: Transaction, newest: Sequence[PhaseProgress]) -> None:
    """Store the progress of attempts that still run in that phase."""
    tx.lock(each.benchmark_id for each in newest)
    rows = [
        {"id": each.benchmark_id, "in_phase": each.phase, "reached": each.progress}
        for each in newest
    ]
    stated = [{**row, "stated": each.message} for row, each in zip(rows, newest, strict=True)]
    tx.run(_SHOW, stated)
    tx.run(_SAVE, [{**row, "n": each.number} for row, each in zip(rows, newest, strict=True)])
