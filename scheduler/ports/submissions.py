"""The repositories of campaigns and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.submissions import Campaign, CronSchedule


class Campaigns(Protocol):
    """The campaigns that users submitted."""

    def add(self, campaign: Campaign) -> None:
        """Raises Conflict: the id is taken."""
        ...

    def get(self, campaign_id: str) -> Campaign:
        """Raises NotFound."""
        ...

    def started(self, campaign_ids: Sequence[str]) -> frozenset[str]:
        """Those of which a member has left `pending`."""
        ...


class Schedules(Protocol):
    """Job descriptions that are submitted again and again, as their crontab says."""

    def add(self, schedule: CronSchedule) -> None:
        """Raises Conflict: the id is taken."""
        ...

    def save(self, schedule: CronSchedule) -> None:
        """Raises NotFound."""
        ...

    def get(self, schedule_id: str) -> CronSchedule:
        """Raises NotFound."""
        ...

    def all(self, user_id: str | None) -> Sequence[CronSchedule]:
        """Active and not, newest first."""
        ...

    def due(self, now: datetime) -> Sequence[CronSchedule]:
        """Active ones with ``next_fire`` not after ``now``."""
        ...
