"""Campaigns and schedules: submissions of more than one benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The benchmarks of one matrix submission."""

    campaign_id: str
    user_id: str
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSchedule:
    """A job description whose every firing is a benchmark of its own.

    Attributes:
        last_benchmark_id: The newest benchmark that it made; None before the first.
        skipped: How many firings made none, because the one before still waited.
    """

    schedule_id: str
    user_id: str
    cron: str
    description: Mapping[str, object]
    created_at: datetime
    next_fire: datetime
    active: bool = True
    last_benchmark_id: str | None = None
    skipped: int = 0
