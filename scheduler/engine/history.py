"""The past as the cycle knows it: read once, then only what is new."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta

from edgeyard.scheduler.model.benchmark import Benchmark, FileRole
from edgeyard.scheduler.model.history import History, past_run
from edgeyard.scheduler.ports import UnitOfWork


class PastRuns:
    """Ended attempts, kept in memory up to a number and an age. Safe on any thread."""

    def __init__(self, most: int = 100_000, max_age_s: float = 365 * 86400.0) -> None:
        """Nothing is read before `read`.

        Args:
            most: The newest up to this many are kept; some 100 bytes each.
            max_age_s: Older ones are forgotten.
        """
        self._most = most
        self._max_age = timedelta(seconds=max_age_s)
        self._lock = threading.Lock()
        self._history = History()
        self._last = 0

    def read(self, uow: UnitOfWork, now: datetime) -> History:
        """All that is known by now; the same value as long as nothing new ended."""
        with self._lock:
            found = uow.attempts.outcomes_after(self._last, newest=self._most)
            if found:
                self._last = found[-1].seq
            runs = [past_run(each) for each in found if each.target_uid is not None]
            grown = self._history.grown(runs, most=self._most, since=now - self._max_age)
            if any(run.replaces for run in runs):
                grown = grown.current()
            self._history = grown
            return self._history


def variant_of(benchmark: Benchmark) -> str:
    """Digest of what else its run time may depend on; "" where it is all left at the defaults."""
    asked = benchmark.description
    data = sorted(
        file.sha256 or file.name for file in benchmark.files if file.role is not FileRole.MODEL
    )
    config = asked.odt_config if isinstance(asked.odt_config, Mapping) else None
    said = (asked.parameters, asked.input, asked.precision, data, config)
    if not any(said):
        return ""
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
