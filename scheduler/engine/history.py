"""The past as the cycle knows it: read once, then only what is new."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta

from edgeyard.scheduler.model.attempt import Outcome
from edgeyard.scheduler.model.benchmark import Benchmark, BenchmarkType, FileRole
from edgeyard.scheduler.model.history import History, PastRun, RunKind
from edgeyard.scheduler.ports import UnitOfWork

_OVERLAP = timedelta(minutes=2)
"""Read again each time: a transaction may commit later than another whose end is after its own."""


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
        self._seen: dict[tuple[str, int], datetime] = {}
        self._until: datetime | None = None

    def read(self, uow: UnitOfWork, now: datetime) -> History:
        """All that is known by now; the same value as long as nothing new ended."""
        with self._lock:
            oldest = now - self._max_age
            since = oldest if self._until is None else max(self._until - _OVERLAP, oldest)
            limit = self._most if self._until is None else None
            found = uow.attempts.outcomes(since=since, newest=limit)
            new = [each for each in found if (each.benchmark_id, each.attempt) not in self._seen]
            if found:
                self._until = max(found[-1].ended_at, self._until or found[-1].ended_at)
            if new:
                horizon = (self._until or now) - 2 * _OVERLAP
                for each in new:
                    self._seen[each.benchmark_id, each.attempt] = each.ended_at
                self._seen = {key: at for key, at in self._seen.items() if at >= horizon}
            runs = [past_run(each) for each in new if each.target_uid is not None]
            self._history = self._history.grown(runs, most=self._most, since=oldest)
            return self._history


def past_run(outcome: Outcome) -> PastRun:
    """What the history keeps of an outcome."""
    return PastRun(
        benchmark_id=outcome.benchmark_id,
        user_id=outcome.user_id,
        target_uid=outcome.target_uid or "",
        family=outcome.family,
        kind=RunKind(
            engine=outcome.engine,
            benchmark_type=BenchmarkType(outcome.benchmark_type),
            model_sha256=outcome.model_sha256,
            nb_inference=outcome.nb_inference,
            variant=outcome.variant,
        ),
        run_s=outcome.run_s,
        failure=outcome.failure_category,
        ended_at=outcome.ended_at,
    )


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
