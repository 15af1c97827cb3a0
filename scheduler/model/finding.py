"""What a look at the set-up found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: What, in two or three words.
        state: ``unknown`` where it could not be looked at and that is no trouble by itself.
        found: In a sentence.
        fix: What to do; "" where nothing is to be done.
    """

    check: str
    state: Literal["ok", "warning", "problem", "unknown"]
    found: str
    fix: str = ""
