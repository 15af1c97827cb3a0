"""Events, and answers kept under idempotency keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import cast

from sqlalchemy import bindparam, delete, select

from edgeyard.errors import Conflict
from edgeyard.scheduler.model import strict_json
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.ports import Log
from edgeyard.scheduler.store.rows import event_of, event_row
from edgeyard.scheduler.store.tables import event_counter, events, remembered
from edgeyard.scheduler.store.transaction import Transaction

IDEMPOTENCY_KEY_LIFETIME = timedelta(days=1)
"""Time for which an idempotency key is stored."""

_AFTER = (
    select(events)
    .where(events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(bindparam("limit"))
)
_AFTER_OF = _AFTER.where(events.c.benchmark_id == bindparam("id"))
_LAST = select(event_counter.c.last_seq)


class SqlLog(Log):
    """`Log` in SQL."""

    def __init__(self, tx: Transaction, now: Callable[[], datetime]) -> None:
        self._tx = tx
        self._now = now

    def append(self, event: Event) -> None:
        self._tx.add_event(event_row(event))

    def events(self, *, after: int, limit: int, benchmark_id: str | None = None) -> Sequence[Event]:
        values: dict[str, object] = {"after": after, "limit": limit}
        if benchmark_id is None:
            rows = self._tx.rows(_AFTER, values)
        else:
            rows = self._tx.rows(_AFTER_OF, {**values, "id": benchmark_id})
        return [event_of(row) for row in rows]

    def last_seq(self) -> int:
        return cast(int, self._tx.value(_LAST))

    def put_answer(
        self, key: str, user_id: str, body_sha256: str, answer: Mapping[str, object]
    ) -> None:
        now = self._now()
        self._tx.run(delete(remembered).where(remembered.c.at < now - IDEMPOTENCY_KEY_LIFETIME))
        row = {
            "user_id": user_id,
            "key": key,
            "body_sha256": body_sha256,
            "answer": strict_json.dumps(answer, "/answer"),
            "at": now,
        }
        if not self._tx.insert(remembered, row):
            raise Conflict("the idempotency key is in use")

    def answer(self, key: str, user_id: str) -> tuple[str, Mapping[str, object]] | None:
        row = self._tx.row(
            select(remembered.c.body_sha256, remembered.c.answer).where(
                remembered.c.user_id == user_id,
                remembered.c.key == key,
                remembered.c.at >= self._now() - IDEMPOTENCY_KEY_LIFETIME,
            )
        )
        if row is None:
            return None
        return cast(str, row["body_sha256"]), strict_json.loads(cast(str, row["answer"]))
