"""A lab in virtual time: pure decisions, boards that run for as long as a test states."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeyard.plugins.testing import board, snapshot_of
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark, Snapshot
from edgeyard.scheduler.model.knowledge import Knowledge
from tests.builders.decision import cycle, places

MAX_RUN_S = 900.0
"""Bound on a run that states no ``user_time``."""


@dataclass(frozen=True, kw_only=True)
class Life:
    """A benchmark and for how long it runs, as a share of its bound."""

    pending: PendingBenchmark
    share: float = 1.0

    @property
    def bound_s(self) -> float:
        """Its bound, which the runner enforces."""
        return self.pending.user_time_s or MAX_RUN_S


@dataclass
class VirtualLab:
    """Decides whenever something happens, until somebody has started or time is up.

    Attributes:
        uids: The boards.
        lives: All benchmarks that will ever be submitted.
        of: Name of the policy.
        changes: Of the policy.
        conflicts: Shape (boards, boards): which share cores.
        started: When each benchmark got its board.
    """

    uids: Sequence[str]
    lives: Sequence[Life]
    of: str = "default"
    changes: dict[str, Any] = field(default_factory=dict)
    conflicts: NDArray[np.bool_] | None = None
    started: dict[str, datetime] = field(default_factory=dict)

    def run(self, *, since: datetime, until: datetime, watched: Callable[[], bool]) -> int:
        """Go on until ``watched()`` or the time ``until``; nothing is decided before ``since``.

        Returns:
            How many cycles it took.
        """
        coming = sorted(self.lives, key=lambda each: each.pending.submit_time, reverse=True)
        waiting: dict[str, Life] = {}
        running: dict[str, tuple[BoardHolder, datetime]] = {}
        moments = {since, *(max(since, each.pending.submit_time) for each in coming)}
        moments |= {
            max(since, each.pending.start_time) for each in coming if each.pending.start_time
        }
        line = sorted(moments)
        cycles = 0
        last: datetime | None = None
        while line and not watched():
            now = heapq.heappop(line)
            if now > until:
                break
            if now == last:
                continue
            last = now
            while coming and coming[-1].pending.submit_time <= now:
                life = coming.pop()
                waiting[life.pending.benchmark_id] = life
            for uid in [uid for uid, (_, end) in running.items() if end <= now]:
                del running[uid]
            cycles += 1
            result = cycle(
                self._snapshot(running.keys()),
                [each.pending for each in waiting.values()],
                of=self.of,
                now=now,
                holders=[holder for holder, _ in running.values()],
                knowledge=Knowledge(max_run_s=MAX_RUN_S),
                **self.changes,
            )
            for benchmark_id, uid in places(result).items():
                life = waiting.pop(benchmark_id)
                self.started[benchmark_id] = now
                end = now + timedelta(seconds=life.bound_s * life.share)
                running[uid] = (
                    BoardHolder(
                        benchmark_id=benchmark_id,
                        target_uid=uid,
                        priority=50,
                        started_at=now,
                        time_limit_s=life.bound_s,
                    ),
                    end,
                )
                heapq.heappush(line, end)
        return cycles

    def _snapshot(self, held: Any) -> Snapshot:
        busy = np.array([uid in held for uid in self.uids], dtype=np.bool_)
        if self.conflicts is not None:
            busy |= (self.conflicts & busy[None, :]).any(axis=1)
        snapshot = snapshot_of(
            [board(uid, busy=bool(taken)) for uid, taken in zip(self.uids, busy, strict=True)]
        )
        return replace(snapshot, conflicts=self.conflicts)
