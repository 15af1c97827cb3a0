"""Pending benchmarks and boards as columns."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.model.decision import PendingBenchmark, Snapshot
from edgeyard.scheduler.model.knowledge import Knowledge, RunKind


def build_batch(
    snapshot: Snapshot,
    pending: Sequence[PendingBenchmark],
    now: datetime,
    seed: int,
    knowledge: Knowledge | None = None,
) -> Batch:
    """Classes in the order in which their first benchmark comes; the queue in the order given."""
    rows: dict[tuple[object, ...], int] = {}
    first: list[PendingBenchmark] = []
    class_of_job = np.empty(len(pending), dtype=np.intp)
    knowledge = Knowledge() if knowledge is None else knowledge
    leasing = {lease.user_id for lease in knowledge.leases if lease.user_id is not None}
    for job, each in enumerate(pending):
        key = (
            each.family,
            each.engine,
            each.benchmark_type,
            each.ram_bytes,
            each.storage_bytes,
            each.target_uid,
            each.constraints,
            each.deadline,
            each.user_time_s,
            each.budget,
            each.user_id if each.user_id in leasing else None,
            each.probe,
            each.model_sha256,
            each.nb_inference,
            each.variant,
        )
        row = rows.setdefault(key, len(rows))
        if row == len(first):
            first.append(each)
        class_of_job[job] = row
    return Batch(
        now=now,
        seed=seed,
        snapshot=snapshot,
        families=tuple(each.family for each in first),
        engines=tuple(each.engine for each in first),
        types=tuple(each.benchmark_type for each in first),
        ram_bytes=np.array([each.ram_bytes for each in first], dtype=np.int64),
        storage_bytes=np.array([each.storage_bytes for each in first], dtype=np.int64),
        target_uids=tuple(each.target_uid for each in first),
        constraints=tuple(each.constraints for each in first),
        deadlines=tuple(each.deadline for each in first),
        user_times_s=np.array(
            [math.nan if each.user_time_s is None else each.user_time_s for each in first],
            dtype=np.float64,
        ),
        budget_times_s=np.array(
            [_paid_s(each, knowledge.rates) for each in first], dtype=np.float64
        ),
        lease_users=tuple(each.user_id if each.user_id in leasing else None for each in first),
        probes=np.array([each.probe for each in first], dtype=np.bool_),
        kinds=tuple(kind_of(each) for each in first),
        model_bytes=np.array(
            [math.nan if each.model_bytes is None else each.model_bytes for each in first],
            dtype=np.float64,
        ),
        class_of_job=class_of_job,
        job_users=tuple(each.user_id for each in pending),
        queue=np.arange(len(pending), dtype=np.intp),
        knowledge=knowledge,
        board_families=np.array(snapshot.families, dtype=np.str_),
        board_order=_shuffled(snapshot.uids, seed),
    )


def _paid_s(each: PendingBenchmark, rates: Mapping[str, float]) -> float:
    """How long its budget pays for; NaN without one, or where the family costs nothing."""
    rate = rates.get(each.family, 1.0)
    return math.nan if each.budget is None or rate <= 0 else each.budget / rate


def kind_of(each: PendingBenchmark) -> RunKind:
    """What it runs, as the history calls it."""
    return RunKind(
        engine=each.engine,
        benchmark_type=each.benchmark_type,
        model_sha256=each.model_sha256,
        nb_inference=each.nb_inference,
        variant=each.variant,
    )


def _shuffled(uids: tuple[str, ...], seed: int) -> NDArray[np.intp]:
    """Rows of boards in an order that depends on the seed and the names alone.

    Sorted by a hash of seed and name: a board that comes or goes leaves the others' order alone.
    """
    salt = str(seed).encode()
    keys = [
        hashlib.blake2b(uid.encode("utf-8", "surrogatepass"), digest_size=8, key=salt[:64]).digest()
        for uid in uids
    ]
    order = sorted(range(len(uids)), key=lambda board: (keys[board], uids[board]))
    return np.array(order, dtype=np.intp)
