"""Ended attempts with the features of their decisions, as rows to learn from.

A row joins an attempt's outcome to the recorded cycle that placed it. The cycle is encoded again by
`edgeyard.scheduler.learning.features` for the board that ran it, so that a model is trained on the
numbers that it would have been given then, with the past that was known then.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import NotFound
from edgeyard.scheduler.decide.record import boards_of, cycle_input_of, policy_of
from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.learning.features import COLUMNS, Rows, raw
from edgeyard.scheduler.model.attempt import Outcome
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.model.cycle_record import CycleHead, CycleRecord
from edgeyard.scheduler.model.history import COMPARABLE, EPOCH
from edgeyard.scheduler.ports import Store
from edgeyard.scheduler.prediction.cool_down import mark_cooling
from edgeyard.scheduler.prediction.estimates import (
    BOARD_FAILURES,
    INCONCLUSIVE_FAILURES,
    PastPairs,
)

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Names = NDArray[np.str_]

MAX_CYCLES = 5_000
"""The newest recorded cycles that are read: some milliseconds each."""

CUT_SHORT = frozenset({FailureCategory.TIMEOUT, FailureCategory.OUT_OF_MEMORY})
"""Failures of runs that a limit ended: they would have lasted longer than they did."""

INVALID = "invalid"
"""The verdict on a measurement that says nothing of the board."""

_NOT_READ = "without the recorded cycle that decided them"
_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutcomeRows:
    """Ended attempts, in the order of their decisions.

    Attributes:
        values: Raw columns by name, shape (rows,) each; NaN where missing.
        location: Shape (rows,): middle of the history's distribution of ln seconds; NaN: nothing
            was known.
        scale: Shape (rows,), of the same distribution.
        error: Shape (rows,): standard error of the middle, a part of the scale.
        freedom: Shape (rows,): its degrees of freedom.
        loading_freedom: Shape (rows,): degrees of freedom of the history's distribution of loading.
        run_s: Shape (rows,), seconds; NaN where no run time can be learned from the row.
        censored: Shape (rows,): a limit ended the run, which would have lasted longer.
        failed: Shape (rows,).
        board_failed: Shape (rows,): it failed because of the board.
        loading_s: Shape (rows,), seconds from the placement to the start of its task; NaN: unknown.
        incomparable: Shape (rows,): 1 where the number of its result is not comparable, 0 where it
            is; NaN: none was judged.
        countable: Shape (rows,): whether its end says something of model or board.
        boards: Shape (rows,).
        users: Shape (rows,).
        benchmarks: Shape (rows,), their ids.
        cycles: Shape (rows,): numbers of the cycles that decided.
        decided_s: Shape (rows,), seconds since 1970.
        ended_s: Shape (rows,), seconds since 1970.
        seqs: Shape (rows,): numbers of the outcomes.
        left_out: Why outcomes are no rows, and how many.
    """

    values: Mapping[str, Floats]
    location: Floats
    scale: Floats
    error: Floats
    freedom: Floats
    loading_freedom: Floats
    run_s: Floats
    censored: Mask
    failed: Mask
    board_failed: Mask
    loading_s: Floats
    incomparable: Floats
    countable: Mask
    boards: Names
    users: Names
    benchmarks: Names
    cycles: NDArray[np.int64]
    decided_s: Floats
    ended_s: Floats
    seqs: NDArray[np.int64]
    left_out: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.run_s)

    def only(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> OutcomeRows:
        """Return some of the rows, by a mask or by their places."""
        kept = {name: getattr(self, name)[rows] for name in _ARRAYS}
        return OutcomeRows(
            values={name: each[rows] for name, each in self.values.items()},
            left_out=self.left_out,
            **kept,
        )

    @property
    def digest(self) -> str:
        """SHA-256 of everything that is learned from."""
        found = hashlib.sha256()
        for name in _ARRAYS:
            array = getattr(self, name)
            data = "\n".join(array.tolist()).encode() if array.dtype.kind == "U" else array
            found.update(data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes())
        for name in sorted(self.values):
            found.update(self.values[name].tobytes())
        return found.hexdigest()


_ARRAYS = tuple(
    each.name for each in fields(OutcomeRows) if each.name not in ("values", "left_out")
)


@dataclass(frozen=True, slots=True)
class _EndedAttempt:
    """An outcome and the time at which its attempt was created."""

    outcome: Outcome
    created_at: datetime


def read_outcome_rows(
    store: Store,
    *,
    since: datetime | None = None,
    max_cycles: int = MAX_CYCLES,
    progress: Callable[[float], None] = lambda share: None,
) -> OutcomeRows:
    """Return the ended attempts of the newest recorded cycles.

    Args:
        store: It is only read, in short transactions.
        since: Only decisions at or after this time.
        max_cycles: How many of the newest cycles are read.
        progress: Called with the share that has been read.
    """
    left_out: Counter[str] = Counter()
    heads = _newest_cycles(store, since, max_cycles)
    oldest = min((each.decided_at for each in heads), default=None)
    ended = _ended(store, since, oldest, left_out)
    count = sum(map(len, ended.values()))
    parts: list[OutcomeRows] = []
    for number, head in enumerate(heads):
        if not count:
            break
        try:
            with store.read() as uow:
                record = uow.cycles.get(head.seq)
        except NotFound:  # deleted meanwhile for its age
            continue
        # The newest cycle before an attempt that placed its benchmark made the decision.
        mine: list[Outcome] = []
        for benchmark_id in boards_of(record):
            attempts = ended.get(benchmark_id, [])
            taken = [each for each in attempts if each.created_at >= record.decided_at]
            mine += [each.outcome for each in taken]
            ended[benchmark_id] = [each for each in attempts if each not in taken]
        if mine:
            count -= len(mine)
            parts.append(_rows_of(record, head.seq, mine, left_out))
        progress((number + 1) / len(heads))
    left_out[_NOT_READ] += count
    counted = {why: number for why, number in sorted(left_out.items()) if number}
    if not parts:
        return replace(_empty(), left_out=counted)
    rows = replace(joined(parts), left_out=counted)
    return rows.only(np.argsort(rows.decided_s, kind="stable"))


def _newest_cycles(store: Store, since: datetime | None, limit: int) -> list[CycleHead]:
    """Return the heads of the newest cycles that took effect, newest first."""
    with store.read() as uow:
        heads = uow.cycles.newest(since=0, limit=limit)
    return [each for each in heads if since is None or each.decided_at >= since]


def _ended(
    store: Store, since: datetime | None, oldest: datetime | None, left_out: Counter[str]
) -> dict[str, list[_EndedAttempt]]:
    """Return the outcomes that can be rows, by benchmark.

    Args:
        store: It is only read.
        since: Only attempts that ended from then on.
        oldest: Time of the oldest decision that is read; None: none is.
        left_out: Counts why others can't be rows.
    """
    with store.read() as uow:
        outcomes = uow.attempts.outcomes(since=since)
    found: dict[str, list[_EndedAttempt]] = {}
    for start in range(0, len(outcomes), _PAGE):
        with store.read() as uow:
            for outcome in outcomes[start : start + _PAGE]:
                if outcome.target_uid is None:
                    left_out["on an unknown board"] += 1
                    continue
                if oldest is None or outcome.ended_at < oldest:
                    left_out[_NOT_READ] += 1
                    continue
                attempts = uow.attempts.of(outcome.benchmark_id)
                created = next(
                    (each.created_at for each in attempts if each.number == outcome.attempt), None
                )
                if created is None:
                    left_out["whose attempt is no longer stored"] += 1
                elif outcome.ended_at < created:
                    left_out["that ended before they began: a clock was set"] += 1
                else:
                    found.setdefault(outcome.benchmark_id, []).append(
                        _EndedAttempt(outcome, created)
                    )
    return found


def _rows_of(
    record: CycleRecord, seq: int, outcomes: Sequence[Outcome], left_out: Counter[str]
) -> OutcomeRows:
    """Encode the pairs of one cycle."""
    given, policy = cycle_input_of(record), policy_of(record)
    place = {uid: row for row, uid in enumerate(given.snapshot.uids)}
    known = [each for each in outcomes if each.target_uid in place]
    left_out["on a board that the cycle did not know"] += len(outcomes) - len(known)
    row_of = {each.benchmark_id: row for row, each in enumerate(given.pending)}
    batch = build_batch(
        mark_cooling(given.snapshot, given.knowledge.runs, given.now, policy.cool_down_s),
        given.pending,
        given.now,
        given.seed,
        given.knowledge,
        policy.twin_max_age_s,
        policy.prediction_wait_s,
    )
    jobs = np.array([row_of[each.benchmark_id] for each in known], dtype=np.intp)
    rows = batch.class_of_job[jobs]
    boards = np.array([place[str(each.target_uid)] for each in known], dtype=np.intp)
    pairs = PastPairs(batch, rows, boards)
    run_s = np.array([_run_s(each) for each in known], dtype=np.float64)
    categories = [each.failure_category for each in known]
    return OutcomeRows(
        values=raw(batch, rows, boards, list(COLUMNS)),
        **_by_history(pairs),
        run_s=run_s,
        censored=np.array([each in CUT_SHORT for each in categories], np.bool_),
        failed=np.array([each is not None for each in categories], np.bool_),
        board_failed=np.array([each in BOARD_FAILURES for each in categories], np.bool_),
        loading_s=np.array([_loading_s(each) for each in known], dtype=np.float64),
        incomparable=np.array([_incomparable(each) for each in known], dtype=np.float64),
        countable=np.array([each not in INCONCLUSIVE_FAILURES for each in categories], np.bool_),
        boards=np.array([each.target_uid for each in known], np.str_),
        users=np.array([each.user_id for each in known], np.str_),
        benchmarks=np.array([each.benchmark_id for each in known], np.str_),
        cycles=np.full(len(known), seq, np.int64),
        decided_s=np.full(len(known), (given.now - EPOCH).total_seconds()),
        ended_s=np.array([(each.ended_at - EPOCH).total_seconds() for each in known], np.float64),
        seqs=np.array([each.seq for each in known], np.int64),
        left_out={},
    )


def encoded_pairs(batch: Batch, rows: Rows, boards: Rows) -> OutcomeRows:
    """Return pairs of a cycle, of which none has an outcome, to predict for.

    Args:
        batch: Of the cycle.
        rows: Classes, shape (pairs,).
        boards: Boards, shape (pairs,).
    """
    missing, no = np.full(len(rows), np.nan), np.zeros(len(rows), np.bool_)
    names, numbers = np.full(len(rows), "", np.str_), np.zeros(len(rows), np.int64)
    return OutcomeRows(
        values=raw(batch, rows, boards, list(COLUMNS)),
        **_by_history(PastPairs(batch, rows, boards)),
        run_s=missing, censored=no, failed=no, board_failed=no, loading_s=missing,
        incomparable=missing, countable=no, boards=names, users=names,
        benchmarks=names, cycles=numbers, decided_s=missing, ended_s=missing, seqs=numbers,
        left_out={},
    )  # fmt: skip


def _by_history(pairs: PastPairs) -> dict[str, Floats]:
    """Return what the history predicts for pairs, by the names of `OutcomeRows`."""
    distribution = pairs.run_time_parts()
    return {
        "location": distribution.location,
        "scale": np.sqrt(distribution.noise + distribution.error),
        "error": np.sqrt(distribution.error),
        "freedom": distribution.freedom,
        "loading_freedom": pairs.loading_parts().freedom,
    }


def _run_s(outcome: Outcome) -> float:
    """Return the run time to learn from; NaN: there is none, or it is no time."""
    failure, run_s = outcome.failure_category, outcome.run_s
    usable = failure in CUT_SHORT or (failure is None and outcome.verdict != INVALID)
    if not usable or run_s is None or not np.isfinite(run_s) or run_s <= 0:
        return float("nan")
    return float(run_s)


def _loading_s(outcome: Outcome) -> float:
    """Return the time of loading to learn from; NaN: there is none, or it is no time."""
    loading_s = outcome.loading_s
    if loading_s is None or not np.isfinite(loading_s) or loading_s <= 0:
        return float("nan")
    return float(loading_s)


def _incomparable(outcome: Outcome) -> float:
    """Return 1 for a number that is not comparable, 0 for one that is, NaN for none."""
    return float("nan") if outcome.verdict is None else float(outcome.verdict != COMPARABLE)


def joined(parts: Sequence[OutcomeRows]) -> OutcomeRows:
    """Return all rows, part after part; ``left_out`` is the first part's."""
    whole = {name: np.concatenate([getattr(each, name) for each in parts]) for name in _ARRAYS}
    return OutcomeRows(
        values={name: np.concatenate([each.values[name] for each in parts]) for name in COLUMNS},
        left_out=parts[0].left_out,
        **whole,
    )


def _empty() -> OutcomeRows:
    none, no = np.empty(0), np.empty(0, np.bool_)
    names, numbers = np.empty(0, np.str_), np.empty(0, np.int64)
    return OutcomeRows(
        values=dict.fromkeys(COLUMNS, none),
        location=none, scale=none, error=none, freedom=none, loading_freedom=none, run_s=none,
        censored=no, failed=no, board_failed=no, loading_s=none, incomparable=none,
        countable=no, boards=names, users=names, benchmarks=names,
        cycles=numbers, decided_s=none, ended_s=none, seqs=numbers, left_out={},
    )  # fmt: skip
