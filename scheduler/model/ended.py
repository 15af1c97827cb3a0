"""Benchmarks that have ended: what policies are judged by."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from edgeyard.scheduler.model.benchmark import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedBenchmark:
    """A benchmark at its end.

    Attributes:
        policy: Name and version of the policy of the cycle that explains it, the last one that
            decided on it: ``default/1``. "": no cycle did, or retention removed it.
        started_at: Start of its last attempt; None: it never started.
        attempts: Attempts that started.
        preemptions: Attempts that were preempted.
        failed_attempts: Attempts that failed for another reason.
    """

    benchmark_id: str
    user_id: str
    policy: str
    status: Status
    submit_time: datetime
    started_at: datetime | None
    ended_at: datetime
    deadline: datetime | None
    attempts: int
    preemptions: int
    failed_attempts: int
