"""Retention: what is dropped, a little at a time."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, exists, or_, select, text

from edgeyard.scheduler.model.benchmark import TERMINAL
from edgeyard.scheduler.store.log import KEY_LIFE
from edgeyard.scheduler.store.tables import (
    LIVE_STATES,
    LIVE_STATUSES,
    attempts,
    benchmarks,
    events,
    explanations,
    grants,
    remembered,
)
from edgeyard.scheduler.store.transaction import Transaction

_STEP = 5_000  # rows of a table in one transaction: some tens of milliseconds


def prune_step(tx: Transaction, before: datetime, now: datetime) -> int:
    """Drop at most `_STEP` rows of each table; returns how many went."""
    live = exists().where(benchmarks.c.benchmark_id == events.c.benchmark_id, text(LIVE_STATUSES))
    old_events = (
        select(events.c.seq)
        .where(events.c.at < before, or_(events.c.benchmark_id.is_(None), ~live))
        .order_by(events.c.seq)
    )
    old_explanations = select(explanations.c.benchmark_id).where(
        exists().where(
            benchmarks.c.benchmark_id == explanations.c.benchmark_id,
            benchmarks.c.ended_at < before,
            benchmarks.c.status.in_([status.value for status in TERMINAL]),
        )
    )
    dead_grants = select(grants.c.name).where(
        ~exists().where(
            attempts.c.benchmark_id == grants.c.benchmark_id,
            attempts.c.number == grants.c.attempt,
            text(LIVE_STATES),
        )
    )
    gone = 0
    for table, key, old in (
        (events, events.c.seq, old_events),
        (explanations, explanations.c.benchmark_id, old_explanations),
        (grants, grants.c.name, dead_grants),
    ):
        gone += tx.run(delete(table).where(key.in_(old.limit(_STEP)))).rowcount
    gone += tx.run(delete(remembered).where(remembered.c.at < now - KEY_LIFE)).rowcount
    return gone
