"""Whether a benchmark is tried again after an attempt failed, when, and on which boards.

======================== ============== =====================================
the attempt              budget         it is tried again
======================== ============== =====================================
failed, retryable        `RETRIES`      ``max_retries`` times: on other boards
                                        at once, on the same after a backoff
failed otherwise         `RETRIES`      never: it would fail the same way
was preempted            `PREEMPTIONS`  at once, `MAX_PREEMPTED_ATTEMPTS`
                                        times
was lost with the server `LOSSES`       at once `FREE_LOSSES` times in a row,
or its host                             then after a backoff, up to
                                        `MAX_LOST_IN_A_ROW` times
was not started, or an   `NONE`         at once, any number of times
operator stopped it in
the cluster
======================== ============== =====================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.benchmark import (
    RETRYABLE,
    Benchmark,
    Failure,
    FailureCategory,
    JobDescription,
)
from edgeyard.scheduler.model.preemption import is_preemption

RETRY_BACKOFF_S = 10.0
MAX_RETRY_BACKOFF_S = 300.0
"""Wait before the next try on the same board: after the first failure, and at most. Each further
failure doubles it."""

FREE_LOSSES = 3
"""Attempts in a row that were lost with the server or their host and are tried again at once. After
further ones a benchmark waits as after failures: whether the server lives on meanwhile shows what
kills it."""

MAX_LOST_IN_A_ROW = 20
"""Attempts in a row that were lost with the server or their host, before a benchmark is given up
because its task may be what kills them. A death of the server while the benchmark waits shows that
others kill it, and the count begins again: see `edgeyard.scheduler.engine.lifecycle.reset_losses`.
"""

MAX_PREEMPTED_ATTEMPTS = 10
"""Preempted attempts before a benchmark is given up. The scheduler itself spares a benchmark long
before (``[preemption] max_preemptions`` of the policy); a cluster that preempts by itself does not
know that bound."""


class RetryBudget(StrEnum):
    """The budget that a further attempt uses up."""

    RETRIES = "retries"  # ``max_retries`` of the description
    PREEMPTIONS = "preemptions"
    LOSSES = "losses"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryHistory:
    """What the attempts of a benchmark have used up, including the one that just ended.

    Attributes:
        counted: Attempts that count against ``max_retries``.
        preempted: Attempts that were preempted.
        lost_in_a_row: Attempts in a row that were lost with the server or their host.
        failures: Failures that count, on all boards.
        failures_on_board: Failures that count, on the board of the last attempt.
        pinned: The benchmark may run on the board that it names alone.
    """

    counted: int = 1
    preempted: int = 0
    lost_in_a_row: int = 0
    failures: int = 1
    failures_on_board: int = 1
    pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """What follows from a failed attempt.

    Attributes:
        retry: The benchmark is tried again.
        budget: What that uses up.
        failure: Why it failed, for its owner; names the budget that is used up.
        not_before: It waits until then; None: it may be tried at once.
        tried_uid: Board that other boards come before; None: no board is to blame.
        avoid_until: ``tried_uid`` is not used before then, other boards are; None: at once.
    """

    retry: bool
    budget: RetryBudget
    failure: Failure
    not_before: datetime | None = None
    tried_uid: str | None = None
    avoid_until: datetime | None = None


def decide_retry(
    failure: Failure, attempt: Attempt, description: JobDescription, history: RetryHistory
) -> RetryDecision:
    """Decide whether a benchmark is tried again.

    Args:
        failure: Why the attempt failed.
        attempt: The attempt, at its end.
        description: Of its benchmark.
        history: What its attempts have used up.
    """
    budget = budget_of(failure, attempt)
    retry = (
        (is_retryable(failure) or budget is not RetryBudget.RETRIES)
        and history.counted <= description.max_retries
        and history.lost_in_a_row < MAX_LOST_IN_A_ROW
        and history.preempted < MAX_PREEMPTED_ATTEMPTS
    )
    waits: list[datetime] = []
    avoid_until = None
    if attempt.ended_at is not None:
        if history.lost_in_a_row > FREE_LOSSES:
            waits.append(attempt.ended_at + _backoff(history.lost_in_a_row - FREE_LOSSES))
        if attempt.counts and history.pinned:
            waits.append(attempt.ended_at + _backoff(history.failures))
        elif attempt.counts and attempt.target_uid is not None:
            avoid_until = attempt.ended_at + _backoff(history.failures_on_board)
    # Also a board that never took the job: the cluster may know more than the twin.
    refused = attempt.queued_at is not None and attempt.started_at is None
    return RetryDecision(
        retry=retry,
        budget=budget,
        failure=failure if retry else _final(failure, history),
        not_before=max(waits, default=None),
        tried_uid=attempt.target_uid if attempt.counts or refused else None,
        avoid_until=avoid_until,
    )


def past_decisions(benchmark: Benchmark, attempts: Sequence[Attempt]) -> Sequence[RetryDecision]:
    """Decide again what followed from each attempt of a benchmark that failed, oldest first."""
    failed = [each for each in attempts if each.failure is not None]
    return [
        decide_retry(
            attempt.failure,
            attempt,
            benchmark.description,
            history_of(
                benchmark,
                failed[: number + 1],
                benchmark.lost_in_a_row if attempt is failed[-1] else 0,
            ),
        )
        for number, attempt in enumerate(failed)
        if attempt.failure is not None
    ]


def history_of(
    benchmark: Benchmark, attempts: Sequence[Attempt], lost_in_a_row: int
) -> RetryHistory:
    """Count what attempts have used up.

    Args:
        benchmark: Whose attempts they are.
        attempts: All up to the one that is judged, which comes last.
        lost_in_a_row: Including that one.
    """
    failures = [
        each
        for each in attempts
        if each.counts and each.failure is not None and each.ended_at is not None
    ]
    return RetryHistory(
        counted=sum(each.counts for each in attempts),
        preempted=sum(is_preemption(each.failure) for each in attempts),
        lost_in_a_row=lost_in_a_row,
        failures=len(failures),
        failures_on_board=sum(each.target_uid == attempts[-1].target_uid for each in failures),
        pinned=benchmark.description.target_uid is not None and not benchmark.unpinned,
    )


def losses_after(before: int, budget: RetryBudget) -> int:
    """Return how many attempts in a row were lost, after one more attempt ended."""
    if budget is RetryBudget.NONE:
        return before  # it shows nothing of what kills servers and hosts
    return before + 1 if budget is RetryBudget.LOSSES else 0


def budget_of(failure: Failure, attempt: Attempt) -> RetryBudget:
    """Return what a further attempt after this one uses up."""
    if _was_stopped(attempt):
        return RetryBudget.NONE
    if is_preemption(failure):
        return RetryBudget.PREEMPTIONS
    return RetryBudget.RETRIES if attempt.counts else RetryBudget.LOSSES


def is_retryable(failure: Failure) -> bool:
    """Return whether another try may end differently; others would fail the same way."""
    return failure.category in RETRYABLE


def _was_stopped(attempt: Attempt) -> bool:
    """Return whether its job was stopped for no fault of anybody.

    Edgeyard took it back because the cluster did not start it, or an operator stopped it there.
    """
    return (
        not attempt.counts
        and attempt.stopping is not None
        and attempt.stopping.category is FailureCategory.CLUSTER
    )


def _final(failure: Failure, history: RetryHistory) -> Failure:
    if is_preemption(failure):
        return Failure(
            category=FailureCategory.PREEMPTED_TOO_OFTEN,
            sentence=f"it was stopped {history.preempted} times for more urgent benchmarks",
        )
    if history.lost_in_a_row >= MAX_LOST_IN_A_ROW:
        return Failure(
            category=failure.category,
            sentence=f"the server or its host died {history.lost_in_a_row} times in a row while it "
            f"ran, and not while it waited; the last time: {failure.sentence}",
        )
    return failure


def _backoff(count: int) -> timedelta:
    return timedelta(seconds=min(RETRY_BACKOFF_S * 2.0 ** (count - 1), MAX_RETRY_BACKOFF_S))
