"""The past as the cycle knows it: read once, then only what is new."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta

from edgeyard.scheduler.model.benchmark import Benchmark
from edgeyard.scheduler.model.history import History, with_load
from edgeyard.scheduler.model.run_bounds import load_s
from edgeyard.scheduler.ports import UnitOfWork


class PastRuns:
    """Ended attempts, kept in memory up to a number and an age. Safe on any thread."""

    def __init__(self, max_runs: int = 100_000, max_age_s: float = 365 * 86400.0) -> None:
        """Start without runs; `load` and `read` read them.

        Args:
            max_runs: How many of the newest are kept; some 100 bytes each.
            max_age_s: Older ones are dropped.
        """
        self._max_runs = max_runs
        self._max_age = timedelta(seconds=max_age_s)
        self._lock = threading.Lock()
        self._history = History()
        self._last = 0

    def load(self, uow: UnitOfWork, now: datetime) -> None:
        """Read the past for the first time; `read` does not wait for it meanwhile."""
        with self._lock:
            self._read(uow, now)

    def read(self, uow: UnitOfWork, now: datetime) -> History:
        """Return all that is known by now; the same value as long as nothing new ended.

        While another thread reads, what was known before is returned at once: after a start with
        a long past, no request waits for it.
        """
        if self._lock.acquire(blocking=False):
            try:
                self._read(uow, now)
            finally:
                self._lock.release()
        return self._history

    def _read(self, uow: UnitOfWork, now: datetime) -> None:
        runs = uow.attempts.past_runs_after(self._last, newest=self._max_runs)
        self._last = runs.seqs[-1] if runs else self._last
        extended = self._history.extended(runs, max_runs=self._max_runs, since=now - self._max_age)
        self._history = extended.current() if any(runs.replaces) else extended


def variant_of(benchmark: Benchmark) -> str:
    """Return a digest of all else that its run time may depend on; "" with the defaults."""
    description = benchmark.description
    data = sorted(file.sha256 or file.name for file in benchmark.files if not file.role.is_model)
    config = description.odt_config if isinstance(description.odt_config, Mapping) else None
    parts: list[object] = [
        description.parameters,
        description.input,
        description.precision,
        data,
        config,
    ]
    if description.soak_s is not None:
        parts.append((description.soak_s, description.soak_window_s))
    if description.concurrency:
        parts.append(description.concurrency)
    if description.load_rules is not None:
        parts.append(str(description.load_rules))
    if not any(parts):
        return ""
    text = json.dumps(parts, sort_keys=True, default=str)
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return with_load(load_s(description), digest)
