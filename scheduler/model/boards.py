"""What operators decided about a board."""

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
