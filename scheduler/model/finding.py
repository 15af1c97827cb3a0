"""Findings of a check of the set-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

MAX_NAMED = 20
"""Names that one sentence lists; further ones are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    Attributes:
        check: What was checked, in two or three words.
        state: ``unknown`` where it could not be checked, which is no problem by itself.
        found: The result, in a sentence.
        fix: What to do; "" where nothing is to be done.
    """

    check: str
    state: Literal["ok", "warning", "problem", "unknown"]
    found: str
    fix: str = ""


def named(names: Sequence[str]) -> str:
    """Return names for a sentence: ``a, b and 3 more``."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def by_reason(results: Iterable[tuple[str, str]]) -> Mapping[str, Sequence[str]]:
    """Group names by reason, so that many equal results are one finding.

    Args:
        results: Names and reasons.
    """
    found: dict[str, list[str]] = {}
    for name, reason in results:
        found.setdefault(reason, []).append(name)
    return found
