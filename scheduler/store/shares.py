"""Links that show something to everybody who has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import delete, select

from edgeyard.errors import NotFound
from edgeyard.scheduler.model.shares import Share, ShareKind
from edgeyard.scheduler.ports import Shares
from edgeyard.scheduler.store.rows import Row, flat_row
from edgeyard.scheduler.store.tables import shares
from edgeyard.scheduler.store.transaction import Transaction


class SqlShares(Shares):
    """`Shares` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add(self, share: Share) -> None:
        self._tx.run(delete(shares).where(shares.c.expires_at <= share.created_at))
        self._tx.insert(shares, flat_row(share))

    def by_hash(self, sha256: str, now: datetime) -> Share:
        row = self._tx.row(
            select(shares).where(shares.c.sha256 == sha256, shares.c.expires_at > now)
        )
        if row is None:
            raise NotFound("shared page", "of this address")
        return _share(row)

    def of(self, user_id: str | None, now: datetime) -> Sequence[Share]:
        which = select(shares).where(shares.c.expires_at > now)
        if user_id is not None:
            which = which.where(shares.c.user_id == user_id)
        order = which.order_by(shares.c.created_at.desc(), shares.c.share_id)
        return [_share(row) for row in self._tx.rows(order)]

    def remove(self, share_id: str, user_id: str | None, now: datetime) -> Share:
        row = self._tx.row(
            select(shares).where(shares.c.share_id == share_id, shares.c.expires_at > now)
        )
        if row is None or user_id not in (None, row["user_id"]):
            raise NotFound("share", share_id)
        self._tx.run(delete(shares).where(shares.c.share_id == share_id))
        return _share(row)


def _share(row: Row) -> Share:
    values = cast("Mapping[str, Any]", row)
    return Share(**{**values, "kind": ShareKind(values["kind"])})
