"""Recorded cycles decided again, by their own policy or another; and compared with a shadow.

Each cycle is taken as it was recorded: what another policy would have done in one cycle does not
change the boards and the queue of the next. For that, simulate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.decide.record import (
    Recorder,
    cycle_input_of,
    faults_of,
    policy_of,
    result_of,
)
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.protocols import Answer, Proposal, Scorer, ScorerKind, ScoreUnit
from edgeyard.scheduler.framework.registry import Plugins, Registry
from edgeyard.scheduler.framework.runner import Fault, RecordedFaultError, answer_of
from edgeyard.scheduler.model.cycle_record import CycleRecord
from edgeyard.scheduler.prediction.estimates import run_times

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The boards of one benchmark, then and now.

    Attributes:
        then: Its board in the record; None: it waited.
        now: Its board in the replay; None: it waits.
    """

    benchmark_id: str
    then: str | None
    now: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleComparison:
    """A cycle that was decided twice.

    Attributes:
        pending: How many benchmarks waited.
        placed_ids_then: Those that were placed in the record.
        placed_ids_now: Those that are placed by the other decision.
        reordered_ids: Those that have another place in the queue.
        reprioritised: How many have another priority.
        preemptions: How many of them are only in one of both: who is stopped for whom.
        rescored: How many (class, board) pairs have another score, or a score only in one.
        differences: Of those with another board, by id.
        expected_then_s: Of those that both placed and whose run times are known: the sum of what
            was expected on the boards of the record.
        expected_now_s: As before, on the boards of the other decision.
    """

    decided_at: datetime
    policy: str
    pending: int
    placed_ids_then: frozenset[str]
    placed_ids_now: frozenset[str]
    reordered_ids: frozenset[str]
    reprioritised: int
    preemptions: int
    rescored: int
    differences: tuple[Difference, ...]
    expected_then_s: float
    expected_now_s: float

    @property
    def placed_then(self) -> int:
        """How many were placed in the record."""
        return len(self.placed_ids_then)

    @property
    def placed_now(self) -> int:
        """How many are placed by the other decision."""
        return len(self.placed_ids_now)

    @property
    def reordered(self) -> int:
        """How many have another place in the queue."""
        return len(self.reordered_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonTotals:
    """Several cycles that were decided twice; each benchmark counts once, however long it waited.

    Attributes:
        cycles: How many.
        same: In how many the boards and the order of the queue are the same.
        placed_then: Benchmarks that were placed in the record of one of them.
        placed_now: Benchmarks that the other decision places in one of them.
        reordered: Benchmarks that have another place in the queue in one of them.
        expected_then_s: Sums of the cycles'; both place a benchmark in the same cycle once.
        expected_now_s: As before.
    """

    cycles: int
    same: int
    placed_then: int
    placed_now: int
    reordered: int
    expected_then_s: float
    expected_now_s: float


def totals_of(cycles: Sequence[CycleComparison]) -> ComparisonTotals:
    """Add up cycles; one that waits, and that only one decision places, is decided in many."""

    def distinct(ids: Iterable[frozenset[str]]) -> int:
        return len(frozenset[str]().union(*ids))

    return ComparisonTotals(
        cycles=len(cycles),
        same=sum(not each.differences and not each.reordered_ids for each in cycles),
        placed_then=distinct(each.placed_ids_then for each in cycles),
        placed_now=distinct(each.placed_ids_now for each in cycles),
        reordered=distinct(each.reordered_ids for each in cycles),
        expected_then_s=sum(each.expected_then_s for each in cycles),
        expected_now_s=sum(each.expected_now_s for each in cycles),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCycle(CycleComparison):
    """A cycle that was decided again.

    Attributes:
        same: The decision is the same, byte for byte: order, verdicts, scores and boards. What
            scorers measured, such as the time of a solver, is no part of it.
    """

    same: bool


def replay(record: CycleRecord, registry: Registry, policy: Policy | None = None) -> ReplayedCycle:
    """Decide a recorded cycle again.

    Args:
        record: The cycle.
        registry: Of the plugins.
        policy: Another policy; None: its own. Scorers that answered then give the same answers,
            also those whose answers depend on time or on another machine. What was learned of
            scorers belongs to the recorded policy: another one begins with the weights that it
            states, and with no scorer suspended.

    Raises:
        ConfigError: A plugin of a policy is not installed.
    """
    given, own = cycle_input_of(record), policy_of(record)
    chosen = own if policy is None else policy
    if chosen != own:
        given = replace(given, knowledge=replace(given.knowledge, weights={}, suspended={}))
    then = result_of(record, registry.resolve(own))
    plugins = recorded(record, then, registry.resolve(chosen))
    now = decide(given, chosen, plugins)
    same = Recorder().record(given, now).digest == record.digest
    return _compared(partial(ReplayedCycle, same=same), record, then, now)


def compare_with_shadow(
    record: CycleRecord, shadow: CycleRecord, registry: Registry
) -> CycleComparison:
    """Return what a shadow decided in the same cycle.

    Args:
        record: The cycle as it was acted upon.
        shadow: The same as the shadow decided it; neither is decided again.
        registry: Of the plugins.

    Raises:
        ConfigError: A plugin of a policy is not installed.
    """
    then, now = (result_of(each, registry.resolve(policy_of(each))) for each in (record, shadow))
    return _compared(CycleComparison, record, then, now)


def _compared(
    make: Callable[..., _T], record: CycleRecord, then: CycleResult, now: CycleResult
) -> _T:
    before, after = _boards(then), _boards(now)
    ranks = {benchmark_id: rank for rank, benchmark_id in enumerate(then.order)}
    both = sorted(before.keys() & after.keys())
    expected = np.array([_expected_s(then, both, before), _expected_s(then, both, after)])
    known = ~np.isnan(expected).any(axis=0)
    return make(
        decided_at=record.decided_at,
        policy=record.policy,
        pending=len(then.order),
        placed_ids_then=frozenset(before),
        placed_ids_now=frozenset(after),
        reordered_ids=frozenset(
            benchmark_id
            for rank, benchmark_id in enumerate(now.order)
            if ranks[benchmark_id] != rank
        ),
        reprioritised=int((then.decided.priorities.values != now.decided.priorities.values).sum()),
        preemptions=len(_stopped(then) ^ _stopped(now)),
        rescored=_rescored(then, now),
        differences=tuple(
            Difference(
                benchmark_id=benchmark_id,
                then=before.get(benchmark_id),
                now=after.get(benchmark_id),
            )
            for benchmark_id in sorted(before.keys() | after.keys())
            if before.get(benchmark_id) != after.get(benchmark_id)
        ),
        expected_then_s=float(expected[0, known].sum()),
        expected_now_s=float(expected[1, known].sum()),
    )


def _stopped(result: CycleResult) -> set[tuple[str, str]]:
    return {(each.benchmark_id, each.victim_id) for each in result.preemptions}


def _rescored(then: CycleResult, now: CycleResult) -> int:
    first, second = then.decided.scores, now.decided.scores
    columns = then.decided.batch.shape[1]
    before, after = (each.pairs.rows * columns + each.pairs.boards for each in (first, second))
    both, at_first, at_second = np.intersect1d(
        before, after, assume_unique=True, return_indices=True
    )
    changed = first.combined[at_first] != second.combined[at_second]
    return int(changed.sum()) + len(before) + len(after) - 2 * len(both)


def _expected_s(
    result: CycleResult, benchmark_ids: Sequence[str], boards: Mapping[str, str]
) -> NDArray[np.float64]:
    """Return how long each was expected to run on its board, shape (benchmarks,); NaN: unknown."""
    decided = result.decided
    row_of_uid = {uid: row for row, uid in enumerate(decided.snapshot.uids)}
    jobs = [decided.row_of_id[each] for each in benchmark_ids]
    return run_times(
        decided.batch,
        decided.batch.class_of_job[jobs],
        np.array([row_of_uid[boards[each]] for each in benchmark_ids], dtype=np.intp),
    )


def recorded(record: CycleRecord, then: CycleResult, plugins: Plugins) -> Plugins:
    """Plugins of which those scorers that were asked in a recorded cycle repeat themselves."""
    scores = then.decided.scores
    answers = {each.scorer: each for each in scores.proposals}
    silent = {each.plugin: each for each in faults_of(record)}

    def of(scorer: Scorer) -> Scorer:
        answer = answers.get(scorer.name)
        if answer is not None:
            return _RepeatedAnswers(scorer, scores.pairs, answer)
        if scorer.name in silent:
            return _Silent(scorer, silent[scorer.name])
        return scorer

    return replace(
        plugins,
        scorers=tuple(
            replace(weighted, scorer=of(weighted.scorer)) for weighted in plugins.scorers
        ),
        fallback=None if plugins.fallback is None else of(plugins.fallback),
    )


class _RecordedAnswers:
    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self.name = scorer.name
        self.objective = scorer.objective
        self.kind: ScorerKind = scorer.kind
        self.unit: ScoreUnit = scorer.unit


class _RepeatedAnswers(_RecordedAnswers):
    """Gives the recorded answer; asks the scorer itself about pairs that it wasn't asked of."""

    def __init__(self, scorer: Scorer, pairs: Pairs, answer: Proposal) -> None:
        super().__init__(scorer)
        self._pairs, self._answer = pairs, answer

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        return self.answer(batch, pairs).scores

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        if np.array_equal(pairs.rows, self._pairs.rows) and np.array_equal(
            pairs.boards, self._pairs.boards
        ):
            recorded = self._answer
            return Answer(
                scores=recorded.scores,
                errors=recorded.errors,
                facts=recorded.facts,
                fallback=recorded.fallback,
                kind=recorded.kind,
            )
        return answer_of(self._scorer, batch, pairs)


class _Silent(_RecordedAnswers):
    """Fails as it failed then."""

    def __init__(self, scorer: Scorer, fault: Fault) -> None:
        super().__init__(scorer)
        self._fault = fault

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        raise RecordedFaultError(self._fault)


def _boards(result: CycleResult) -> Mapping[str, str]:
    return {each.benchmark_id: each.target_uid for each in result.placements}
