"""A benchmark as the server last told of it, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from edgeyard.benchmark_api.sdk.explanation import Explanation
from edgeyard.benchmark_api.sdk.fields import (
    Reason,
    Record,
    moment,
    number,
    reason,
    record,
    records,
    text,
    whole,
)
from edgeyard.benchmark_api.sdk.results import Results
from edgeyard.scheduler.model.benchmark import TERMINAL


class Calls(Protocol):
    """What a benchmark asks of its client; each is explained at `Client`."""

    def benchmark(self, benchmark_id: str) -> Benchmark:
        """As it is now."""
        ...

    def wait_one(self, benchmark_id: str, timeout: float | None, progress: bool) -> Benchmark:
        """Wait for its end."""
        ...

    def cancel(self, benchmark_id: str) -> Benchmark:
        """Stop it."""
        ...

    def hcl(self, benchmark_id: str) -> str:
        """Its job."""
        ...

    def explain(self, benchmark_id: str) -> Explanation:
        """The last decision."""
        ...

    def logs(self, benchmark_id: str, *, follow: bool, stream: str) -> Iterator[str]:
        """Lines."""
        ...

    def results(self, benchmark_id: str) -> Results:
        """What came back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptState:
    """One dispatch of a benchmark."""

    number: int
    state: str
    job_id: str | None = None
    target_uid: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    failure: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A submitted job description with its life, at the moment it was asked for.

    A value: `refresh` and `wait` give a new one. ``None`` means that the server didn't say, as in
    the short answers to a submission and to members of a campaign.

    Attributes:
        status: ``pending``, ``scheduled``, ``running``, ``completed``, ``failed``, ``cancelled``
            or ``expired``.
        progress: 0-100 while it runs.
        schedule_id: Of the schedule that was made in its place, where it has a ``cron``; then it
            has no id of its own.
        warnings: What the server had to say about the submission.
        raw: The server's JSON.
    """

    benchmark_id: str
    status: str
    campaign_id: str | None = None
    user_id: str | None = None
    phase: str | None = None
    progress: float | None = None
    waiting_reason: Reason | None = None
    failure: Reason | None = None
    priority: int | None = None
    target_uid: str | None = None
    description: Mapping[str, object] = field(default_factory=dict)
    submit_time: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempts: tuple[AttemptState, ...] = ()
    schedule_id: str | None = None
    warnings: tuple[str, ...] = ()
    raw: Record = field(default_factory=dict, repr=False)
    client: Calls = field(repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Nothing will change any more."""
        return self.status in TERMINAL

    def refresh(self) -> Benchmark:
        """As it is now."""
        return self.client.benchmark(self.benchmark_id)

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> Benchmark:
        """Wait for its end; see `Client.wait`."""
        return self.client.wait_one(self.benchmark_id, timeout, progress)

    def cancel(self) -> Benchmark:
        """Stop it and free its board."""
        return self.client.cancel(self.benchmark_id)

    def hcl(self) -> str:
        """The job as dispatched, secrets masked."""
        return self.client.hcl(self.benchmark_id)

    def explain(self) -> Explanation:
        """Why it is where it is."""
        return self.client.explain(self.benchmark_id)

    def logs(self, *, follow: bool = False, stream: str = "stderr") -> Iterator[str]:
        """Lines of its log."""
        return self.client.logs(self.benchmark_id, follow=follow, stream=stream)

    def results(self) -> Results:
        """What it measured."""
        return self.client.results(self.benchmark_id)


Benchmarks = list[Benchmark]


def benchmark_of(body: object, client: Calls) -> Benchmark:
    """A benchmark from the server's JSON."""
    raw: Record = body if isinstance(body, Mapping) else {}
    warnings = raw.get("warnings")
    return Benchmark(
        benchmark_id=text(raw, "benchmark_id") or "",
        status=text(raw, "status") or "unknown",
        campaign_id=text(raw, "campaign_id"),
        user_id=text(raw, "user_id"),
        phase=text(raw, "phase"),
        progress=number(raw, "progress"),
        waiting_reason=reason(raw, "waiting_reason"),
        failure=reason(raw, "failure"),
        priority=whole(raw, "priority"),
        target_uid=text(raw, "target_uid"),
        description=record(raw, "description"),
        submit_time=moment(raw, "submit_time"),
        started_at=moment(raw, "started_at"),
        ended_at=moment(raw, "ended_at"),
        attempts=tuple(_attempt_of(item) for item in records(raw, "attempts")),
        schedule_id=text(raw, "schedule_id"),
        warnings=tuple(map(_warning, warnings)) if isinstance(warnings, list) else (),
        raw=raw,
        client=client,
    )


def _attempt_of(raw: Record) -> AttemptState:
    return AttemptState(
        number=whole(raw, "number") or 0,
        state=text(raw, "state") or "unknown",
        job_id=text(raw, "job_id"),
        target_uid=text(raw, "target_uid"),
        started_at=moment(raw, "started_at"),
        ended_at=moment(raw, "ended_at"),
        failure=reason(raw, "failure"),
    )


def _warning(item: object) -> str:
    if isinstance(item, Mapping):
        return str(item.get("sentence") or item.get("reason") or dict(item))
    return str(item)
