"""Calls plugins: times each call, checks the answer, and names who fails.

Time comes from outside: the core reads no clock, and without one nothing is timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch, Pairs, Queue
from edgeyard.scheduler.framework.protocols import (
    Aggregator,
    Answer,
    Combination,
    DetailedScorer,
    Evaluator,
    Filter,
    Ledger,
    Proposal,
    QueuePolicy,
    Scorer,
    ScorerKind,
    ScoreUnit,
    UserFilter,
)
from edgeyard.scheduler.framework.registry import WeightedScorer
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import WaitReason

_T = TypeVar("_T")

FAULT_CAUSES = ("raised", "nonsense", "timed_out")

MAX_SECONDS = 1e10
"""Maximum answer of a scorer (300 years), because plans and explanations add it to the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A plugin that did not do its work in this cycle.

    Attributes:
        cause: One of `FAULT_CAUSES`; ``nonsense`` is an answer of the wrong shape, type or range.
    """

    plugin: str
    cause: str
    detail: str

    def __str__(self) -> str:
        verb = {"raised": "failed", "nonsense": "answered"}.get(self.cause, "took too long")
        return f"{self.plugin} {verb}: {self.detail}"


class CallKind(StrEnum):
    """The purpose of a call of a plugin."""

    ORDER = "order"
    ADMIT = "admit"
    LEDGER = "ledger"
    SCORE = "score"
    EVALUATE = "evaluate"
    COMBINE = "combine"
    LEARN = "learn"
    WORDS = "words"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCall:
    """A call of a plugin.

    Attributes:
        began_s: By the runner's clock.
        ended_s: By the runner's clock.
    """

    plugin: str
    kind: CallKind
    began_s: float
    ended_s: float


class RecordedFaultError(Exception):
    """Raised instead of a call of a plugin that failed when the cycle was recorded."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class DenyAllLedger:
    """The ledger of a filter that failed: it refuses every job, because it is unknown which ones
    the filter would have refused."""

    def __init__(self, fault: str) -> None:
        self._waiting = waiting_reasons.failed_filter(fault)

    def refusal(self, job: int) -> WaitReason | None:
        """Return the same reason for every job."""
        return self._waiting

    def place(self, job: int) -> None:
        """Do nothing: no job is placed."""

    def withdraw(self, job: int) -> None:
        """Do nothing: no job is placed."""


class _NonsenseError(Exception):
    """What is wrong with an answer."""


