"""Conditions of the lab of which operators are notified when they begin and when they end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LabCondition:
    """One that was reported and has not ended.

    Attributes:
        name: Unique; the type of its event, with the board or scorer.
        about: Id of the board, scorer or server; "" of the whole lab.
        reason: Why it is so, as a sentence.
    """

    name: str
    about: str
    reason: str
    since: datetime
