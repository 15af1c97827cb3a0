"""Data with a limited retention time, by class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class RetentionClass(StrEnum):
    """Data that is pruned together, in the order in which it is pruned."""

    EXPIRED = "expired"  # downloads of ended attempts, idempotency keys, data of deleted benchmarks
    EVENTS = "events"  # and the states that boards were in, and the log of messages
    ACTS = "acts"  # the log of acts
    CYCLES = "cycles"  # recorded cycles, explanations, rewards of scorers
    HCL = "hcl"  # texts of jobs
    UPLOADS = "uploads"  # uploads that have begun and do not go on
    RESULTS = "results"  # files that tasks uploaded; the reports stay
    FILES = "files"  # files of users, and content that benchmarks were run with
    BENCHMARKS = "benchmarks"  # whole benchmarks with all that belongs to them


Limits = Mapping[RetentionClass, datetime]
"""Older data is pruned; unnamed classes are kept, except `EXPIRED`, which needs no limit."""


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What was pruned of a class, or would be.

    Attributes:
        size_bytes: Size of texts and files; shared ones count for each owner.
    """

    rows: int = 0
    size_bytes: int = 0

    def __add__(self, other: PruneReport) -> PruneReport:
        return PruneReport(self.rows + other.rows, self.size_bytes + other.size_bytes)
