"""The extension points of a cycle: contracts only.

A plugin is one object, which is made once and used for every decision of its policy. Cycles,
previews, forecasts and explanations call it from several threads, but never two at once: one lock
covers the plugins of a policy, for as long as a call takes, so a slow call delays the next cycle. A
plugin reads what it is given and changes none of it, keeps no state between calls, and draws random
numbers only from ``batch.seed``: the same batch gives the same answer. `edgeyard.plugins.testing`
has the tests that check this; the framework's runner times each call, checks its answer, and goes
on without a plugin that raises or answers nonsense.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, Queue
from edgeyard.scheduler.model.benchmark import WaitingReason, WaitReason


class QueuePolicy(Protocol):
    """Orders pending benchmarks: of the lab, or of a log that is replayed.

    A policy may state ``time_invariant = True``: which of two benchmarks comes first depends on
    these two alone, never on the time or on who else waits, as long as their run times are known
    and none has reached the guard time. Replays then ask it once for a whole log.
    """

    @property
    def name(self) -> str:
        """By which policies and reports call it."""
        ...

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """Ranks: shape (jobs,), a permutation of 0..jobs-1; 0 comes first.

        Must not depend on the order in which the benchmarks are handed in: break ties by id.
        """
        ...

    def reason(self, queue: Queue, job: int) -> str:
        """Return why a benchmark has its place in the queue, in words."""
        ...


def is_time_invariant(policy: QueuePolicy) -> bool:
    """Return whether the policy states that its order of two benchmarks never changes."""
    return getattr(policy, "time_invariant", False) is True


@dataclass(frozen=True, slots=True)
class Refusal:
    """One of the ways in which a filter says no.

    Attributes:
        reason: The stable code that users see.
        never: Waiting doesn't help: only another board or another description would.
    """

    reason: WaitingReason
    never: bool


class Filter(Protocol):
    """Says yes or no to (class, board), and why."""

    @property
    def name(self) -> str:
        """By which policies and reports call it."""
        ...

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Its ways to say no; code k of `admit` means ``refusals[k - 1]``."""
        ...

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """0 where the board passes, else the code of a refusal.

        Shape (classes, boards), or (1, boards) or (classes, 1) where it is the same for all.
        """
        ...

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """Return what is wrong with the board for the class, to go after its name.

        For instance "is offline (its host pi-1 is down)". Asked only for pairs that were refused.
        The same state gives the same words: no clock times that pass, no ages.
        """
        ...

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """That no board will ever do, and what would be accepted, in a sentence.

        Args:
            batch: The batch.
            row: The class.
            boards: Rows of the boards that come nearest, all refused by this filter for ever.

        Returns:
            For instance "no board of family rpi9 is known; known families: rpi4b"; "" where the
            filter never says never, or has no better words than `phrase`.
        """
        return ""


class Ledger(Protocol):
    """What one decision has given to each user so far, and which users that stops.

    Belongs to one decision on one thread. It holds all that it needs and calls no plugin.
    """

    def refusal(self, job: int) -> WaitReason | None:
        """Return why this benchmark gets no board in this cycle, whichever is free; None: it may.

        The same state gives the same words: no clock times that pass, no ages.
        """
        ...

    def place(self, job: int) -> None:
        """It got a board: from now on that counts against its user."""
        ...


@runtime_checkable
class UserFilter(Filter, Protocol):
    """A filter that also bounds users: what one gets in a cycle counts for the next."""

    def ledger(self, batch: Batch) -> Ledger | None:
        """Return a new ledger for each cycle; None where the filter bounds no user."""
        ...


class ScorerKind(StrEnum):
    """What stands behind a scorer's answer; it decides who is whose reference."""

    HEURISTIC = "heuristic"  # a rule; always has an answer
    ILP = "ilp"  # an optimum of a stated objective, or the best found in its time
    AI = "ai"  # learned


class Scorer(Protocol):
    """Says how good a board is for a class."""

    @property
    def name(self) -> str:
        """By which policies and reports call it."""
        ...

    @property
    def objective(self) -> str:
        """What it is good for, in a word: ``load``, ``latency``, ``energy``..."""
        ...

    @property
    def kind(self) -> ScorerKind:
        """See there."""
        ...

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """Scores in [0, 1], higher is better; NaN where it abstains.

        NaN is how a scorer says nothing of a pair: beyond its window, or of a board that never
        ran. All of an answer may be NaN; that is no fault. So let no NaN of a computation through:
        what is broken shall raise (models that give NaN do). Infinite scores, and others outside
        of 0 to 1, are faults also among NaN: the whole answer is dropped, and who faults
        repeatedly is not asked for a while.

        Only the order and the distances within one class count: scores are spread over 0 to 1
        class by class before they are weighed.

        Args:
            batch: The batch.
            pairs: The pairs that passed all filters, and the time for an answer.

        Returns:
            Shape (pairs,).
        """
        ...


@runtime_checkable
class DiagnosticScorer(Scorer, Protocol):
    """A scorer that returns diagnostics with its scores: an optimality gap, what it planned."""

    def answer(self, batch: Batch, pairs: Pairs) -> tuple[NDArray[np.float32], Mapping[str, float]]:
        """Return what `score` gives, and figures by name (``gap``, ``seconds``, ...); no decision
        depends on these."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposal:
    """A scorer's answer.

    Attributes:
        weight: How much it counts in this cycle.
        scores: Shape (pairs,), as it gave them.
        normalized_scores: Shape (pairs,): spread over 0 to 1 within each class; a half where all
            are equal, NaN where it abstained.
        facts: Diagnostics of a `DiagnosticScorer`.
    """

    scorer: str
    objective: str
    kind: ScorerKind
    weight: float
    scores: NDArray[np.float32]
    normalized_scores: NDArray[np.float32]
    facts: Mapping[str, float] = field(default_factory=dict)


class Evaluator(Protocol):
    """Compares the scorers' answers. It rates; what follows from it is the aggregator's."""

    @property
    def name(self) -> str:
        """By which policies and reports call it."""
        ...

    def evaluate(
        self, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]
    ) -> Mapping[str, float]:
        """Return a reward in [0, 1] for each scorer that could be rated, by name."""
        ...


class Aggregator(Protocol):
    """Weighs the scorers' answers into one."""

    @property
    def name(self) -> str:
        """By which policies and reports call it."""
        ...

    def combine(
        self, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]
    ) -> NDArray[np.float32]:
        """Return scores from their ``normalized_scores``, shape (pairs,), in [0, 1].

        They are NaN where all abstained.
        """
        ...

    def learn(
        self,
        prior: Mapping[str, float],
        weights: Mapping[str, float],
        rewards: Mapping[str, float],
    ) -> Mapping[str, float]:
        """The weights after a round of rewards, by scorer; called by the engine, which keeps them.

        Args:
            prior: As the policy states them, of all its scorers.
            weights: As learned so far; none at the beginning.
            rewards: Of those that were rated.

        Returns:
            Of all the policy's scorers, none below 0.
        """
        ...
