"""The leader's lease: one row, which every transaction of the leader's engine locks."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import bindparam, select, update

from edgeyard.errors import LeadershipLost
from edgeyard.scheduler.model.records import Lead
from edgeyard.scheduler.store.tables import leadership
from edgeyard.scheduler.store.transaction import Transaction

_LEAD = select(*(column for column in leadership.c if column.name != "only"))
_TO_TAKE = _LEAD.with_for_update()
# FOR KEY SHARE: transactions of the leader and the renewal of its lease do not wait for each
# other, whereas another server's `take`, which locks FOR UPDATE, waits until all of them ended.
_TO_HOLD = _LEAD.where(leadership.c.epoch == bindparam("held")).with_for_update(
    read=True, key_share=True
)
_RENEW = (
    update(leadership)
    .where(leadership.c.epoch == bindparam("held"))
    .values(renewals=leadership.c.renewals + 1)
)
_RELEASE = update(leadership).where(leadership.c.epoch == bindparam("held")).values(server_id="")


class SqlLeadership:
    """`edgeyard.scheduler.ports.Leadership` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def current(self) -> Lead:
        """Who leads, as the database has it."""
        return _lead_of(self._tx.row(_LEAD))

    def take(self, seen: Lead, server_id: str, url: str, at: datetime) -> Lead | None:
        """Begin the next epoch, unless the lease has been renewed or taken since ``seen``."""
        if _lead_of(self._tx.row(_TO_TAKE)) != seen:
            return None
        taken = Lead(epoch=seen.epoch + 1, renewals=0, server_id=server_id, url=url, since=at)
        self._tx.run(
            update(leadership).values(
                epoch=taken.epoch, renewals=0, server_id=server_id, url=url, since=at
            )
        )
        return taken

    def renew(self, epoch: int) -> None:
        """Show that the leader of this epoch is alive.

        Raises:
            LeadershipLost: Another epoch has begun.
        """
        if not self._tx.run(_RENEW, {"held": epoch}).rowcount:
            raise LeadershipLost(epoch)

    def release(self, epoch: int) -> None:
        """Let another server lead at once; no effect where one does already."""
        self._tx.run(_RELEASE, {"held": epoch})

    def hold(self, epoch: int) -> None:
        """Keep others from taking the lease until this transaction ends.

        Raises:
            LeadershipLost: Another epoch has begun.
        """
        if self._tx.row(_TO_HOLD, {"held": epoch}) is None:
            raise LeadershipLost(epoch)


def _lead_of(row: object) -> Lead:
    return Lead(**cast("dict[str, Any]", dict(cast("dict[str, Any]", row))))


if TYPE_CHECKING:
    from edgeyard.scheduler.ports import Leadership

    _: Leadership = SqlLeadership(cast(Transaction, None))
