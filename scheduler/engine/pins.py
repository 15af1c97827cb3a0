"""Measures for how long the boards of pinned benchmarks are unavailable.

A pinned board is unavailable while it is offline, unhealthy or taken out; while it is only busy,
from the benchmark's stated start on: before that, and without one, it simply waits its turn
(`edgeyard.scheduler.decide.pins`). When that has lasted for the grace time, ``if_unavailable`` of
the benchmark decides: any other board that fits may run it, or an event is recorded and it stays
pinned. The time is stored with the benchmark, so that a restart of the server does not begin it
anew.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from edgeyard.scheduler.clock import Stopwatches
from edgeyard.scheduler.model.benchmark import Benchmark
from edgeyard.scheduler.model.decision import PinGrace
from edgeyard.scheduler.ports import Clock


class PinTimers:
    """Knows of each pinned benchmark whether its grace time is over. One thread."""

    def __init__(self, grace_s: float, clock: Clock) -> None:
        """Measure nothing yet.

        Args:
            grace_s: The grace time, seconds.
            clock: Measures it.
        """
        self._grace_s = grace_s
        self._clock = clock
        self._absent: Stopwatches[str] = Stopwatches(clock)
        self._notified: set[str] = set()  # once in a process

    def grace_of(self, benchmark: Benchmark) -> PinGrace | None:
        """Return what a decision needs of a pinned benchmark; None of others."""
        description, since = benchmark.description, benchmark.unavailable_since
        if description.target_uid is None or benchmark.unpinned:
            return None
        absent_s = 0.0 if since is None else self._absent.elapsed_s(benchmark.benchmark_id, since)
        return PinGrace(
            if_unavailable=description.if_unavailable,
            grace_s=self._grace_s,
            is_due=description.start_time is not None
            and self._clock.certain() >= description.start_time,
            is_over=absent_s >= self._grace_s and not self._clock.disagreement_s(),
            is_notified=benchmark.benchmark_id in self._notified,
        )

    def available(self, benchmark_id: str) -> None:
        """Note that the board is available: a later absence has a grace time of its own."""
        self._notified.discard(benchmark_id)

    def acted_on(self, benchmark_ids: Iterable[str]) -> None:
        """Note that ``if_unavailable`` of these was acted on, and that this is stored."""
        self._notified.update(benchmark_ids)

    def retain(self, benchmark_ids: Container[str]) -> None:
        """Forget all other benchmarks."""
        self._absent.retain(benchmark_ids.__contains__)
        self._notified = {each for each in self._notified if each in benchmark_ids}
