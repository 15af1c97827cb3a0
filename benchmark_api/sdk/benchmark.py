"""A benchmark as the server last described it, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.benchmark_api.sdk.results import Results
from edgeyard.scheduler.model.benchmark import TERMINAL

BenchmarkAnswer = shapes.ListedBenchmark | shapes.SubmissionAnswer | shapes.CampaignMember
"""What the server answers about a benchmark: all of it, or the short answers to a submission."""


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

    def explain(self, benchmark_id: str) -> shapes.Explanation:
        """The last decision."""
        ...

    def logs(self, benchmark_id: str, *, follow: bool, stream: str) -> Iterator[str]:
        """Lines."""
        ...

    def results(self, benchmark_id: str) -> Results:
        """What came back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A submitted job description with its life, at the moment it was asked for.

    A value: `refresh` and `wait` give a new one. ``None`` means that the server
    did not state it, as in the short answers to a submission and to members of a campaign.

    Attributes:
        status: ``pending``, ``scheduled``, ``running``, ``completed``, ``failed``, ``cancelled``
            or ``expired``.
        progress: 0-100 while it runs.
        schedule_id: Of the schedule that was made in its place, where it has a ``cron``; then it
            has no id of its own.
        forecast: When it is expected to start and end; None where the server does not state it.
        warnings: The server's warnings about the submission.
        answer: The server's answer.
    """

    benchmark_id: str
    status: str
    campaign_id: str | None = None
    user_id: str | None = None
    phase: str | None = None
    progress: float | None = None
    waiting_reason: shapes.Reason | None = None
    failure: shapes.Failure | None = None
    priority: int | None = None
    target_uid: str | None = None
    description: Mapping[str, object] = field(default_factory=dict)
    submit_time: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempts: tuple[shapes.Attempt, ...] = ()
    forecast: shapes.Forecast | None = None
    schedule_id: str | None = None
    warnings: tuple[str, ...] = ()
    answer: BenchmarkAnswer = field(repr=False)
    client: Calls = field(repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Nothing will change any more."""
        return self.status in TERMINAL

    def as_json(self) -> dict[str, Any]:
        """Return the server's answer as JSON values."""
        return as_json(self.answer)

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

    def explain(self) -> shapes.Explanation:
        """Why it is where it is."""
        return self.client.explain(self.benchmark_id)

    def logs(self, *, follow: bool = False, stream: str = "stderr") -> Iterator[str]:
        """Lines of its log."""
        return self.client.logs(self.benchmark_id, follow=follow, stream=stream)

    def results(self) -> Results:
        """What it measured."""
        return self.client.results(self.benchmark_id)


Benchmarks = list[Benchmark]


def benchmark_of(
    answer: BenchmarkAnswer,
    client: Calls,
    campaign_id: str | None = None,
    warnings: Sequence[str] = (),
) -> Benchmark:
    """Return the benchmark that an answer describes.

    Args:
        answer: What the server answered.
        client: Carries out what is asked of the benchmark.
        campaign_id: Its campaign, where the answer does not state it.
        warnings: The server's warnings about its submission, where the answer does not state them.
    """
    if isinstance(answer, shapes.ListedBenchmark):
        whole = answer if isinstance(answer, shapes.Benchmark) else None
        return Benchmark(
            benchmark_id=answer.benchmark_id,
            status=answer.status,
            campaign_id=answer.campaign_id,
            user_id=answer.user_id,
            phase=answer.phase,
            progress=answer.progress,
            waiting_reason=answer.waiting_reason,
            failure=answer.failure,
            priority=answer.priority,
            target_uid=answer.target_uid,
            description=answer.description,
            submit_time=answer.submit_time,
            started_at=answer.started_at,
            ended_at=answer.ended_at,
            attempts=tuple(whole.attempts) if whole else (),
            forecast=whole.forecast if whole else None,
            warnings=tuple(warnings),
            answer=answer,
            client=client,
        )
    accepted = answer if isinstance(answer, shapes.SubmissionAnswer) else None
    return Benchmark(
        benchmark_id=answer.benchmark_id or "",
        status=answer.status,
        campaign_id=campaign_id,
        forecast=accepted.forecast if accepted else None,
        schedule_id=accepted.schedule_id if accepted else None,
        warnings=tuple(accepted.warnings if accepted else warnings),
        answer=answer,
        client=client,
    )
