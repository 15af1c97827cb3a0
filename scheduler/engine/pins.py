"""Benchmarks that are pinned to a board that can't be had: when enough is enough.

A pinned board can't be had while it is offline, unhealthy or taken out; while it is only busy, from
the benchmark's stated start on: before that, and without one, it simply waits its turn. When that
has lasted for the grace time, ``if_unavailable`` of the benchmark decides: any other board that
fits may run it, or its owner is told and it stays pinned.

The time is counted by this process: after a restart it begins anew.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from edgeyard.scheduler.model.benchmark import Benchmark, IfUnavailable, Waiting, WaitingReason

_GONE = frozenset(
    {WaitingReason.BOARD_OFFLINE, WaitingReason.BOARD_UNHEALTHY, WaitingReason.RESERVED}
)
_TAKEN = frozenset({WaitingReason.BOARD_BUSY, WaitingReason.PRIORITY})


@dataclass(slots=True)
class _Missed:
    """A pinned board that can't be had.

    Attributes:
        told: Its grace time is over and was acted on.
    """

    since: datetime
    told: bool = False


class Pins:
    """Remembers since when pinned boards are missed. One thread."""

    def __init__(self, grace_s: float) -> None:
        self._grace = timedelta(seconds=grace_s)
        self._missed: dict[str, _Missed] = {}

    def look(self, benchmark: Benchmark, waiting: Waiting, now: datetime) -> tuple[Waiting, bool]:
        """What a waiting benchmark is told, and whether its grace time has just run out."""
        asked = benchmark.description
        if asked.target_uid is None or benchmark.unpinned:
            return waiting, False
        due = asked.start_time is not None and now >= asked.start_time
        if waiting.reason not in _GONE and not (due and waiting.reason in _TAKEN):
            self._missed.pop(benchmark.benchmark_id, None)
            return waiting, False
        missed = self._missed.setdefault(benchmark.benchmark_id, _Missed(now))
        over = not missed.told and now >= missed.since + self._grace
        missed.told = missed.told or over
        grace = f"{self._grace.total_seconds():g} s"
        if asked.if_unavailable is IfUnavailable.RESCHEDULE:
            outlook = f"if that lasts for {grace}, another board that fits may run it"
        elif missed.told:
            outlook = "it stays pinned to it, and its owner was told"
        else:
            outlook = f"it stays pinned to it; if that lasts for {grace}, its owner is told"
        return replace(waiting, sentence=f"{waiting.sentence}; {outlook}"), over

    def forget_all_but(self, benchmark_ids: Container[str]) -> None:
        """Drop what is remembered of others."""
        for benchmark_id in [each for each in self._missed if each not in benchmark_ids]:
            del self._missed[benchmark_id]
