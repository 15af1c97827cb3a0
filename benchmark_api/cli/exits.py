"""The exit status of ``edgeyard``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the SDK takes long to load, and commands need the numbers for their help
    from edgeyard.benchmark_api.sdk.benchmark import Benchmark


class Exit(IntEnum):
    """Exit statuses; they stay as they are because scripts rely on them."""

    DONE = 0
    ERROR = 1  # usage, settings, or the API refused
    NOT_PLACEABLE = 2  # a gate failed, or nothing can be placed
    FAILED = 3  # a benchmark failed or expired
    TIMED_OUT = 4  # the time to wait is over
    CANCELLED = 5  # a benchmark was cancelled
    INTERRUPTED = 130  # Ctrl-C: the waiting ends, the benchmark goes on


def exit_of(benchmarks: Sequence[Benchmark]) -> Exit:
    """Return the exit status for several benchmarks; failures outweigh cancellations."""
    statuses = {benchmark.status for benchmark in benchmarks}
    if statuses & {"failed", "expired"}:
        return Exit.FAILED
    return Exit.CANCELLED if "cancelled" in statuses else Exit.DONE
