"""The stated priority formula; its constants are the default policy's."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.framework.policy import PriorityMode
from edgeyard.scheduler.model.benchmark import BenchmarkType, Binding
from edgeyard.scheduler.model.decision import Explanation, PendingBenchmark
from tests.builders.decision import cycle, policy


def explained(job: PendingBenchmark, **changes: Any) -> Explanation:
    return cycle(snapshot_of([board("rpi4b-0001-0001")]), [job], **changes).explanation("b-1")


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ({}, {"type": 70, "user": 10, "age": 0, "deadline": 0}),  # the platform's 80
        (
            {"benchmark_type": BenchmarkType.TYPE2, "user_priority": 1},
            {"type": 60, "user": 2, "age": 0, "deadline": 0},
        ),
        (
            {"submit_time": NOW - timedelta(hours=1, minutes=59)},
            {"type": 70, "user": 10, "age": 3, "deadline": 0},
        ),
        # Three of six hours to spare: half of ten points.
        (
            {"deadline": NOW + timedelta(hours=4), "user_time_s": 3600.0},
            {"type": 70, "user": 10, "age": 0, "deadline": 5},
        ),
        (
            {"deadline": NOW - timedelta(hours=1), "user_priority": 10},
            {"type": 70, "user": 20, "age": 0, "deadline": 10},
        ),
        # 70 + 10 + 48: the bound takes 28.
        (
            {"submit_time": NOW - timedelta(days=1)},
            {"type": 70, "user": 10, "age": 48, "deadline": 0, "limit": -28},
        ),
        # A clock that runs ahead of ours takes nothing away.
        (
            {"submit_time": NOW + timedelta(days=1)},
            {"type": 70, "user": 10, "age": 0, "deadline": 0},
        ),
    ],
)
def test_the_parts_add_up_to_the_priority(asked: dict[str, Any], parts: dict[str, float]) -> None:
    explanation = explained(pending(**asked))
    assert explanation.priority_parts == parts
    assert explanation.priority == sum(parts.values())


def test_the_lowest_start_reaches_the_top_within_a_day() -> None:
    lowest: dict[str, Any] = {"benchmark_type": BenchmarkType.TYPE3, "user_priority": 1}
    assert explained(pending(**lowest)).priority == 52
    day_old = pending(submit_time=NOW - timedelta(days=1), **lowest)
    assert explained(day_old).priority == 100


def test_fifo_gives_all_one_constant_and_goes_by_age() -> None:
    jobs = [
        pending("young", user_priority=10),
        pending("old", user_priority=1, submit_time=NOW - timedelta(seconds=1)),
    ]
    result = cycle(snapshot_of([]), jobs, priority_mode=PriorityMode.FIFO)
    assert result.order == ("old", "young")
    assert result.priority("old") == result.priority("young") == 50
    assert result.explanation("old").priority_parts == {"fifo": 50}


def test_in_fifo_mode_a_started_campaign_overtakes_nobody() -> None:
    jobs = [
        pending("member", campaign_started=True),
        pending("old", submit_time=NOW - timedelta(seconds=1)),
    ]
    result = cycle(snapshot_of([]), jobs, priority_mode=PriorityMode.FIFO)
    assert result.order == ("old", "member")
    assert "campaign" not in result.explanation("member").rank_reason


def test_strict_jobs_get_the_priority_that_the_policy_says() -> None:
    strict = explained(pending(), strict_priority=100)
    assert strict.priority == 100
    assert strict.priority_parts["strict"] == 20
    assert explained(pending(binding=Binding.LOOSE), strict_priority=100).priority == 80


def test_native_counts_type_and_user_alone() -> None:
    old = pending(submit_time=NOW - timedelta(days=9), deadline=NOW + timedelta(minutes=1))
    assert explained(old, of="native").priority == 80


def test_a_huge_age_does_not_overflow() -> None:
    job = pending(submit_time=NOW - timedelta(days=365 * 900))
    settings = replace(policy().priority, age_step_s=1e-9)
    assert explained(job, priority=settings).priority == 100