class PluginRunner:
    """Runs the plugins of one cycle; made anew for each.

    Attributes:
        faults: Who failed, in the order of the calls.
        overruns: Scorers that answered, but not in time; what they said counts all the same, so
            that no result depends on the clock.
        seconds: Time by plugin; empty without a clock.
        calls: All calls in the order of their ends; empty without a clock.
    """

    def __init__(
        self,
        monotonic_s: Callable[[], float] | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        """Call nothing yet.

        Args:
            monotonic_s: Clock to time calls by. None: calls are not timed.
            lock: `Plugins.lock`, held during each call. None: there is none.
        """
        self._monotonic_s = monotonic_s
        self._lock = lock
        self.faults: list[Fault] = []
        self.overruns: list[Fault] = []
        self.seconds: dict[str, float] = {}
        self.calls: list[PluginCall] = []

    def order(self, policy: QueuePolicy, queue: Queue) -> NDArray[np.intp] | None:
        """Return a queue policy's ranks; None when the policy failed."""

        def check(ranks: NDArray[np.intp]) -> None:
            _shaped(ranks, (len(queue.ids),), "iu")
            if not np.array_equal(np.sort(ranks), np.arange(len(queue.ids))):
                raise _NonsenseError("ranks that are not a permutation")

        return self._run(CallKind.ORDER, policy.name, lambda: policy.order(queue), check)

    def admit(self, plugin: Filter, batch: Batch) -> NDArray[np.uint8] | None:
        """Return a filter's codes, broadcastable to (classes, boards); None when it failed."""
        classes, boards = batch.shape

        def check(codes: NDArray[np.uint8]) -> None:
            if not isinstance(codes, np.ndarray) or codes.dtype != np.uint8:
                raise _NonsenseError(f"{type(codes).__name__} instead of an array of uint8")
            if codes.shape not in ((classes, boards), (1, boards), (classes, 1)):
                raise _NonsenseError(f"shape {codes.shape} instead of {batch.shape}")
            if np.count_nonzero(codes) and codes.max() > len(plugin.refusals):
                raise _NonsenseError(f"code {codes.max()} of {len(plugin.refusals)} refusals")

        return self._run(CallKind.ADMIT, plugin.name, lambda: plugin.admit(batch), check)

    def ledger(self, plugin: UserFilter, batch: Batch) -> Ledger | None:
        """Return the filter's ledger of this cycle; one that stops everybody when it failed."""
        failed = len(self.faults)
        ledger = self._run(
            CallKind.LEDGER, plugin.name, lambda: plugin.ledger(batch), lambda _: None
        )
        if len(self.faults) > failed:
            return DenyAllLedger(str(self.faults[-1]))
        return ledger

    def score(
        self,
        weighted: WeightedScorer,
        weight: float,
        batch: Batch,
        pairs: Pairs,
        problem_of: Callable[[Scorer, NDArray[np.floating]], str] | None = None,
    ) -> Proposal | None:
        """Ask a scorer.

        Args:
            weighted: The scorer, and its time.
            weight: How much its answer counts.
            pairs: What it is asked about.
            problem_of: Says what is wrong with scores that are well formed; "" for nothing.

        Returns:
            None when it failed.
        """
        scorer = weighted.scorer
        within_budget = pairs
        if weighted.budget_s != pairs.budget_s:
            within_budget = pairs.within(weighted.budget_s)
        before = self.seconds.get(scorer.name, 0.0)

        def ask() -> Answer:
            answer = answer_of(scorer, batch, within_budget)
            return replace(answer, facts=_numbers(answer.facts)) if answer.facts else answer

        def check(answer: Answer) -> None:
            _shaped(answer.scores, (len(pairs),), "f")
            _in_range(answer.scores, scorer.unit)
            if answer.errors is not None:
                _shaped(answer.errors, (len(pairs),), "f")
                _max_of_non_negative(answer.errors)
            if problem_of is not None and (problem := problem_of(scorer, answer.scores)):
                raise _NonsenseError(problem)

        answer = self._run(CallKind.SCORE, scorer.name, ask, check)
        if answer is None:
            return None
        took_s = self.seconds.get(scorer.name, 0.0) - before
        if took_s > weighted.budget_s:
            detail = f"{took_s:.3g} s of {weighted.budget_s:g} s"
            self.overruns.append(Fault(plugin=scorer.name, cause="timed_out", detail=detail))
        errors = answer.errors
        return Proposal(
            scorer=scorer.name,
            objective=scorer.objective,
            kind=ScorerKind.HEURISTIC if answer.fallback else answer.kind or scorer.kind,
            unit=scorer.unit,
            weight=weight,
            scores=answer.scores.astype(np.float32, copy=False),
            errors=None if errors is None else errors.astype(np.float32, copy=False),
            facts=answer.facts,
            fallback=answer.fallback,
        )

    def combine(
        self, aggregator: Aggregator, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]
    ) -> Combination | None:
        """Return one score for each pair; None if the aggregator failed."""

        def check(combination: Combination) -> None:
            _shaped(combination.scores, (len(pairs),), "f")
            _in_range(combination.scores, ScoreUnit.PREFERENCE)

        return self._run(
            CallKind.COMBINE,
            aggregator.name,
            lambda: aggregator.combine(batch, pairs, proposals),
            check,
        )

    def evaluate(
        self, evaluator: Evaluator, batch: Batch, pairs: Pairs, proposals: Sequence[Proposal]
    ) -> Mapping[str, float]:
        """Return each scorer's reward in [0, 1], by its name; empty if the evaluator failed."""

        def check(rewards: Mapping[str, float]) -> None:
            names = {proposal.scorer for proposal in proposals}
            for name, reward in rewards.items():
                if name not in names or not 0.0 <= reward <= 1.0:
                    raise _NonsenseError(f"reward {reward!r} for {name!r}")

        return (
            self._run(
                CallKind.EVALUATE,
                evaluator.name,
                lambda: _numbers(evaluator.evaluate(batch, pairs, proposals)),
                check,
            )
            or {}
        )

    def learn(
        self,
        aggregator: Aggregator,
        prior: Mapping[str, float],
        weights: Mapping[str, float],
        rewards: Mapping[str, float],
    ) -> Mapping[str, float]:
        """New weights; the old ones when the aggregator failed."""

        def check(learned: Mapping[str, float]) -> None:
            if learned.keys() != prior.keys():
                raise _NonsenseError(f"weights of {', '.join(sorted(learned)) or 'nobody'}")
            for name, weight in learned.items():
                if not 0.0 <= weight < math.inf:
                    raise _NonsenseError(f"weight {weight!r} for {name!r}")

        def call() -> Mapping[str, float]:
            return _numbers(aggregator.learn(prior, weights, rewards))

        found = self._run(CallKind.LEARN, aggregator.name, call, check)
        return {**prior, **weights} if found is None else found

    def words(self, name: str, call: Callable[[], str], otherwise: str) -> str:
        """Return a plugin's words; ``otherwise`` when it failed or has none."""

        def check(text: str) -> None:
            if not isinstance(text, str):
                raise _NonsenseError(f"{type(text).__name__} instead of words")

        return self._run(CallKind.WORDS, name, call, check) or otherwise

    def _run(
        self, kind: CallKind, name: str, call: Callable[[], _T], check: Callable[[_T], None]
    ) -> _T | None:
        if self._lock is None:
            return self._run_alone(kind, name, call, check)
        with self._lock:
            return self._run_alone(kind, name, call, check)

    def _run_alone(
        self, kind: CallKind, name: str, call: Callable[[], _T], check: Callable[[_T], None]
    ) -> _T | None:
        began = self._monotonic_s() if self._monotonic_s else 0.0
        try:
            answer = call()
            check(answer)
        except TimeoutError as error:
            self.faults.append(Fault(plugin=name, cause="timed_out", detail=str(error)[:200]))
            return None
        except RecordedFaultError as error:
            self.faults.append(error.fault)
            return None
        except _NonsenseError as error:
            self.faults.append(Fault(plugin=name, cause="nonsense", detail=str(error)))
            return None
        except Exception as error:  # whatever an author's code raises must not stop the cycle
            detail = f"{type(error).__name__}: {str(error)[:200]}"
            self.faults.append(Fault(plugin=name, cause="raised", detail=detail))
            return None
        finally:
            if self._monotonic_s:
                ended = self._monotonic_s()
                self.seconds[name] = self.seconds.get(name, 0.0) + ended - began
                self.calls.append(PluginCall(plugin=name, kind=kind, began_s=began, ended_s=ended))
        return answer


