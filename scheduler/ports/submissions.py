"""The repositories of campaigns and schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.recurring import ScheduleGrant, ScheduleJob
from edgeyard.scheduler.model.submissions import Campaign, CronSchedule


class Campaigns(Protocol):
    """Stores campaigns."""

    def add(self, campaign: Campaign) -> None:
        """Store a new campaign.

        Raises:
            Conflict: The id is taken.
        """
        ...

    def get(self, campaign_id: str) -> Campaign:
        """Return a campaign.

        Raises:
            NotFound: There is no such campaign.
        """
        ...

    def page(
        self,
        *,
        user_id: str | None,
        name: str | None,
        limit: int,
        cursor: str | None,
    ) -> tuple[Sequence[Campaign], str | None]:
        """Return campaigns, newest first, and the cursor of the next page if there is one.

        Args:
            user_id: Only those of this user; None: of all.
            name: Only those of this name; None: all.
            limit: Maximum number of campaigns.
            cursor: As an earlier page returned it; None: begin with the newest.

        Raises:
            InvalidInput: The cursor is malformed.
        """
        ...

    def counts(self, campaign_ids: Sequence[str]) -> Mapping[str, Mapping[Status, int]]:
        """Return the number of benchmarks in each status, by campaign."""
        ...

    def boards(self, campaign_ids: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """Return the number of benchmarks by board, by campaign: of those that have completed there
        or hold the board now."""
        ...

    def started(self, campaign_ids: Sequence[str]) -> frozenset[str]:
        """Return those campaigns of which a benchmark has left `pending`."""
        ...


class Schedules(Protocol):
    """Stores job descriptions that are submitted again and again, as their crontab says."""

    def add(self, schedule: CronSchedule) -> None:
        """Store a new schedule.

        Raises:
            Conflict: The id is taken.
        """
        ...

    def save(self, schedule: CronSchedule) -> None:
        """Store a changed schedule.

        Raises:
            NotFound: There is no such schedule.
        """
        ...

    def get(self, schedule_id: str) -> CronSchedule:
        """Return a schedule.

        Raises:
            NotFound: There is no such schedule.
        """
        ...

    def all(self, user_id: str | None) -> Sequence[CronSchedule]:
        """Return a user's schedules, active or not, newest first; None: everybody's."""
        ...

    def due(self, now: datetime) -> Sequence[CronSchedule]:
        """Return active schedules of Edgeyard's own whose ``next_fire`` has come."""
        ...

    def left_to_nomad(self) -> Sequence[CronSchedule]:
        """Return Nomad's schedules that are active, or have a job that has not ended."""
        ...

    def add_job(self, job: ScheduleJob, grants: Sequence[ScheduleGrant]) -> None:
        """Store a new parent job with the downloads of its runs.

        Raises:
            Conflict: The id, or the name of a download, is taken.
        """
        ...

    def save_job(self, job: ScheduleJob) -> None:
        """Store a changed parent job.

        Raises:
            NotFound: There is no such job.
        """
        ...

    def job(self, job_id: str) -> ScheduleJob:
        """Return a parent job.

        Raises:
            NotFound: There is no such job.
        """
        ...

    def jobs(self, schedule_id: str) -> Sequence[ScheduleJob]:
        """Return the parent jobs of a schedule, in order of version."""
        ...

    def has_jobs(self) -> bool:
        """Return whether this store has a parent job; ended ones are pruned in time."""
        ...

    def grant(self, name: str) -> ScheduleGrant:
        """Return the grant of a download name.

        Raises:
            NotFound: There is no such name, or its job has ended.
        """
        ...
