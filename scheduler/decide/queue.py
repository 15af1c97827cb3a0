"""The queue: pending benchmarks in the order in which boards are given out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import (
    TURN_SIZE,
    Batch,
    Outlook,
    PastArrivals,
    Places,
    Queue,
    by_value,
    family_numbers,
    is_board,
    other_families,
    pairs_of,
)
from edgeyard.scheduler.framework.policy import PriorityMode
from edgeyard.scheduler.framework.protocols import QueuePolicy
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import Entitlement
from edgeyard.scheduler.prediction.estimates import run_times
from edgeyard.scheduler.prediction.simulated_lab import expected_left_s
from edgeyard.scheduler.prediction.timeline import elapsed_times

_BOARDS_PER_CLASS = 5
"""Boards whose predictions are averaged for a class, as boards of a family differ little."""

_UNBOUNDED = Entitlement()

_MAX_PAST_ARRIVALS = 500
"""Newest arrivals that policies may look back at."""

_MAX_PAST_RUNS = 2000
"""Newest ended runs that are searched for them."""

_QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Quantiles of predicted run times: the medians of five equally likely intervals."""


def build_queue(
    pending: Sequence[PendingBenchmark],
    now: datetime,
    priorities: NDArray[np.int64],
    ages: NDArray[np.float64],
    slacks: NDArray[np.float64],
    *,
    batch: Batch,
    base_priorities: NDArray[np.int64] | None,
    holders: Sequence[BoardHolder] = (),
    guard_s: float = 86400.0,
    mode: PriorityMode = PriorityMode.COMPUTED,
) -> Queue:
    """Build the columns that queue policies read.

    In FIFO mode the queue goes by submission: a campaign that has started comes first nowhere.

    Args:
        pending: The benchmarks that wait.
        now: Time of the cycle.
        priorities: Shape (jobs,), 1-100.
        ages: Shape (jobs,), seconds since the submission.
        slacks: Shape (jobs,), seconds to the deadline less the stated run time; NaN without one.
        batch: The cycle's batch, whose jobs are ``pending``.
        base_priorities: Shape (jobs,), priorities without what waiting adds; None in FIFO mode.
        holders: What runs on the boards that are busy; counts for the users' usage.
        guard_s: Wait after which a benchmark is not overtaken by younger ones, seconds.
        mode: How priorities are made.

    Returns:
        The columns, one row for each benchmark in the order of ``pending``.
    """
    known = batch.knowledge.entitlements
    entitled = [known.get(each.user_id, _UNBOUNDED) for each in pending]
    groups = tuple(
        each.group_id if each.group_id and each.group_id in batch.knowledge.groups else ""
        for each in entitled
    )
    of_group = [batch.knowledge.groups.get(each, _UNBOUNDED) for each in groups]
    return Queue(
        now=now,
        ids=tuple(each.benchmark_id for each in pending),
        users=tuple(each.user_id for each in pending),
        priorities=priorities,
        base_priorities=base_priorities,
        ages_s=ages,
        waits_s=_waits_s(pending, now, ages),
        slacks_s=slacks,
        partly_running=np.array(
            [each.campaign_started and mode is not PriorityMode.FIFO for each in pending],
            dtype=bool,
        ),
        usage_board_s=np.array([each.usage_board_s for each in entitled], dtype=np.float64),
        shares=np.array([each.share for each in entitled], dtype=np.float64),
        groups=groups if any(groups) else (),
        group_usage_board_s=np.array([each.usage_board_s for each in of_group], dtype=np.float64),
        group_shares=np.array([each.share for each in of_group], dtype=np.float64),
        submit_times_s=now.timestamp() - ages,
        processors=np.ones(len(pending), dtype=np.int64),
        guard_s=guard_s,
        estimate=lambda: batch.derived(_predicted_s)[batch.class_of_job],
        turn_size=None if mode is PriorityMode.FIFO else TURN_SIZE,
        look_out=lambda: _outlook(batch, holders, pending, ages),
        list_places=lambda: _places(batch),
    )


def _places(batch: Batch) -> Places:
    """Return the boards of each class's family that are online, or the one that it names."""
    named = by_value(batch, batch.target_uids, partial(is_board, batch))
    fits = ~other_families(batch) & named & batch.snapshot.online
    return Places(batch=batch, pairs=pairs_of(np.broadcast_to(fits, batch.shape)))


