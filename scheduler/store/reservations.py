"""Boards that are kept from the queue: leases and quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from sqlalchemy import bindparam, select, update

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model.accounts import Quarantine
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.model.times import time_text
from edgeyard.scheduler.ports import Reservations
from edgeyard.scheduler.store.rows import Row, flat_row
from edgeyard.scheduler.store.tables import leases, quarantines
from edgeyard.scheduler.store.transaction import Transaction

_LEASES = (
    select(leases)
    .where(leases.c.until > bindparam("now"))
    .order_by(leases.c.since, leases.c.lease_id)
)
_QUARANTINES = select(quarantines)


class SqlReservations(Reservations):
    """`Reservations` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add_lease(self, lease: Lease) -> None:
        self._tx.lock_table(leases)  # two that overlap must not be made side by side
        clash = self._tx.row(
            select(leases)
            .where(
                leases.c.target_uid == lease.target_uid,
                leases.c.since < lease.until,
                leases.c.until > lease.since,
            )
            .order_by(leases.c.since)
        )
        if clash is not None:
            taken = _lease(clash)
            raise Conflict(
                f"{lease.target_uid} is leased from {time_text(taken.since)} "
                f"to {time_text(taken.until)} ({taken.lease_id})"
            )
        if not self._tx.insert(leases, flat_row(lease)):
            raise Conflict(f"lease {lease.lease_id} already exists")

    def lease(self, lease_id: str) -> Lease:
        row = self._tx.row(select(leases).where(leases.c.lease_id == lease_id))
        if row is None:
            raise NotFound("lease", lease_id)
        return _lease(row)

    def end_lease(self, lease_id: str, at: datetime, by: str) -> Lease:
        self._tx.lock_table(leases)
        found = self.lease(lease_id)
        if found.until <= at:
            return found
        ended = replace(found, since=min(found.since, at), until=at, ended_by=by)
        self._tx.run(update(leases).where(leases.c.lease_id == lease_id).values(flat_row(ended)))
        return ended

    def leases(self, now: datetime) -> Sequence[Lease]:
        return [_lease(row) for row in self._tx.rows(_LEASES, {"now": now})]

    def set_quarantine(self, quarantine: Quarantine) -> None:
        self._tx.replace(quarantines, flat_row(quarantine))

    def quarantines(self) -> Mapping[str, Quarantine]:
        self._tx.lock_table(quarantines)
        found = (
            Quarantine(**cast("dict[str, Any]", dict(row))) for row in self._tx.rows(_QUARANTINES)
        )
        return {each.target_uid: each for each in found}


def _lease(row: Row) -> Lease:
    return Lease(**cast("dict[str, Any]", dict(row)))
