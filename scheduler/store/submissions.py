"""Campaigns and schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import bindparam, exists, func, or_, select, update

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model.benchmark import CronBy, Status
from edgeyard.scheduler.model.recurring import ScheduleGrant, ScheduleJob, ScheduleJobState
from edgeyard.scheduler.model.submissions import Campaign, CronSchedule
from edgeyard.scheduler.ports import Campaigns, Schedules
from edgeyard.scheduler.store.cursors import newest_page
from edgeyard.scheduler.store.rows import flat_row, schedule_of, schedule_row
from edgeyard.scheduler.store.tables import (
    benchmarks,
    campaigns,
    schedule_grants,
    schedule_jobs,
    schedules,
)
from edgeyard.scheduler.store.transaction import Row, Transaction, among

_STARTED = select(campaigns.c.campaign_id).where(
    # a list, not "<> pending", so that each campaign is a few steps in its index
    exists().where(
        benchmarks.c.campaign_id == campaigns.c.campaign_id,
        benchmarks.c.status.in_([status.value for status in Status if status != Status.PENDING]),
    ),
    among(campaigns.c.campaign_id),
)


_COUNTS = (
    select(benchmarks.c.campaign_id, benchmarks.c.status, func.count().label("stored"))
    .where(among(benchmarks.c.campaign_id))
    .group_by(benchmarks.c.campaign_id, benchmarks.c.status)
)
_BOARDS = (
    select(benchmarks.c.campaign_id, benchmarks.c.target_uid, func.count().label("stored"))
    .where(
        benchmarks.c.status.in_(
            [each.value for each in (Status.SCHEDULED, Status.RUNNING, Status.COMPLETED)]
        ),
        benchmarks.c.target_uid.is_not(None),
        among(benchmarks.c.campaign_id),
    )
    .group_by(benchmarks.c.campaign_id, benchmarks.c.target_uid)
)
_DUE_SCHEDULES = (
    select(schedules)
    .where(
        schedules.c.active,
        schedules.c.cron_by == CronBy.EDGEYARD.value,
        schedules.c.next_fire <= bindparam("now"),
    )
    .order_by(schedules.c.next_fire)
)
_NOT_ENDED = schedule_jobs.c.state != ScheduleJobState.ENDED.value
_LEFT_TO_NOMAD = (
    select(schedules)
    .where(
        schedules.c.cron_by == CronBy.NOMAD.value,
        or_(
            schedules.c.active,
            exists().where(schedule_jobs.c.schedule_id == schedules.c.schedule_id, _NOT_ENDED),
        ),
    )
    .order_by(schedules.c.schedule_id)
)
_SCHEDULE_GRANT = (
    select(schedule_grants)
    .join(schedule_jobs, schedule_jobs.c.job_id == schedule_grants.c.job_id)
    .where(schedule_grants.c.name == bindparam("name"), _NOT_ENDED)
)


class SqlCampaigns(Campaigns):
    """`Campaigns` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add(self, campaign: Campaign) -> None:
        if not self._tx.insert(campaigns, flat_row(campaign)):
            raise Conflict(f"campaign {campaign.campaign_id} already exists")

    def get(self, campaign_id: str) -> Campaign:
        row = self._tx.row(select(campaigns).where(campaigns.c.campaign_id == campaign_id))
        if row is None:
            raise NotFound("campaign", campaign_id)
        return Campaign(**cast("dict[str, Any]", dict(row)))

    def page(
        self,
        *,
        user_id: str | None,
        name: str | None,
        limit: int,
        cursor: str | None,
    ) -> tuple[Sequence[Campaign], str | None]:
        query = select(campaigns)
        if user_id is not None:
            query = query.where(campaigns.c.user_id == user_id)
        if name is not None:
            query = query.where(campaigns.c.name == name)
        rows, following = newest_page(self._tx, query, campaigns.c.campaign_id, limit, cursor)
        return [Campaign(**cast("dict[str, Any]", dict(row))) for row in rows], following

    def counts(self, campaign_ids: Sequence[str]) -> Mapping[str, Mapping[Status, int]]:
        found: dict[str, dict[Status, int]] = {each: {} for each in campaign_ids}
        for row in self._tx.rows_of(_COUNTS, campaign_ids):
            status = Status(cast(str, row["status"]))
            found[cast(str, row["campaign_id"])][status] = cast(int, row["stored"])
        return found

    def boards(self, campaign_ids: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        found: dict[str, dict[str, int]] = {each: {} for each in campaign_ids}
        for row in self._tx.rows_of(_BOARDS, campaign_ids):
            of_campaign = found[cast(str, row["campaign_id"])]
            of_campaign[cast(str, row["target_uid"])] = cast(int, row["stored"])
        return found

    def started(self, campaign_ids: Sequence[str]) -> frozenset[str]:
        rows = self._tx.rows_of(_STARTED, campaign_ids)
        return frozenset(cast(str, row["campaign_id"]) for row in rows)


class SqlSchedules(Schedules):
    """`Schedules` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add(self, schedule: CronSchedule) -> None:
        if not self._tx.insert(schedules, schedule_row(schedule)):
            raise Conflict(f"schedule {schedule.schedule_id} already exists")

    def save(self, schedule: CronSchedule) -> None:
        saved = self._tx.run(
            update(schedules)
            .where(schedules.c.schedule_id == schedule.schedule_id)
            .values(schedule_row(schedule))
        )
        if not saved.rowcount:
            raise NotFound("schedule", schedule.schedule_id)

    def get(self, schedule_id: str) -> CronSchedule:
        self._tx.lock_table(schedules)
        row = self._tx.row(select(schedules).where(schedules.c.schedule_id == schedule_id))
        if row is None:
            raise NotFound("schedule", schedule_id)
        return schedule_of(row)

    def all(self, user_id: str | None) -> Sequence[CronSchedule]:
        query = select(schedules).order_by(
            schedules.c.created_at.desc(), schedules.c.schedule_id.desc()
        )
        if user_id is not None:
            query = query.where(schedules.c.user_id == user_id)
        return [schedule_of(row) for row in self._tx.rows(query)]

    def due(self, now: datetime) -> Sequence[CronSchedule]:
        self._tx.lock_table(schedules)
        return [schedule_of(row) for row in self._tx.rows(_DUE_SCHEDULES, {"now": now})]

    def left_to_nomad(self) -> Sequence[CronSchedule]:
        return [schedule_of(row) for row in self._tx.rows(_LEFT_TO_NOMAD)]

    def add_job(self, job: ScheduleJob, grants: Sequence[ScheduleGrant]) -> None:
        if not self._tx.insert(schedule_jobs, flat_row(job)):
            raise Conflict(f"job {job.job_id} already exists")
        if grants and not self._tx.insert(schedule_grants, [flat_row(each) for each in grants]):
            raise Conflict("a download name already exists")

    def save_job(self, job: ScheduleJob) -> None:
        saved = self._tx.run(
            update(schedule_jobs).where(schedule_jobs.c.job_id == job.job_id).values(flat_row(job))
        )
        if not saved.rowcount:
            raise NotFound("job", job.job_id)

    def job(self, job_id: str) -> ScheduleJob:
        row = self._tx.row(select(schedule_jobs).where(schedule_jobs.c.job_id == job_id))
        if row is None:
            raise NotFound("job", job_id)
        return _schedule_job_of(row)

    def jobs(self, schedule_id: str) -> Sequence[ScheduleJob]:
        query = (
            select(schedule_jobs)
            .where(schedule_jobs.c.schedule_id == schedule_id)
            .order_by(schedule_jobs.c.version)
        )
        return [_schedule_job_of(row) for row in self._tx.rows(query)]

    def has_jobs(self) -> bool:
        return self._tx.row(select(schedule_jobs.c.job_id).limit(1)) is not None

    def grant(self, name: str) -> ScheduleGrant:
        row = self._tx.row(_SCHEDULE_GRANT, {"name": name})
        if row is None:
            raise NotFound("download", name)
        return ScheduleGrant(**cast("dict[str, Any]", dict(row)))


def _schedule_job_of(row: Row) -> ScheduleJob:
    r = cast("dict[str, Any]", dict(row))
    return ScheduleJob(**(r | {"state": ScheduleJobState(r["state"])}))
