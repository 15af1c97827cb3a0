"""Campaigns, what operators said of boards, and schedules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import delete, exists, select, update

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.records import (
    BoardOverride,
    Campaign,
    CronSchedule,
    Registration,
    RegistrationKind,
)
from edgeyard.scheduler.store.rows import flat_row, schedule_of, schedule_row
from edgeyard.scheduler.store.tables import (
    benchmarks,
    campaigns,
    overrides,
    registrations,
    schedules,
)
from edgeyard.scheduler.store.transaction import Row, Transaction

_CHUNK = 5_000  # ids in one statement; SQLite takes 32,766 values at most

_STARTED = select(campaigns.c.campaign_id).where(
    # a list, not "<> pending", so that each campaign is a few steps in its index
    exists().where(
        benchmarks.c.campaign_id == campaigns.c.campaign_id,
        benchmarks.c.status.in_([status.value for status in Status if status != Status.PENDING]),
    )
)


class SqlLab:
    """`edgeyard.scheduler.ports.Lab` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add_campaign(self, campaign: Campaign) -> None:
        """Store a new one.

        Raises:
            Conflict: The id is taken.
        """
        if not self._tx.insert(campaigns, flat_row(campaign)):
            raise Conflict(f"campaign {campaign.campaign_id} is already there")

    def campaign(self, campaign_id: str) -> Campaign:
        """Raises NotFound."""
        row = self._tx.row(select(campaigns).where(campaigns.c.campaign_id == campaign_id))
        if row is None:
            raise NotFound("campaign", campaign_id)
        return Campaign(**cast("dict[str, Any]", dict(row)))

    def campaigns_started(self, campaign_ids: Sequence[str]) -> frozenset[str]:
        """Those of which a member has left `pending`."""
        started: set[str] = set()
        for start in range(0, len(campaign_ids), _CHUNK):
            ids = campaign_ids[start : start + _CHUNK]
            started.update(
                cast(str, row["campaign_id"])
                for row in self._tx.rows(_STARTED.where(campaigns.c.campaign_id.in_(ids)))
            )
        return frozenset(started)

    def set_override(self, override: BoardOverride) -> None:
        """The newest of a board counts."""
        self._tx.replace(overrides, flat_row(override))

    def overrides(self) -> Mapping[str, BoardOverride]:
        """By board."""
        found = (
            BoardOverride(**cast("dict[str, Any]", dict(row)))
            for row in self._tx.rows(select(overrides))
        )
        return {override.target_uid: override for override in found}

    def add_schedule(self, schedule: CronSchedule) -> None:
        """Store a new one.

        Raises:
            Conflict: The id is taken.
        """
        if not self._tx.insert(schedules, schedule_row(schedule)):
            raise Conflict(f"schedule {schedule.schedule_id} is already there")

    def save_schedule(self, schedule: CronSchedule) -> None:
        """Replace it.

        Raises:
            NotFound: There is none.
        """
        saved = self._tx.run(
            update(schedules)
            .where(schedules.c.schedule_id == schedule.schedule_id)
            .values(schedule_row(schedule))
        )
        if not saved.rowcount:
            raise NotFound("schedule", schedule.schedule_id)

    def schedule(self, schedule_id: str) -> CronSchedule:
        """Raises NotFound."""
        self._tx.lock_table(schedules)
        row = self._tx.row(select(schedules).where(schedules.c.schedule_id == schedule_id))
        if row is None:
            raise NotFound("schedule", schedule_id)
        return schedule_of(row)

    def schedules(self, user_id: str | None) -> Sequence[CronSchedule]:
        """Active and not, newest first; None: everybody's."""
        query = select(schedules).order_by(
            schedules.c.created_at.desc(), schedules.c.schedule_id.desc()
        )
        if user_id is not None:
            query = query.where(schedules.c.user_id == user_id)
        return [schedule_of(row) for row in self._tx.rows(query)]

    def due_schedules(self, now: datetime) -> Sequence[CronSchedule]:
        """Active ones with ``next_fire`` not after ``now``."""
        self._tx.lock_table(schedules)
        query = (
            select(schedules)
            .where(schedules.c.active, schedules.c.next_fire <= now)
            .order_by(schedules.c.next_fire)
        )
        return [schedule_of(row) for row in self._tx.rows(query)]

    def register(self, registration: Registration) -> None:
        """Store a new one.

        Raises:
            Conflict: The name is taken.
        """
        if not self._tx.insert(registrations, _registration_row(registration)):
            raise Conflict(f"{registration.kind.value} {registration.name} is already there")

    def save_registration(self, registration: Registration) -> None:
        """Replace what is said of it.

        Raises:
            NotFound: There is none.
        """
        row = _registration_row(registration)
        saved = self._tx.run(
            update(registrations)
            .where(registrations.c.kind == row["kind"], registrations.c.name == row["name"])
            .values(row)
        )
        if not saved.rowcount:
            raise NotFound(registration.kind.value, registration.name)

    def unregister(self, kind: RegistrationKind, name: str) -> None:
        """Forget it.

        Raises:
            NotFound: There is none.
        """
        gone = self._tx.run(
            delete(registrations).where(
                registrations.c.kind == kind.value, registrations.c.name == name
            )
        )
        if not gone.rowcount:
            raise NotFound(kind.value, name)

    def registration(self, kind: RegistrationKind, name: str) -> Registration:
        """Raises NotFound."""
        row = self._tx.row(
            select(registrations).where(
                registrations.c.kind == kind.value, registrations.c.name == name
            )
        )
        if row is None:
            raise NotFound(kind.value, name)
        return _registration(row)

    def registrations(self, kind: RegistrationKind) -> Sequence[Registration]:
        """Everybody's, by name."""
        query = (
            select(registrations)
            .where(registrations.c.kind == kind.value)
            .order_by(registrations.c.name)
        )
        return [_registration(row) for row in self._tx.rows(query)]


def _registration_row(registration: Registration) -> Mapping[str, object]:
    return {**flat_row(registration), "body": json.dumps(registration.body)}


def _registration(row: Row) -> Registration:
    told = cast("dict[str, Any]", dict(row))
    kind, body = RegistrationKind(told["kind"]), json.loads(told["body"])
    return Registration(**told | {"kind": kind, "body": body})


if TYPE_CHECKING:
    from edgeyard.scheduler.ports import Lab

    _: Lab = SqlLab(cast(Transaction, None))
