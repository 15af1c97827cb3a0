"""Pending benchmarks and boards as columns."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, mixed, numbered
from edgeyard.scheduler.model.decision import PER_BENCHMARK, PendingBenchmark, Snapshot
from edgeyard.scheduler.model.knowledge import Knowledge, RunKind

_class_key = attrgetter(
    *(each.name for each in fields(PendingBenchmark) if each.name not in PER_BENCHMARK)
)
"""The fields that benchmarks of one class have in common; users with leases have own classes."""


def build_batch(
    snapshot: Snapshot,
    pending: Sequence[PendingBenchmark],
    now: datetime,
    seed: int,
    knowledge: Knowledge | None = None,
    twin_max_age_s: float = math.inf,
    prediction_wait_s: float = math.inf,
) -> Batch:
    """Build the batch that plugins read: classes of equal benchmarks, boards, and what is known.

    Args:
        snapshot: The boards.
        pending: The benchmarks that wait.
        now: Time of the cycle.
        seed: Seed of all random choices of the cycle.
        knowledge: Past runs, leases and accounts; None: nothing is known.
        twin_max_age_s: Age of a board's state beyond which nothing is placed on it, seconds.
        prediction_wait_s: Wait after which a predicted "too slow" no longer refuses a board,
            seconds.

    Returns:
        Classes in the order of their first benchmarks, and jobs in the order of ``pending``.
    """
    knowledge = Knowledge() if knowledge is None else knowledge
    leasing = {lease.user_id for lease in knowledge.leases if lease.user_id is not None}
    keys: Iterable[tuple[object, ...]] = map(_class_key, pending)
    if leasing:
        keys = (
            (*key, each.user_id) if each.user_id in leasing else key
            for key, each in zip(keys, pending, strict=True)
        )
    _, class_of_job = numbered(keys)
    firsts = _firsts(class_of_job)
    expired = np.zeros(len(pending), dtype=np.bool_)
    if len(knowledge.runs) and prediction_wait_s < math.inf:
        expired = _predictions_expired(
            pending, class_of_job, firsts, now, knowledge, prediction_wait_s
        )
        if expired.any():
            _, class_of_job = numbered(zip(class_of_job.tolist(), expired.tolist(), strict=True))
            firsts = _firsts(class_of_job)
    first = [pending[job] for job in firsts.tolist()]
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
        affinities=tuple(each.affinities for each in first),
        spreads=tuple(each.spreads for each in first),
        spread_groups=tuple(each.spread_group for each in first),
        spread_counts=tuple(each.spread_counts for each in first),
        deadlines=tuple(each.deadline for each in first),
        user_times_s=np.array(
            [math.nan if each.user_time_s is None else each.user_time_s for each in first],
            dtype=np.float64,
        ),
        budget_times_s=np.array(
            [_paid_s(each, knowledge, now) for each in first], dtype=np.float64
        ),
        ends_in_time=np.array([each.ends_in_time for each in first], dtype=np.bool_),
        budgets=np.array(
            [math.nan if each.budget is None else each.budget for each in first],
            dtype=np.float64,
        ),
        extras=tuple(json.loads(each.extra) if each.extra else {} for each in first),
        lease_users=tuple(each.user_id if each.user_id in leasing else None for each in first),
        probes=np.array([each.probe for each in first], dtype=np.bool_),
        predictions_expired=expired[firsts],
        kinds=tuple(kind_of(each) for each in first),
        model_bytes=np.array(
            [math.nan if each.model_bytes is None else each.model_bytes for each in first],
            dtype=np.float64,
        ),
        class_of_job=class_of_job,
        job_users=tuple(each.user_id for each in pending),
        queue=np.arange(len(pending), dtype=np.intp),
        knowledge=knowledge,
        board_families=_as_text(snapshot.families),
        board_order=_shuffled(snapshot.uids, seed),
        twin_max_age_s=twin_max_age_s,
        prediction_wait_s=prediction_wait_s,
    )


def _firsts(class_of_job: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the first job of each class, shape (classes,)."""
    highest = np.maximum.accumulate(class_of_job)
    is_first = np.ones(len(highest), dtype=np.bool_)
    np.greater(highest[1:], highest[:-1], out=is_first[1:])
    return np.flatnonzero(is_first)


def _predictions_expired(
    pending: Sequence[PendingBenchmark],
    class_of_job: NDArray[np.intp],
    firsts: NDArray[np.intp],
    now: datetime,
    knowledge: Knowledge,
    wait_s: float,
) -> NDArray[np.bool_]:
    """Return who states a bound and has waited until predictions do not count, shape (jobs,).

    That is after ``wait_s``, and after half of the time to the deadline at the latest: a benchmark
    is tried while it can still be in time.
    """
    expired = np.zeros(len(pending), dtype=np.bool_)
    bounded = np.array(
        [
            each.user_time_s is not None
            or each.deadline is not None
            or not math.isnan(_paid_s(each, knowledge, now))
            for each in map(pending.__getitem__, firsts.tolist())
        ],
        dtype=np.bool_,
    )
    if not bounded.any():
        return expired
    for job in np.flatnonzero(bounded[class_of_job]).tolist():
        each = pending[job]
        ready = each.submit_time
        if each.start_time is not None:
            ready = max(ready, each.start_time)
        max_s = wait_s
        if each.deadline is not None:
            max_s = min(max_s, (each.deadline - ready).total_seconds() / 2)
        expired[job] = (now - ready).total_seconds() >= max_s
    return expired


def _paid_s(each: PendingBenchmark, knowledge: Knowledge, now: datetime) -> float:
    """Return how long its budget pays for; NaN without one, or where the family costs nothing."""
    rate = knowledge.rate(each.family, now)
    return math.nan if each.budget is None or rate <= 0 else each.budget / rate


def kind_of(each: PendingBenchmark) -> RunKind:
    """Return the key under which the history has runs of the same work."""
    return RunKind(
        engine=each.engine,
        benchmark_type=each.benchmark_type,
        model_sha256=each.model_sha256,
        nb_inference=each.nb_inference,
        variant=each.variant,
    )


def _shuffled(uids: tuple[str, ...], seed: int) -> NDArray[np.intp]:
    """Return the rows of boards in an order that depends on the seed and the names alone.

    Sorted by a hash of seed and name: a board that comes or goes leaves the others' order alone.
    """
    of_names = _digests(uids)
    of_seed = np.full(1, _hash(str(seed)), dtype=np.uint64)
    keys = mixed(of_names ^ of_seed)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    if np.count_nonzero(ordered[1:] == ordered[:-1]):  # once in a million years
        order = np.lexsort((np.array(uids, dtype=np.str_), keys))
    return order


@lru_cache(maxsize=8)  # the same boards in one cycle after the other
def _digests(uids: tuple[str, ...]) -> NDArray[np.uint64]:
    found = np.array(list(map(_digest, uids)), dtype=np.uint64)
    found.flags.writeable = False
    return found


@lru_cache(maxsize=8)
def _as_text(names: tuple[str, ...]) -> NDArray[np.str_]:
    found = np.array(names, dtype=np.str_)
    found.flags.writeable = False
    return found


@lru_cache(maxsize=1 << 16)
def _digest(uid: str) -> int:
    """Return a digest of a board's id, which is cached: ids come again in each cycle."""
    return _hash(uid)


def _hash(text: str) -> int:
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
