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
        """Name of the plugin in policies and reports."""
        ...

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """Return ranks of shape (jobs,), a permutation of 0..jobs-1; 0 comes first.

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
    """Accepts or refuses each board for each class of benchmarks, and says why."""

    @property
    def name(self) -> str:
        """Name of the plugin in policies and reports."""
        ...

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Return the filter's reasons for refusals; code k of `admit` means ``refusals[k - 1]``."""
        ...

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        """Return 0 where a board is accepted for a class, otherwise the code of a refusal.

        Returns:
            Shape (classes, boards), or (1, boards) or (classes, 1) where it is the same for all.
        """
        ...

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        """Return what is wrong with the board for the class, to go after its name.

        For instance "is offline (its host pi-1 is down)". Called only for pairs that were refused.
        The same state gives the same words: no clock times that pass, no ages.

        Args:
            row: The class.
            board: Row of the board in the snapshot.
            code: The refusal, as `admit` gave it for this pair: from 1, in the order of
                ``refusals``.
        """
        ...

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        """Return a sentence which states that no board will ever do, and what would be accepted.

        Args:
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
        """Record that a benchmark got a board, which counts against its user from now on."""
        ...

    def withdraw(self, job: int) -> None:
        """Take back what `place` counted: the job gets no board after all."""
        ...


@runtime_checkable
class UserFilter(Filter, Protocol):
    """A filter that also bounds users: what one gets in a cycle counts for the next."""

    def ledger(self, batch: Batch) -> Ledger | None:
        """Return a new ledger for each cycle; None where the filter bounds no user."""
        ...


class ScorerKind(StrEnum):
    """How a scorer finds its answer; evaluators choose the references of others by it."""

    HEURISTIC = "heuristic"  # a rule; always has an answer
    HISTORY = "history"  # a statistic of past runs; silent where there are none
    ILP = "ilp"  # an optimum of a stated objective, or the best found in its time
    MODEL = "model"  # a trained function of tensors

    @property
    def is_rule(self) -> bool:
        """Whether nothing is optimised or trained: models and programmes are compared with it."""
        return self in (ScorerKind.HEURISTIC, ScorerKind.HISTORY)


class ScoreUnit(StrEnum):
    """Unit of a scorer's scores."""

    SECONDS = "seconds"  # expected from the start of a run to its end; less is better
    FAILURE = "failure"  # the probability that a run fails, 0 to 1; less is better
    CREDITS = "credits"  # expected for a run; less is better
    JOULES = "joules"  # expected for a run; less is better
    PREFERENCE = "preference"  # 0 to 1, more is better; it only decides between near-ties

    @property
    def is_share(self) -> bool:
        """Whether its numbers lie between 0 and 1; the others are amounts from 0 upwards."""
        return self in (ScoreUnit.FAILURE, ScoreUnit.PREFERENCE)


class Scorer(Protocol):
    """Says how good a board is for a class, in a unit that it states."""

    @property
    def name(self) -> str:
        """Name of the plugin in policies and reports."""
        ...

    @property
    def objective(self) -> str:
        """The objective that it improves, in a word: ``load``, ``latency``, ``energy``..."""
        ...

    @property
    def kind(self) -> ScorerKind:
        """Whether it is a rule, a statistic of past runs, an optimisation or a trained model."""
        ...

    @property
    def unit(self) -> ScoreUnit:
        """Unit of the scores."""
        ...

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """Return scores of shape (pairs,) in the scorer's unit; NaN where it abstains.

        NaN is how a scorer says nothing of a pair: beyond its window, or of a board that never
        ran. All of an answer may be NaN; that is no fault. So let no NaN of a computation through:
        what is broken shall raise (models that give NaN do). Infinite and negative numbers, shares
        above 1, and seconds that are thousands of times what such runs took are faults also among
        NaN: the whole answer is dropped, and who faults repeatedly is not asked for a while.

        Args:
            pairs: The pairs that passed all filters, and the time for an answer.

        Returns:
            Shape (pairs,).
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """Everything that a scorer says.

    Attributes:
        scores: As `Scorer.score` returns them.
        errors: Shape (pairs,): their standard errors, in the same unit; NaN where the score is.
            Differences within them count as ties. None: they are not known, and count as 0.
        facts: Diagnostics by name (``gap``, ``seconds``, ...); no decision depends on them.
        fallback: What the answer is instead, and why, if it is not what the scorer's kind states,
            for example a simple rule's plan because the solver found none in time; "" otherwise.
            It counts as an answer of a heuristic, and is neither rated nor rates others.
        kind: How this answer was found; None: as the scorer's kind states.
    """

    scores: NDArray[np.float32]
    errors: NDArray[np.float32] | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
    fallback: str = ""
    kind: ScorerKind | None = None


@runtime_checkable
class DetailedScorer(Scorer, Protocol):
    """A scorer that knows its errors, or has diagnostics: an optimality gap, what it planned."""

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """Return the scores of `answer`."""
        return self.answer(batch, pairs).scores

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        """Return what `score` returns, and more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposal:
    """A scorer's answer in a cycle.

    Attributes:
        weight: How much it counts in this cycle.
        scores: Shape (pairs,), in ``unit``; NaN where it abstained.
        errors: As in `Answer`.
        facts: As in `Answer`.
        fallback: As in `Answer`.
    """

    scorer: str
    objective: str
    kind: ScorerKind
    unit: ScoreUnit
    weight: float
    scores: NDArray[np.float32]
    errors: NDArray[np.float32] | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
    fallback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Costs:
    """What a run on a board is expected to cost, in seconds.

    Attributes:
        total_s: Shape (pairs,); NaN for classes of which nothing is known.
        error_s: Shape (pairs,): its standard error.
        parts_s: What the total is made of, by name: ``run`` (NaN where no run time is known),
            ``failures``, ``credits``, ``joules``; shape (pairs,) each.
    """

    total_s: NDArray[np.float32]
    error_s: NDArray[np.float32]
    parts_s: Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Combination:
    """The scorers' answers made one.

    Attributes:
        scores: Shape (pairs,), 0 to 1, more is better; NaN where all scorers abstained.
        costs: None: no scorer stated any.
    """

    scores: NDArray[np.float32]
    costs: Costs | None = None


class Evaluator(Protocol):
    """Compares the scorers' answers. It rates; what follows from it is the aggregator's."""

    @property
    def name(self) -> str:
        """Name of the plugin in policies and reports."""
        ...

    def evaluate(
        self, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]
    ) -> Mapping[str, float]:
        """Return a reward in [0, 1] for each scorer that could be rated, by name.

        Args:
            pairs: The pairs of class and board that passed all filters.
            proposals: The answers of the scorers that did not fail, one number per pair each.
        """
        ...


class Aggregator(Protocol):
    """Weighs the scorers' answers into one."""

    @property
    def name(self) -> str:
        """Name of the plugin in policies and reports."""
        ...

    def combine(self, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]) -> Combination:
        """Return one score a pair."""
        ...

    def learn(
        self,
        prior: Mapping[str, float],
        weights: Mapping[str, float],
        rewards: Mapping[str, float],
    ) -> Mapping[str, float]:
        """Return the weights by scorer after a round of rewards; the engine stores them.

        Args:
            prior: As the policy states them, of all its scorers.
            weights: As learned so far; none at the beginning.
            rewards: Of those that were rated.

        Returns:
            Of all the policy's scorers, none below 0.
        """
        ...
