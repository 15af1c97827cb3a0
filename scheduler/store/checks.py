"""Checks: two versions that are measured alternately until it is decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, cast

from sqlalchemy import func, select, update

from edgeyard.devices.metrics import Metric
from edgeyard.errors import Conflict, FieldError, NotFound
from edgeyard.scheduler.model import strict_json
from edgeyard.scheduler.model.checks import Check, CheckStatus, Pair
from edgeyard.scheduler.ports import Checks
from edgeyard.scheduler.store.cursors import newest_page
from edgeyard.scheduler.store.rows import Row, flat_row
from edgeyard.scheduler.store.tables import checks
from edgeyard.scheduler.store.transaction import Transaction

_RUNNING = checks.c.status == CheckStatus.RUNNING.value
_ALL_RUNNING = select(checks).where(_RUNNING).order_by(checks.c.created_at, checks.c.check_id)


class SqlChecks(Checks):
    """`Checks` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add(self, check: Check) -> None:
        if not self._tx.insert(checks, _row(check)):
            raise Conflict(f"check {check.check_id} already exists")

    def save(self, check: Check) -> None:
        saved = self._tx.run(
            update(checks).where(checks.c.check_id == check.check_id).values(_row(check))
        )
        if not saved.rowcount:
            raise NotFound("check", check.check_id)

    def get(self, check_id: str) -> Check:
        self._tx.lock_table(checks)
        row = self._tx.row(select(checks).where(checks.c.check_id == check_id))
        if row is None:
            raise NotFound("check", check_id)
        return _check(row)

    def running(self) -> Sequence[Check]:
        return [_check(row) for row in self._tx.rows(_ALL_RUNNING)]

    def count_running(self, user_id: str) -> int:
        mine = select(func.count()).select_from(checks).where(_RUNNING, checks.c.user_id == user_id)
        return cast(int, self._tx.value(mine))

    def move_times(self, by_s: float) -> None:
        for check in self.running():
            self.save(replace(check, created_at=check.created_at + timedelta(seconds=by_s)))

    def page(
        self, *, user_id: str | None, status: CheckStatus | None, limit: int, cursor: str | None
    ) -> tuple[Sequence[Check], str | None]:
        query = select(checks)
        if user_id is not None:
            query = query.where(checks.c.user_id == user_id)
        if status is not None:
            query = query.where(checks.c.status == status.value)
        rows, following = newest_page(self._tx, query, checks.c.check_id, limit, cursor)
        return [_check(row) for row in rows], following


def _row(check: Check) -> dict[str, object]:
    return {
        **flat_row(check),
        "versions": strict_json.dumps(check.versions, "/versions"),
        "metric": strict_json.dumps(asdict(check.metric), "/metric"),
        "pairs": strict_json.dumps([asdict(each) for each in check.pairs], "/pairs"),
        "errors": strict_json.dumps([asdict(each) for each in check.errors], "/errors"),
    }


def _check(row: Row) -> Check:
    values = cast("Mapping[str, Any]", row)
    read = {name: strict_json.loads(values[name]) for name in ("metric", "pairs", "errors")}
    return Check(
        **{
            **values,
            "status": CheckStatus(values["status"]),
            "versions": strict_json.loads(values["versions"]),
            "metric": Metric(**read["metric"]),
            "pairs": tuple(Pair(**{**p, "reasons": tuple(p["reasons"])}) for p in read["pairs"]),
            "errors": tuple(FieldError(**each) for each in read["errors"]),
        }
    )
