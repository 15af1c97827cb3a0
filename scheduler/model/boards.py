"""What operators decided about a board, and the states that it was in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardOverride:
    """Whether an operator drained a board, and why."""

    target_uid: str
    drained: bool
    reason: str
    by_user_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardStateChange:
    """A board was seen in another state than before.

    Attributes:
        at: When the leading server saw it first.
        state: A value of `edgeyard.scheduler.twin.twin.BoardState`.
        reason: Why, in words; "": nobody stated it.
        benchmark_id: The benchmark that held it.
    """

    target_uid: str
    at: datetime
    state: str
    reason: str
    benchmark_id: str | None
