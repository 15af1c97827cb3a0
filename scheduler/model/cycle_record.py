"""Recorded decision cycles, in parts that many cycles share."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime

import zstandard

from edgeyard.scheduler.model.history import History

OUTCOME = "outcome"
"""The part that holds the decision."""

FACTS = "facts"
"""The part that holds what scorers measured, which no decision depends on."""

OVERRUNS = "overruns"
"""The part that holds which scorers answered late; cycles without any have no such part."""

MODELS = "models"
"""The part that holds the active registered models; cycles without any have no such part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRecord:
    """A recorded cycle.

    Attributes:
        policy: Name and version, ``default/1``.
        parts: Name and compressed bytes: ``policy``, ``snapshot``, ``pending``, ``holders``,
            ``loads``, ``knowledge``, ``outcome``, ``facts`` and, where there are any, ``models``
            and ``overruns``.
        runs: Past runs that it knew; the store records the numbers of the first and the last.
    """

    decided_at: datetime
    policy: str
    parts: tuple[tuple[str, bytes], ...]
    runs: History = field(default_factory=History, compare=False)

    @property
    def digest(self) -> str:
        """Hash of the decision; it depends neither on the compression nor on measured times."""
        outcome = zstandard.decompress(dict(self.parts)[OUTCOME])
        return hashlib.blake2b(outcome, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleHead:
    """Summary of a recorded cycle.

    Attributes:
        seq: Its number, in the order in which cycles were decided.
        shadow_of: The cycle that it shadows, without effect; None: it took effect itself.
        size_bytes: Size of its parts, shared or not.
    """

    seq: int
    decided_at: datetime
    policy: str
    digest: str
    shadow_of: int | None
    size_bytes: int
