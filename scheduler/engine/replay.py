"""Recorded cycles decided again: by their own policy, or by another.

Each cycle is taken as it was recorded: what another policy would have done in one cycle does not
change the boards and the queue of the next. For that, simulate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.decide.record import Recorder, faults_of, given_of, policy_of, result_of
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.protocols import Proposal, Scorer, ScorerKind
from edgeyard.scheduler.framework.registry import Plugins, Registry
from edgeyard.scheduler.framework.runner import Fault, RecordedFaultError
from edgeyard.scheduler.model.record import CycleRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What became of one benchmark, then and now.

    Attributes:
        then: Its board in the record; None: it waited.
        now: Its board in the replay; None: it waits.
    """

    benchmark_id: str
    then: str | None
    now: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A cycle that was decided again.

    Attributes:
        same: The decision is the same, byte for byte: order, verdicts, scores and boards.
        pending: How many benchmarks waited.
        placed_then: How many were placed in the record.
        placed_now: How many are placed in the replay.
        reordered: How many have another place in the queue.
        differences: Of those with another board, by id.
    """

    decided_at: datetime
    policy: str
    same: bool
    pending: int
    placed_then: int
    placed_now: int
    reordered: int
    differences: tuple[Difference, ...]


def replay(record: CycleRecord, registry: Registry, policy: Policy | None = None) -> Replayed:
    """Decide a recorded cycle again.

    Args:
        record: The cycle.
        registry: Of the plugins.
        policy: Another policy; None: its own. Scorers that answered then give the same answers,
            also those whose answers depend on time or on another machine.

    Raises:
        ConfigError: A plugin of a policy is not installed.
    """
    given, own = given_of(record), policy_of(record)
    chosen = own if policy is None else policy
    then = result_of(record, registry.resolve(own))
    plugins = recorded(record, then, registry.resolve(chosen))
    now = decide(given, chosen, plugins)
    before, after = _boards(then), _boards(now)
    ranks = {benchmark_id: rank for rank, benchmark_id in enumerate(then.order)}
    return Replayed(
        decided_at=record.decided_at,
        policy=record.policy,
        same=Recorder().record(given, now).digest == record.digest,
        pending=len(then.order),
        placed_then=len(before),
        placed_now=len(after),
        reordered=sum(ranks[benchmark_id] != rank for rank, benchmark_id in enumerate(now.order)),
        differences=tuple(
            Difference(
                benchmark_id=benchmark_id,
                then=before.get(benchmark_id),
                now=after.get(benchmark_id),
            )
            for benchmark_id in sorted(before.keys() | after.keys())
            if before.get(benchmark_id) != after.get(benchmark_id)
        ),
    )


def recorded(record: CycleRecord, then: CycleResult, plugins: Plugins) -> Plugins:
    """Plugins of which those scorers that were asked in a recorded cycle repeat themselves."""
    scores = then.decided.scores
    answers = {each.scorer: each for each in scores.proposals}
    silent = {each.plugin: each for each in faults_of(record)}

    def of(scorer: Scorer) -> Scorer:
        answer = answers.get(scorer.name)
        if answer is not None:
            return _Repeated(scorer, scores.pairs, answer)
        if scorer.name in silent:
            return _Silent(scorer, silent[scorer.name])
        return scorer

    return replace(
        plugins,
        scorers=tuple(replace(seat, scorer=of(seat.scorer)) for seat in plugins.scorers),
        fallback=None if plugins.fallback is None else of(plugins.fallback),
    )


class _Recorded:
    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self.name = scorer.name
        self.objective = scorer.objective
        self.kind: ScorerKind = scorer.kind


class _Repeated(_Recorded):
    """Gives the recorded answer; asks the scorer itself about pairs that it wasn't asked of."""

    def __init__(self, scorer: Scorer, pairs: Pairs, answer: Proposal) -> None:
        super().__init__(scorer)
        self._pairs, self._answer = pairs, answer

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        if np.array_equal(pairs.rows, self._pairs.rows) and np.array_equal(
            pairs.boards, self._pairs.boards
        ):
            return self._answer.scores
        return self._scorer.score(batch, pairs)


class _Silent(_Recorded):
    """Fails as it failed then."""

    def __init__(self, scorer: Scorer, fault: Fault) -> None:
        super().__init__(scorer)
        self._fault = fault

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        raise RecordedFaultError(self._fault)


def _boards(result: CycleResult) -> Mapping[str, str]:
    return {each.benchmark_id: each.target_uid for each in result.placements}
