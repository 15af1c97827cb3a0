"""What operators decided about boards, and what users of the platform's client announced."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import delete, func, select, update

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model.boards import BoardOverride
from edgeyard.scheduler.model.registration import Registration, RegistrationKind
from edgeyard.scheduler.ports import BoardOverrides, Registrations
from edgeyard.scheduler.store.rows import flat_row
from edgeyard.scheduler.store.tables import overrides, registrations
from edgeyard.scheduler.store.transaction import Row, Transaction

_OVERRIDES = select(overrides)


class SqlBoardOverrides(BoardOverrides):
    """`BoardOverrides` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def put(self, override: BoardOverride) -> None:
        self._tx.replace(overrides, flat_row(override))

    def all(self) -> Mapping[str, BoardOverride]:
        found = (
            BoardOverride(**cast("dict[str, Any]", dict(row))) for row in self._tx.rows(_OVERRIDES)
        )
        return {override.target_uid: override for override in found}


class SqlRegistrations(Registrations):
    """`Registrations` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def lock(self) -> None:
        self._tx.lock_table(registrations)

    def counts(self) -> Mapping[str, int]:
        query = select(registrations.c.user_id, func.count().label("count"))
        rows = self._tx.rows(query.group_by(registrations.c.user_id))
        return {cast(str, row["user_id"]): cast(int, row["count"]) for row in rows}

    def add(self, registration: Registration) -> None:
        if not self._tx.insert(registrations, _registration_row(registration)):
            raise Conflict(f"{registration.kind.value} {registration.name} already exists")

    def save(self, registration: Registration) -> None:
        row = _registration_row(registration)
        saved = self._tx.run(
            update(registrations)
            .where(registrations.c.kind == row["kind"], registrations.c.name == row["name"])
            .values(row)
        )
        if not saved.rowcount:
            raise NotFound(registration.kind.value, registration.name)

    def remove(self, kind: RegistrationKind, name: str) -> None:
        gone = self._tx.run(
            delete(registrations).where(
                registrations.c.kind == kind.value, registrations.c.name == name
            )
        )
        if not gone.rowcount:
            raise NotFound(kind.value, name)

    def get(self, kind: RegistrationKind, name: str) -> Registration:
        row = self._tx.row(
            select(registrations).where(
                registrations.c.kind == kind.value, registrations.c.name == name
            )
        )
        if row is None:
            raise NotFound(kind.value, name)
        return _registration(row)

    def of_kind(self, kind: RegistrationKind) -> Sequence[Registration]:
        query = (
            select(registrations)
            .where(registrations.c.kind == kind.value)
            .order_by(registrations.c.name)
        )
        return [_registration(row) for row in self._tx.rows(query)]


def _registration_row(registration: Registration) -> Mapping[str, object]:
    return {**flat_row(registration), "body": json.dumps(registration.body)}


def _registration(row: Row) -> Registration:
    values = cast("dict[str, Any]", dict(row))
    kind, body = RegistrationKind(values["kind"]), json.loads(values["body"])
    return Registration(**values | {"kind": kind, "body": body})
