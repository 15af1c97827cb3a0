"""Benchmarks that are pinned to a board that can't be had: when enough is enough.

A pinned board can't be had while it is offline, unhealthy or taken out; while it is only busy, from
the benchmark's stated start on: before that, and without one, it simply waits its turn. When that
has lasted for the grace time, ``if_unavailable`` of the benchmark decides: any other board that
fits may run it, or it stays pinned and the event ``benchmark.unavailable`` is recorded, which the
owner's webhook gets.

The time is stored with the benchmark, so that a restart of the server does not begin it anew.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from edgeyard.scheduler.clock import Stopwatches
from edgeyard.scheduler.model.benchmark import Benchmark, IfUnavailable, WaitingReason, WaitReason
from edgeyard.scheduler.ports import Clock

_GONE = frozenset(
    {
        WaitingReason.BOARD_OFFLINE,
        WaitingReason.BOARD_UNHEALTHY,
        WaitingReason.RESERVED,
        WaitingReason.UNKNOWN_BOARD,
    }
)
_TAKEN = frozenset({WaitingReason.BOARD_BUSY, WaitingReason.PRIORITY})


@dataclass(frozen=True, slots=True, kw_only=True)
class PinView:
    """What a look at a waiting benchmark finds.

    Attributes:
        waiting: The reason to show.
        since: Since when the board that it names can't be had; None while it can.
        over: The grace time has run out, and ``if_unavailable`` is to be acted on.
    """

    waiting: WaitReason
    since: datetime | None = None
    over: bool = False


class Pins:
    """Judges benchmarks that name a board. One thread."""

    def __init__(self, grace_s: float, clock: Clock) -> None:
        self._grace_s = grace_s
        self._clock = clock
        self._absent: Stopwatches[str] = Stopwatches(clock)
        self._reported: set[str] = set()  # their owners know; asked for once in a process

    def look(self, benchmark: Benchmark, waiting: WaitReason) -> PinView:
        """Judge a benchmark by the reason why it waits now."""
        asked = benchmark.description
        if asked.target_uid is None or benchmark.unpinned:
            return PinView(waiting=waiting)
        if waiting.reason is WaitingReason.CLUSTER_UNREACHABLE:  # says nothing of the board
            return PinView(waiting=waiting, since=benchmark.unavailable_since)
        due = asked.start_time is not None and self._clock.certain() >= asked.start_time
        gone = waiting.reason in _GONE and not waiting.promised
        if not gone and not (due and waiting.reason in _TAKEN):
            self._reported.discard(benchmark.benchmark_id)
            return PinView(waiting=waiting)
        since = benchmark.unavailable_since or self._clock.now()
        over = (
            benchmark.benchmark_id not in self._reported
            and not self._clock.disagreement_s()
            and self._absent.elapsed_s(benchmark.benchmark_id, since) >= self._grace_s
        )
        grace = f"{self._grace_s:g} s"
        pinned = "it stays pinned to this board (if_unavailable: notify)"
        if asked.if_unavailable is IfUnavailable.RESCHEDULE:
            outlook = (
                f"after {grace} another board that fits may run it (if_unavailable: reschedule)"
            )
        elif over or benchmark.benchmark_id in self._reported:
            outlook = f"{pinned}; the server has recorded the event benchmark.unavailable"
        else:
            outlook = f"{pinned}; after {grace} the server records the event benchmark.unavailable"
        explained = replace(waiting, sentence=f"{waiting.sentence}; {outlook}")
        return PinView(waiting=explained, since=since, over=over)

    def acted_on(self, benchmark_ids: Iterable[str]) -> None:
        """Note that ``if_unavailable`` of these was acted on, and that this is stored."""
        self._reported.update(benchmark_ids)

    def forget_all_but(self, benchmark_ids: Container[str]) -> None:
        """Drop what is remembered of others."""
        self._absent.retain(benchmark_ids.__contains__)
        self._reported = {each for each in self._reported if each in benchmark_ids}