def answer_of(scorer: Scorer, batch: Batch, pairs: Pairs) -> Answer:
    """Ask a scorer for as much as it can say."""
    if hasattr(scorer, "answer"):  # the check of a protocol takes longer than some scorers
        return cast(DetailedScorer, scorer).answer(batch, pairs)
    return Answer(scores=scorer.score(batch, pairs))


def _numbers(found: Mapping[str, float]) -> dict[str, float]:
    """Return numbers of a plugin as Python's own: records of cycles and answers hold no others."""
    return {name: float(number) for name, number in found.items()}


def _shaped(array: object, shape: tuple[int, ...], kinds: str) -> None:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in kinds:
        raise _NonsenseError(f"{getattr(array, 'dtype', type(array).__name__)} where numbers go")
    if array.shape != shape:
        raise _NonsenseError(f"shape {array.shape} instead of {shape}")


def _in_range(scores: NDArray[np.floating], unit: ScoreUnit) -> None:
    # fmin and fmax pass NaN over, which stands for an abstention.
    largest = _max_of_non_negative(scores)
    if largest > 1.0 and unit.is_share:
        raise _NonsenseError(f"a {unit} above 1")
    if largest > MAX_SECONDS and unit is ScoreUnit.SECONDS:
        raise _NonsenseError(f"more than {MAX_SECONDS:g} seconds")


def _max_of_non_negative(numbers: NDArray[np.floating]) -> float:
    """Return the largest number; NaN where there is none."""
    if not numbers.size:
        return math.nan
    if np.fmin.reduce(numbers) < 0.0:
        raise _NonsenseError("a number below 0")
    largest = float(np.fmax.reduce(numbers))
    if largest == math.inf:
        raise _NonsenseError("an infinite number")
    return largest
