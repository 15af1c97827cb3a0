"""Events, and answers kept under idempotency keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import cast

from sqlalchemy import ColumnElement, bindparam, delete, or_, select, update

from edgeyard.errors import Conflict
from edgeyard.scheduler.model import strict_json
from edgeyard.scheduler.model.acts import FAILED_SIGN_IN, Act, ActFilter
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.ports import Log
from edgeyard.scheduler.store.rows import act_of_row, event_of
from edgeyard.scheduler.store.tables import acts, event_counter, events, remembered
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
        self._tx.add_event(event)

    def events(self, *, after: int, limit: int, benchmark_id: str | None = None) -> Sequence[Event]:
        values: dict[str, object] = {"after": after, "limit": limit}
        if benchmark_id is None:
            rows = self._tx.rows(_AFTER, values)
        else:
            rows = self._tx.rows(_AFTER_OF, {**values, "id": benchmark_id})
        return [event_of(row) for row in rows]

    def last_seq(self) -> int:
        return cast(int, self._tx.value(_LAST))

    def acts(
        self, which: ActFilter, *, limit: int, before: int | None = None, after: int | None = None
    ) -> Sequence[Act]:
        conditions = list(_conditions(which))
        if after is not None:
            conditions.append(acts.c.seq > after)
        elif before is not None:
            conditions.append(acts.c.seq < before)
        order = acts.c.seq.desc() if after is None else acts.c.seq
        found = self._tx.rows(select(acts).where(*conditions).order_by(order).limit(limit))
        return [act_of_row(row) for row in found]

    def count_failed_sign_in(self, address: str, minute: datetime, door: str) -> None:
        self._tx.lock_log()
        of_minute = (
            acts.c.at == minute,
            acts.c.kind == FAILED_SIGN_IN,
            acts.c.address == address,
            acts.c.door == door,
        )
        counted = update(acts).where(*of_minute).values(count=acts.c.count + 1)
        if not self._tx.run(counted).rowcount:
            act = Act(at=minute, kind=FAILED_SIGN_IN, door=door, address=address)
            self._tx.add_act(act)

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


def _conditions(which: ActFilter) -> Iterator[ColumnElement[bool]]:
    if which.seen_by is not None:
        yield or_(acts.c.user_id == which.seen_by, acts.c.owner_id == which.seen_by)
    for column, wanted in (
        (acts.c.user_id, which.user_id),
        (acts.c.kind, which.kind),
        (acts.c.board, which.board),
        (acts.c.benchmark_id, which.benchmark_id),
    ):
        if wanted is not None:
            yield column == wanted
    if which.since is not None:
        yield acts.c.at >= which.since
    if which.until is not None:
        yield acts.c.at < which.until
