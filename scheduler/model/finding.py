"""What a look at the set-up found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

MAX_NAMED = 20
"""Of one kind in one sentence: further ones are counted."""


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


def named(names: Sequence[str]) -> str:
    """In a sentence: ``a, b and 3 more``."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def by_reason(told: Iterable[tuple[str, str]]) -> Mapping[str, Sequence[str]]:
    """Names by what was said of them, so that many of the same kind are one finding.

    Args:
        told: Name and reason.
    """
    found: dict[str, list[str]] = {}
    for name, reason in told:
        found.setdefault(reason, []).append(name)
    return found
