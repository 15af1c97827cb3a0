"""The lines of the event log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of the append-only log.

    Attributes:
        seq: Its number, without gaps in the order of commits; 0 before it is stored.
        kind: e.g. ``benchmark.submitted``, ``benchmark.status``, ``attempt.state``,
            ``file.fetched``, ``board.drained``, ``benchmark.preempted``.
        data: Facts for readers; no secrets.
    """

    at: datetime
    kind: str
    benchmark_id: str | None = None
    user_id: str | None = None
    data: Mapping[str, object] = field(default_factory=dict)
    seq: int = 0
