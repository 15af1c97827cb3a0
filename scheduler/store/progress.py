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
    .values(progress=bindparam("reached"))
)


@dataclass(frozen=True, slots=True)
class Tick:
    """The progress of an attempt within its phase."""

    benchmark_id: str
    number: int
    phase: str
    progress: float


class ProgressBuffer:
    """The newest tick of each benchmark that was not written before the last write. Thread-safe.

    What is written stays until the next write: a reader may have read its rows before the one, and
    look here after it.
    """

    def __init__(self, write: Callable[[Sequence[Tick]], object]) -> None:
        """Begin empty; the first tick starts the thread that writes.

        Args:
            write: Writes all of them in one transaction.
        """
        self._write = write
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._ticks: dict[str, Tick] = {}
        self._written: dict[str, Tick] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def note(self, tick: Tick) -> None:
        """Buffer a tick, which is written within about a second."""
        with self._lock:
            self._ticks[tick.benchmark_id] = tick
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="edgeyard-progress", daemon=True
                )
                self._thread.start()

    def of(self, benchmark_id: str) -> Tick | None:
        """Return the newest tick, if it was not written before the last write."""
        return self._ticks.get(benchmark_id) or self._written.get(benchmark_id)

    def on_attempt(self, attempt: Attempt) -> Attempt:
        """Return the attempt with the progress of its newest tick."""
        tick = self.of(attempt.benchmark_id)
        if (
            tick is None
            or (tick.number, tick.phase) != (attempt.number, attempt.phase)
            or attempt.state is not AttemptState.RUNNING
        ):
            return attempt
        return replace(attempt, progress=tick.progress)

    def on_benchmark(self, benchmark: Benchmark) -> Benchmark:
        """Return the benchmark with the progress of its newest tick."""
        tick = self.of(benchmark.benchmark_id)
        if tick is None or tick.phase != benchmark.phase or benchmark.status != Status.RUNNING:
            return benchmark
        return replace(benchmark, progress=tick.progress)

    def flush(self) -> None:
        """Write all buffered ticks.

        Raises:
            EdgeyardError: They could not be written, and stay buffered.
        """
        with self._flushing:
            with self._lock:
                ticks = dict(self._ticks)
            if ticks:
                self._write([tick for _, tick in sorted(ticks.items())])
            with self._lock:
                self._written = ticks
                for benchmark_id, tick in ticks.items():
                    if self._ticks.get(benchmark_id) is tick:
                        del self._ticks[benchmark_id]

    def close(self) -> None:
        """Write all buffered ticks, and end the thread."""
        self._closed.set()
        self._try_flush()
        self._written = {}

    def _run(self) -> None:
        while not self._closed.wait(INTERVAL_S):
            self._try_flush()
            with self._lock:
                if not self._ticks and not self._written:
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


def write_ticks(tx: Transaction, ticks: Sequence[Tick]) -> None:
    """Store the progress of attempts that still run in that phase."""
    tx.lock(tick.benchmark_id for tick in ticks)
    rows = [
        {"id": tick.benchmark_id, "in_phase": tick.phase, "reached": tick.progress}
        for tick in ticks
    ]
    tx.run(_SHOW, rows)
    tx.run(_SAVE, [{**row, "n": tick.number} for row, tick in zip(rows, ticks, strict=True)])