def _outlook(
    batch: Batch,
    holders: Sequence[BoardHolder],
    pending: Sequence[PendingBenchmark],
    ages: NDArray[np.float64],
) -> Outlook:
    """Return the boards of each family as a pool, with their runs and what has arrived for them."""
    snapshot, row_of_uid = batch.snapshot, batch.row_of_uid
    number_of, of_board = family_numbers(batch)
    names = [*number_of, *sorted(set(batch.families) - set(number_of))]
    number = {name: place for place, name in enumerate(names)}
    usable = snapshot.online & snapshot.healthy & ~snapshot.drained
    free = np.bincount(of_board[usable & ~snapshot.busy], minlength=len(names))
    running = [each for each in holders if each.target_uid in row_of_uid]
    boards = np.array([row_of_uid[each.target_uid] for each in running], dtype=np.intp)
    kept = usable[boards]
    elapsed_s = elapsed_times(batch, running)
    total_s = elapsed_s + expected_left_s(batch, running)
    of_class = np.array([number[family] for family in batch.families], dtype=np.int64)
    samples_s = np.stack([_predicted_s(batch, each) for each in _QUANTILES], axis=1)
    samples_s = samples_s[batch.class_of_job]
    none = np.zeros((int(kept.sum()), 0))
    pools = of_class[batch.class_of_job]
    here = _Arrivals(
        ids=[each.benchmark_id for each in pending] + [each.benchmark_id for each in running],
        pools=np.concatenate((pools, of_board[boards])),
        # when those that run were submitted is not known any more
        ago_s=np.concatenate((ages, elapsed_s)),
        expected_s=np.concatenate((batch.derived(_predicted_s)[batch.class_of_job], total_s)),
    )
    return Outlook(
        names=tuple(names),
        pools=pools,
        free=free.astype(np.int64),
        samples_s=samples_s,
        weights=np.ones_like(samples_s),
        running_pools=of_board[boards[kept]].astype(np.int64),
        running_processors=np.ones(int(kept.sum()), dtype=np.int64),
        elapsed_s=elapsed_s[kept],
        requested_s=total_s[kept],
        running_samples_s=none,
        running_weights=none,
        past=_past(batch, number, here),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Arrivals:
    """Benchmarks that wait or run; shape (benchmarks,) each.

    Attributes:
        ago_s: How long ago each arrived.
        expected_s: How long each is expected to run in all; NaN: not known.
    """

    ids: Sequence[str]
    pools: NDArray[np.intp]
    ago_s: NDArray[np.float64]
    expected_s: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _EndedArrivals:
    """Benchmarks whose runs have ended, by their last run; shape (benchmarks,) each.

    Attributes:
        families: Shape (names,): all that the history knows; `family` is a place in it.
        arrived_s: Seconds since 1970.
        expected_s: Mean run time of the same kind on boards of the family.
        since_s: Since then all arrivals are known: those here and those that wait or run.
    """

    ids: NDArray[np.object_]
    families: Sequence[str]
    family: NDArray[np.int32]
    arrived_s: NDArray[np.float64]
    run_s: NDArray[np.float64]
    expected_s: NDArray[np.float64]
    since_s: float


def _ended_arrivals(history: History) -> _EndedArrivals:
    """Return the arrivals of the newest `_MAX_PAST_RUNS`; who never started is left out."""
    columns, count = history.columns, len(history)
    rows = np.arange(max(count - _MAX_PAST_RUNS, 0), count)
    # older ones may have arrived before the first of these ended, but not after it
    since_s = -np.inf if count <= _MAX_PAST_RUNS else float(columns.ended_s[rows[0]])
    run_s, wait_s = columns.run_s[rows], columns.wait_s[rows]
    rows = rows[~(np.isnan(run_s) | np.isnan(wait_s))]
    # each attempt has the submission of its benchmark: the last one counts
    ids = columns.benchmark_ids[rows].astype(np.str_)
    rows = rows[len(rows) - 1 - np.unique(ids[::-1], return_index=True)[1]]
    run_s = columns.run_s[rows]
    alike = columns.families[rows].astype(np.int64) * len(history.names.kinds.names)
    _, group = np.unique(alike + columns.kinds[rows], return_inverse=True)
    sums, counts = np.bincount(group, weights=run_s), np.bincount(group)
    return _EndedArrivals(
        ids=columns.benchmark_ids[rows],
        families=history.names.families.names,
        family=columns.families[rows],
        arrived_s=columns.ended_s[rows] - run_s - columns.wait_s[rows],
        run_s=run_s,
        expected_s=(sums / np.maximum(counts, 1))[group],
        since_s=since_s,
    )


def _past(batch: Batch, number: Mapping[str, int], here: _Arrivals) -> PastArrivals:
    """Return what has arrived so far: benchmarks that have ended, that run and that wait.

    Args:
        number: Of each family's pool.
        here: What runs or waits.
    """
    ended = batch.knowledge.runs.derived(_ended_arrivals)
    live = set(here.ids)  # one that runs again has not ended
    kept = np.array([each not in live for each in ended.ids], dtype=np.bool_)
    pool_of = np.array([number.get(each, -1) for each in ended.families], dtype=np.int64)
    pools = np.concatenate((pool_of[ended.family[kept]], here.pools))
    now_s = batch.now.timestamp()
    ago_s = np.concatenate((now_s - ended.arrived_s[kept], here.ago_s))
    run_s = np.concatenate((ended.run_s[kept], np.full(len(here.ids), np.nan)))
    expected_s = np.concatenate((ended.expected_s[kept], here.expected_s))
    complete = ago_s <= now_s - ended.since_s
    known = np.flatnonzero(complete & (pools >= 0) & ~np.isnan(expected_s))
    order = known[np.argsort(-ago_s[known], kind="stable")][-_MAX_PAST_ARRIVALS:]
    none = np.zeros((len(order), 0))
    return PastArrivals(
        pools=pools[order],
        ago_s=ago_s[order],
        processors=np.ones(len(order), dtype=np.int64),
        requested_s=expected_s[order],
        run_s=run_s[order],
        samples_s=none,
        weights=none,
    )


def _waits_s(
    pending: Sequence[PendingBenchmark], now: datetime, ages: NDArray[np.float64]
) -> NDArray[np.float64]:
    waits = ages
    for job, each in enumerate(pending):
        if each.start_time is not None:
            waits = ages.copy() if waits is ages else waits
            waits[job] = min(ages[job], max((now - each.start_time).total_seconds(), 0.0))
    return waits


def _predicted_s(batch: Batch, quantile: float = 0.5) -> NDArray[np.float64]:
    """Return `Queue.run_times_s`, or another quantile, by class, shape (classes,)."""
    limits = np.fmin(batch.user_times_s, batch.budget_times_s)
    rows, boards = batch.derived(_boards_to_predict)
    if not len(rows):
        return limits
    found = np.full((len(limits), _BOARDS_PER_CLASS), np.nan)
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    found[rows, place] = run_times(batch, rows, boards, quantile)
    return np.fmin(_row_medians(found), limits)


def _row_medians(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `numpy.nanmedian` of each row, which takes ten times as long for a short queue."""
    ordered = np.sort(table, axis=1)
    count = np.count_nonzero(~np.isnan(ordered), axis=1)
    row = np.arange(len(table))
    medians: NDArray[np.float64] = (ordered[row, (count - 1) // 2] + ordered[row, count // 2]) / 2.0
    return medians


def _boards_to_predict(batch: Batch) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return pairs: with each class the board that it names, or the first ones of its family."""
    by_name = np.argsort(np.array(batch.snapshot.uids, dtype=np.str_), kind="stable")
    row_of_uid = batch.row_of_uid
    of_family = {
        family: by_name[np.equal(batch.board_families, family)[by_name]][:_BOARDS_PER_CLASS]
        for family in sorted(set(batch.families))
    }
    lookups = [
        np.array([row_of_uid[uid]]) if uid in row_of_uid else of_family[family]
        for uid, family in zip(batch.target_uids, batch.families, strict=True)
    ]
    counts = np.array([len(each) for each in lookups], dtype=np.intp)
    rows = np.repeat(np.arange(len(lookups)), counts)
    return rows, np.concatenate([*lookups, np.zeros(0, dtype=np.intp)])


def order_queue(queue: Queue, policy: QueuePolicy, runner: PluginRunner) -> NDArray[np.intp]:
    """Return rows of benchmarks, first to last; by priority and age if the policy fails.

    Returns:
        Shape (jobs,), a permutation.
    """
    ranks = runner.order(policy, queue)
    if ranks is None:
        return np.lexsort((np.array(queue.ids, dtype=np.str_), -queue.ages_s, -queue.priorities))
    return np.argsort(ranks, kind="stable")
