"""Credits: balances, charges and rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import bindparam, func, select, update

from edgeyard.errors import Conflict
from edgeyard.scheduler.model.accounts import Balance, Charge, ChargeKind, IdleTime
from edgeyard.scheduler.ports import Credits
from edgeyard.scheduler.store.rows import Row, flat_row
from edgeyard.scheduler.store.tables import balances, charges, idle_times, rates
from edgeyard.scheduler.store.transaction import Transaction

_BALANCE = select(balances).where(balances.c.user_id == bindparam("id"))
_OPEN = select(charges).where(charges.c.settled_at.is_(None))
_RUNNING = (
    select(func.count())
    .select_from(charges)
    .where(charges.c.settled_at.is_(None), charges.c.user_id == bindparam("id"))
)
_CHARGE = select(charges).where(
    charges.c.benchmark_id == bindparam("id"), charges.c.attempt == bindparam("n")
)
_KEY = ("benchmark_id", "attempt")
_SAVE = (
    update(charges)
    .where(charges.c.benchmark_id == bindparam("id"), charges.c.attempt == bindparam("n"))
    .values({c.name: bindparam(c.name) for c in charges.c if c.name not in _KEY})
)
_SETTLE = _SAVE.where(charges.c.settled_at.is_(None))
_IDLE_TIME = select(idle_times).where(
    idle_times.c.keeper_id == bindparam("id"), idle_times.c.month == bindparam("month_of")
)
_BALANCES = select(balances)
_RATES = select(rates)


class SqlCredits(Credits):
    """`Credits` in SQL.

    Credits are whole millionths, which add up.
    """

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def balance(self, user_id: str, *, for_update: bool = False) -> Balance:
        if for_update and self._tx.dialect == "postgresql":
            # There must be a row to lock; SQLite's writer is alone anyway.
            self._tx.insert(balances, flat_row(Balance(user_id=user_id)))
            row = self._tx.row(_BALANCE.with_for_update(), {"id": user_id})
        else:
            row = self._tx.row(_BALANCE, {"id": user_id})
        return Balance(user_id=user_id) if row is None else _balance(row)

    def balances(self) -> Sequence[Balance]:
        return [_balance(row) for row in self._tx.rows(_BALANCES)]

    def save_balance(self, balance: Balance) -> None:
        self._tx.replace(balances, flat_row(balance))

    def running(self, user_id: str) -> int:
        return cast(int, self._tx.value(_RUNNING, {"id": user_id}))

    def open_charges(self) -> Sequence[Charge]:
        return [_charge(row) for row in self._tx.rows(_OPEN)]

    def charge(self, benchmark_id: str, attempt: int) -> Charge | None:
        row = self._tx.row(_CHARGE, {"id": benchmark_id, "n": attempt})
        return None if row is None else _charge(row)

    def add_charges(self, opened: Sequence[Charge]) -> None:
        if opened and not self._tx.insert(charges, [flat_row(charge) for charge in opened]):
            raise Conflict(f"one of {len(opened)} attempts already has a charge")

    def settle_charge(self, charge: Charge) -> bool:
        return self._tx.run(_SETTLE, _values(charge)).rowcount > 0

    def amend_charge(self, charge: Charge) -> None:
        self._tx.run(_SAVE, _values(charge))

    def charges(self, user_id: str, *, limit: int) -> Sequence[Charge]:
        query = (
            select(charges)
            .where(charges.c.user_id == user_id)
            .order_by(charges.c.reserved_at.desc(), charges.c.benchmark_id, charges.c.attempt)
            .limit(limit)
        )
        return [_charge(row) for row in self._tx.rows(query)]

    def idle_time(self, keeper_id: str, month: str) -> IdleTime | None:
        row = self._tx.row(_IDLE_TIME, {"id": keeper_id, "month_of": month})
        return None if row is None else _idle_time(row)

    def save_idle_time(self, idle: IdleTime) -> None:
        self._tx.replace(idle_times, flat_row(idle))

    def idle_times(self, user_id: str, *, limit: int) -> Sequence[IdleTime]:
        query = (
            select(idle_times)
            .where(idle_times.c.user_id == user_id)
            .order_by(idle_times.c.until.desc(), idle_times.c.keeper_id)
            .limit(limit)
        )
        return [_idle_time(row) for row in self._tx.rows(query)]

    def rates(self) -> Mapping[str, float]:
        return {cast(str, row["family"]): cast(float, row["rate"]) for row in self._tx.rows(_RATES)}

    def set_rate(self, family: str, rate: float) -> None:
        self._tx.replace(rates, {"family": family, "rate": rate})


def _balance(row: Row) -> Balance:
    return Balance(**cast("dict[str, Any]", dict(row)))


def _values(charge: Charge) -> dict[str, object]:
    """Return a charge as the values of a statement that changes it."""
    values = {name: value for name, value in flat_row(charge).items() if name not in _KEY}
    return {**values, "id": charge.benchmark_id, "n": charge.attempt}


def _charge(row: Row) -> Charge:
    values = cast("dict[str, Any]", dict(row))
    return Charge(**(values | {"kind": ChargeKind(values["kind"])}))


def _idle_time(row: Row) -> IdleTime:
    return IdleTime(**cast("dict[str, Any]", dict(row)))
