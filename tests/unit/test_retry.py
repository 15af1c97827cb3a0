"""Whether a benchmark is tried again, when, from whose budget, and on which boards."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from edgeyard.scheduler.engine.retry import (
    FREE_LOSSES,
    MAX_LOST_IN_A_ROW,
    MAX_PREEMPTED_ATTEMPTS,
    MAX_RETRY_BACKOFF_S,
    RETRY_BACKOFF_S,
    RetryBudget,
    RetryHistory,
    decide_retry,
    losses_after,
    past_decisions,
)
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory
from tests.builders import records as make

BOARD, OTHER = "rpi4b-0001-0001", "rpi4b-0001-0002"
ENDED = make.NOW + timedelta(seconds=60)
FAULT = Failure(category=FailureCategory.BOARD_FAULT, sentence="its board is gone")
TAKEN_BACK = Failure(category=FailureCategory.CLUSTER, sentence="no board took it")


def ended(failure: Failure = FAULT, number: int = 1, **changes: Any) -> Attempt:
    made: dict[str, Any] = {
        "target_uid": BOARD,
        "failure": failure,
        "queued_at": make.NOW,
        "started_at": make.NOW,
        "ended_at": ENDED,
        **changes,
    }
    return make.an_attempt(number=number, **made)


def after(seconds: float) -> datetime:
    return ENDED + timedelta(seconds=seconds)


def failure_of(category: FailureCategory) -> Failure:
    return Failure(category=category, sentence="why")


MAY_END_DIFFERENTLY = {"board_fault", "thermal", "network", "cluster", "upload", "preempted"}


@pytest.mark.parametrize("category", list(FailureCategory))
def test_only_failures_that_may_end_differently_use_a_retry(category: FailureCategory) -> None:
    failure = failure_of(category)
    counts = category is not FailureCategory.PREEMPTED
    found = decide_retry(
        failure,
        ended(failure, counts=counts),
        make.a_description(max_retries=1),
        RetryHistory(counted=int(counts)),
    )
    assert found.retry is (category in MAY_END_DIFFERENTLY)
    expected = RetryBudget.RETRIES if counts else RetryBudget.PREEMPTIONS
    assert found.budget is expected


LOST = failure_of(FailureCategory.CLUSTER)
PREEMPTED = failure_of(FailureCategory.PREEMPTED)


@pytest.mark.parametrize(
    ("failure", "changes", "history", "retry", "budget"),
    [
        (FAULT, {}, {"counted": 2}, True, RetryBudget.RETRIES),
        (FAULT, {}, {"counted": 3}, False, RetryBudget.RETRIES),
        (PREEMPTED, {"counts": False}, {"counted": 2, "preempted": 3}, True, "preemptions"),
        (
            PREEMPTED,
            {"counts": False},
            {"counted": 0, "preempted": MAX_PREEMPTED_ATTEMPTS},
            False,
            RetryBudget.PREEMPTIONS,
        ),
        (LOST, {"counts": False}, {"lost_in_a_row": 5}, True, RetryBudget.LOSSES),
        (LOST, {"counts": False}, {"lost_in_a_row": MAX_LOST_IN_A_ROW}, False, "losses"),
        (
            TAKEN_BACK,
            {"counts": False, "started_at": None, "stopping": TAKEN_BACK},
            {"counted": 0},
            True,
            RetryBudget.NONE,
        ),
        # stopped by an operator in the cluster, which is nobody's failure
        (
            TAKEN_BACK,
            {"counts": False, "stopping": TAKEN_BACK},
            {"counted": 0, "lost_in_a_row": 1},
            True,
            RetryBudget.NONE,
        ),
    ],
)
def test_each_way_to_fail_has_a_budget_of_its_own(
    failure: Failure, changes: Any, history: Any, retry: bool, budget: str
) -> None:
    found = decide_retry(
        failure,
        ended(failure, **changes),
        make.a_description(max_retries=2),
        RetryHistory(**history),
    )
    assert (found.retry, found.budget) == (retry, budget)


@pytest.mark.parametrize(
    ("changes", "history", "not_before", "tried_uid", "avoid_until"),
    [
        # on other boards at once, on the same one after a backoff that doubles
        ({}, {}, None, BOARD, after(RETRY_BACKOFF_S)),
        ({}, {"failures_on_board": 3}, None, BOARD, after(4 * RETRY_BACKOFF_S)),
        ({}, {"failures_on_board": 30}, None, BOARD, after(MAX_RETRY_BACKOFF_S)),
        # pinned: there is no other board
        ({}, {"pinned": True}, after(RETRY_BACKOFF_S), BOARD, None),
        ({}, {"pinned": True, "failures": 2}, after(2 * RETRY_BACKOFF_S), BOARD, None),
        # the board is not to blame
        ({"counts": False}, {"lost_in_a_row": FREE_LOSSES}, None, None, None),
        (
            {"counts": False},
            {"lost_in_a_row": FREE_LOSSES + 2},
            after(2 * RETRY_BACKOFF_S),
            None,
            None,
        ),
        # a board that never took its job comes last
        ({"counts": False, "started_at": None}, {}, None, BOARD, None),
        # nobody knows which board it was
        ({"target_uid": None}, {}, None, None, None),
    ],
)
def test_a_retry_waits_and_avoids_boards_by_who_is_to_blame(
    changes: Any,
    history: Any,
    not_before: datetime | None,
    tried_uid: str | None,
    avoid_until: datetime | None,
) -> None:
    found = decide_retry(
        FAULT, ended(**changes), make.a_description(max_retries=9), RetryHistory(**history)
    )
    assert (found.not_before, found.tried_uid, found.avoid_until) == (
        not_before,
        tried_uid,
        avoid_until,
    )


@pytest.mark.parametrize(
    ("budget", "losses"),
    [
        (RetryBudget.LOSSES, 3),
        (RetryBudget.NONE, 2),
        (RetryBudget.RETRIES, 0),
        (RetryBudget.PREEMPTIONS, 0),
    ],
)
def test_losses_in_a_row_end_with_an_attempt_that_ran_to_an_end(
    budget: RetryBudget, losses: int
) -> None:
    assert losses_after(2, budget) == losses


def test_the_last_failure_names_the_budget_that_is_used_up() -> None:
    asked = make.a_description(max_retries=2)
    often = decide_retry(
        PREEMPTED,
        ended(PREEMPTED, counts=False),
        asked,
        RetryHistory(counted=0, preempted=MAX_PREEMPTED_ATTEMPTS),
    )
    assert often.failure.category is FailureCategory.PREEMPTED_TOO_OFTEN
    lost = decide_retry(
        LOST,
        ended(LOST, counts=False),
        asked,
        RetryHistory(counted=0, lost_in_a_row=MAX_LOST_IN_A_ROW),
    )
    assert f"died {MAX_LOST_IN_A_ROW} times in a row" in lost.failure.sentence
    assert decide_retry(FAULT, ended(), asked, RetryHistory(counted=3)).failure == FAULT


def test_each_board_that_failed_has_a_backoff_of_its_own() -> None:
    attempts = [
        ended(number=1),
        ended(number=2, target_uid=OTHER, ended_at=after(5)),
        ended(number=3, ended_at=after(20)),
    ]
    found = past_decisions(make.a_benchmark(), attempts)
    assert [(each.tried_uid, each.avoid_until) for each in found] == [
        (BOARD, after(RETRY_BACKOFF_S)),
        (OTHER, after(5 + RETRY_BACKOFF_S)),
        (BOARD, after(20 + 2 * RETRY_BACKOFF_S)),
    ]
