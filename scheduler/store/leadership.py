"""The leader's lease: one row, which every transaction of the leader's engine locks."""

from __future__ import annotations

import logging
import math
from datetime import datetime
from typing import Any, cast

from sqlalchemy import BigInteger, bindparam, func, select, text, type_coerce, update
from sqlalchemy import cast as cast_to

from edgeyard.errors import LeadershipLost
from edgeyard.scheduler.model.leadership import LeaderLease
from edgeyard.scheduler.ports import Leadership
from edgeyard.scheduler.store.tables import leadership
from edgeyard.scheduler.store.transaction import Transaction

logger = logging.getLogger(__name__)

_OWN_COLUMNS = ("only", "database_us", "clock")
_LEAD = select(*(column for column in leadership.c if column.name not in _OWN_COLUMNS))
_DATABASE_US = cast_to(func.extract("epoch", func.clock_timestamp()) * 1_000_000, BigInteger)
_WITH_AGE = _LEAD.add_columns(((_DATABASE_US - leadership.c.database_us) / 1e6).label("age_s"))
_TO_TAKE = _LEAD.with_for_update()
# FOR KEY SHARE: transactions of the leader and the renewal of its lease do not wait for each
# other, whereas another server's `take`, which locks FOR UPDATE, waits until all of them ended.
_TO_HOLD = _LEAD.where(leadership.c.epoch == bindparam("held")).with_for_update(
    read=True, key_share=True
)
_RENEW = (
    update(leadership)
    .where(leadership.c.epoch == bindparam("held"))
    .values(renewals=leadership.c.renewals + 1, at=bindparam("now"))
)
_RENEW_TIMED = _RENEW.values(database_us=_DATABASE_US)
_MOVE_TIME = update(leadership).values(
    at=type_coerce(leadership.c.at, BigInteger) + bindparam("by_us", type_=BigInteger),
    clock=bindparam("record"),
)
# A session that waits for the rest of what its client sends is not idle to PostgreSQL, which
# therefore does not end it by `idle_in_transaction_session_timeout`.
_END_CUT_OFF = text(
    "SELECT count(pg_terminate_backend(pid)) AS ended FROM pg_stat_activity"
    " WHERE usename = current_user AND pid <> pg_backend_pid()"
    " AND clock_timestamp() - xact_start > make_interval(secs => :silent_s)"
    " AND pid IN (SELECT pid FROM pg_locks WHERE relation = CAST('leadership' AS regclass)"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND mode IN ('RowShareLock', 'RowExclusiveLock') AND granted)"
)
_CLOCK = select(leadership.c.clock)
_RELEASE = update(leadership).where(leadership.c.epoch == bindparam("held")).values(server_id="")


class SqlLeadership(Leadership):
    """`Leadership` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def current(self) -> LeaderLease:
        return _lead_of(self._tx.row(_WITH_AGE if self._has_clock else _LEAD))

    @property
    def _has_clock(self) -> bool:
        return self._tx.dialect == "postgresql"

    def take(
        self, seen: LeaderLease, server_id: str, url: str, at: datetime, silent_s: float = math.inf
    ) -> LeaderLease | None:
        if self._has_clock and silent_s < math.inf:
            self._end_cut_off(seen, silent_s)
        if _lead_of(self._tx.row(_TO_TAKE)) != seen:
            return None
        taken = LeaderLease(
            epoch=seen.epoch + 1, renewals=0, server_id=server_id, url=url, since=at, at=at
        )
        self._tx.run(
            update(leadership).values(
                epoch=taken.epoch,
                renewals=0,
                server_id=server_id,
                url=url,
                since=at,
                at=at,
                database_us=_DATABASE_US if self._has_clock else None,
            )
        )
        return taken

    def _end_cut_off(self, seen: LeaderLease, silent_s: float) -> None:
        if _lead_of(self._tx.row(_LEAD)) != seen:
            return
        row = self._tx.row(_END_CUT_OFF, {"silent_s": silent_s})
        if row is not None and row["ended"]:
            logger.warning(
                "transactions of a leader that was cut off were ended",
                extra={"event": "leader.cut_off", "epoch": seen.epoch, "ended": row["ended"]},
            )

    def renew(self, epoch: int, now: datetime) -> None:
        renew = _RENEW_TIMED if self._has_clock else _RENEW
        if not self._tx.run(renew, {"held": epoch, "now": now}).rowcount:
            raise LeadershipLost(epoch)

    def move_time(self, by_s: float, clock: str) -> None:
        self._tx.run(_MOVE_TIME, {"by_us": round(by_s * 1e6), "record": clock})

    def clock(self) -> str:
        row = self._tx.row(_CLOCK)
        return "" if row is None else cast(str, row["clock"])

    def release(self, epoch: int) -> None:
        self._tx.run(_RELEASE, {"held": epoch})

    def hold(self, epoch: int) -> None:
        if self._tx.row(_TO_HOLD, {"held": epoch}) is None:
            raise LeadershipLost(epoch)


def _lead_of(row: object) -> LeaderLease:
    values = dict(cast("dict[str, Any]", row))
    if values.get("age_s") is not None:
        values["age_s"] = float(values["age_s"])
    return LeaderLease(**values)
