"""What stored numbers show of how far repeated runs lie apart."""

from __future__ import annotations

from collections.abc import Mapping

from edgeyard.devices.metrics import primary_metric
from edgeyard.scheduler.model.benchmark import Benchmark
from edgeyard.scheduler.model.workload import workload_digest
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.scheduler.prediction.repeatability import Repeatability, RunVariation

MAX_NUMBERS = 500
"""The newest of a board, and of its family's boards: a board changes over the years."""


class RunVariations:
    """Variances between runs, read within one unit of work; each board's numbers once."""

    def __init__(self, uow: UnitOfWork) -> None:
        self._uow = uow
        self._by_board: dict[str, Repeatability] = {}

    def of(self, benchmark: Benchmark, report: Mapping[str, object]) -> RunVariation | None:
        """Return what numbers of a benchmark's work vary by on its board, without its own number.

        Returns:
            None where it ran on no board, or has no primary metric.
        """
        uid = benchmark.target_uid
        if uid is None or primary_metric(report) is None:
            return None
        if uid not in self._by_board:
            family = benchmark.description.family
            own = self._uow.attempts.repeated_numbers(target_uid=uid, newest=MAX_NUMBERS)
            others = self._uow.attempts.repeated_numbers(family=family, newest=MAX_NUMBERS)
            numbers = [*(each for each in others if each.target_uid != uid), *own]
            self._by_board[uid] = Repeatability(numbers)
        digest = workload_digest(benchmark, report)
        return self._by_board[uid].of(uid, digest, without=benchmark.benchmark_id)
