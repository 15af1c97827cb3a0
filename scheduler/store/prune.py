"""Retention: what is dropped, a little at a time."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, exists, func, or_, select, text

from edgeyard.scheduler.model.benchmark import TERMINAL
from edgeyard.scheduler.store.cycles import PARTS_LOCK
from edgeyard.scheduler.store.log import KEY_LIFE
from edgeyard.scheduler.store.tables import (
    LIVE_STATES,
    LIVE_STATUSES,
    attempts,
    benchmarks,
    cycle_parts,
    cycles,
    events,
    explanations,
    grants,
    part_contents,
    policy_overrides,
    remembered,
    reward_rounds,
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
    long_ended = select(benchmarks.c.benchmark_id).where(
        benchmarks.c.ended_at < before,
        benchmarks.c.status.in_([status.value for status in TERMINAL]),
    )
    old_explanations, old_overrides = (
        select(each.c.benchmark_id).where(each.c.benchmark_id.in_(long_ended))
        for each in (explanations, policy_overrides)
    )
    dead_grants = select(grants.c.name).where(
        ~exists().where(
            attempts.c.benchmark_id == grants.c.benchmark_id,
            attempts.c.number == grants.c.attempt,
            text(LIVE_STATES),
        )
    )
    if tx.dialect == "postgresql":
        tx.run(select(func.pg_advisory_xact_lock(PARTS_LOCK)))
    # A cycle is kept as long as it explains somebody.
    old_cycles = select(cycles.c.seq).where(
        cycles.c.decided_at < before, ~exists().where(explanations.c.seq == cycles.c.seq)
    )
    cut_parts = select(cycle_parts.c.seq).where(~exists().where(cycles.c.seq == cycle_parts.c.seq))
    unused_parts = select(part_contents.c.sha256).where(
        ~exists().where(cycle_parts.c.sha256 == part_contents.c.sha256)
    )
    old_rounds = select(reward_rounds.c.seq).where(reward_rounds.c.at < before)
    gone = 0
    for table, key, old in (
        (events, events.c.seq, old_events),
        (explanations, explanations.c.benchmark_id, old_explanations),
        (policy_overrides, policy_overrides.c.benchmark_id, old_overrides),
        (grants, grants.c.name, dead_grants),
        (cycles, cycles.c.seq, old_cycles),
        (cycle_parts, cycle_parts.c.seq, cut_parts),
        (part_contents, part_contents.c.sha256, unused_parts),
        (reward_rounds, reward_rounds.c.seq, old_rounds),
    ):
        gone += tx.run(delete(table).where(key.in_(old.limit(_STEP)))).rowcount
    gone += tx.run(delete(remembered).where(remembered.c.at < now - KEY_LIFE)).rowcount
    return gone
