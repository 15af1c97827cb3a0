"""What happened to a benchmark, in order, with its waits by reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from edgeyard.benchmark_api.pages.page import duration
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.scheduler.model.benchmark import Status

MIN_WAIT = timedelta(seconds=0.05)
"""Shorter waits are not shown: they would be displayed as 0.0 s."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A time in which one reason kept a benchmark from its board."""

    since: datetime
    until: datetime
    reason: str
    sentence: str

    @property
    def seconds(self) -> float:
        """How long it was."""
        return (self.until - self.since).total_seconds()


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the timeline; ``board``: where it happened, if it is to be shown."""

    at: datetime
    text: str
    board: str | None = None


def waits_of(
    benchmark: shapes.Benchmark, events: Sequence[shapes.Event], now: datetime
) -> list[Wait]:
    """Return the waits of a benchmark until now, oldest first.

    Args:
        benchmark: Which.
        events: What happened to it, in order.
        now: End of a wait that goes on.
    """
    waits: list[Wait] = []
    begun, reason, sentence = (
        benchmark.submit_time,
        "first_decision",
        "for the first decision on it",
    )
    waiting = True
    for each in events:
        is_reason = each.kind == "benchmark.waiting"
        status = each.data.get("status") if each.kind == "benchmark.status" else None
        if not is_reason and (status is None or status == Status.PENDING):
            continue
        if waiting and each.at - begun >= MIN_WAIT:
            waits.append(Wait(begun, each.at, reason, sentence))
        waiting = is_reason
        if is_reason:
            begun, reason = each.at, str(each.data.get("reason", ""))
            sentence = str(each.data.get("sentence") or reason)
    end = benchmark.ended_at or now
    if waiting and end - begun >= MIN_WAIT:
        waits.append(Wait(begun, end, reason, sentence))
    return waits


def by_reason(waits: Sequence[Wait]) -> list[tuple[str, float, float]]:
    """Return reasons, the longest first, with seconds and share of all waits."""
    sums: dict[str, float] = {}
    for each in waits:
        sums[each.reason] = sums.get(each.reason, 0.0) + each.seconds
    total = sum(sums.values())
    ordered = sorted(sums.items(), key=lambda pair: -pair[1])
    return [(reason, seconds, seconds / total) for reason, seconds in ordered if total]


def steps_of(benchmark: shapes.Benchmark, waits: Sequence[Wait]) -> list[Step]:
    """Return the timeline, oldest first."""
    steps = [Step(benchmark.submit_time, "submitted")]
    steps += [Step(each.since, _waited(each)) for each in waits]
    several = len(benchmark.attempts) > 1
    for attempt in benchmark.attempts:
        which = f" (attempt {attempt.number})" if several else ""
        moments = (
            (attempt.queued_at, f"given to the cluster{which}", attempt.target_uid),
            (attempt.started_at, f"started{which}", None),
            (attempt.task_ended_at, f"task ended{which}", None),
            (attempt.result_at, f"result arrived{which}", None),
        )
        steps += [Step(at, text, board) for at, text, board in moments if at is not None]
        if attempt.failure and attempt.ended_at:
            text = f"attempt {attempt.number} failed: {attempt.failure.sentence}"
            steps.append(Step(attempt.ended_at, text))
    if benchmark.ended_at:
        steps.append(Step(benchmark.ended_at, benchmark.status))
    return sorted(steps, key=lambda each: each.at)


def _waited(wait: Wait) -> str:
    return f"waited {duration(wait.seconds)}: {wait.sentence}"
