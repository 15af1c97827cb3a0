"""Campaigns and schedules: submissions of more than one benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from edgeyard.scheduler.model.benchmark import CronBy


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The benchmarks of one matrix submission."""

    campaign_id: str
    user_id: str
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSchedule:
    """A job description that is submitted at each time of its crontab.

    Attributes:
        last_benchmark_id: The newest benchmark that it submitted; None before the first.
        prohibit_overlap: A time submits none while the last benchmark has not ended.
        skipped: Number of times at which it submitted none: the last one still waited or, where
            overlaps are prohibited, ran.
        cron_by: Who acts at its times; `edgeyard.scheduler.model.recurring` if it is Nomad.
        launched_until: Up to when Nomad's runs have become benchmarks or were skipped, by Nomad's
            clock; None before the first.
        problem: Why the cluster does not have its job now, or why it has ended by itself; None:
            neither.
        retry_at: When its job is registered again; None: not because of a problem.
    """

    schedule_id: str
    user_id: str
    cron: str
    description: Mapping[str, object]
    created_at: datetime
    next_fire: datetime
    active: bool = True
    last_benchmark_id: str | None = None
    prohibit_overlap: bool = False
    skipped: int = 0
    cron_by: CronBy = CronBy.EDGEYARD
    launched_until: datetime | None = None
    problem: str | None = None
    retry_at: datetime | None = None

    @property
    def series(self) -> str:
        """Lineage of its benchmarks, as `Benchmark.series`."""
        description = self.description.get("description")
        stated = description if isinstance(description, Mapping) else {}
        return str(stated.get("series") or stated.get("name") or self.schedule_id)
