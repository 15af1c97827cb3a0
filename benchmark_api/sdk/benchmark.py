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
    """What a benchmark needs of its client; each method is documented at `Client`."""

    def benchmark(self, benchmark_id: str) -> Benchmark:
        """Return a benchmark as it is now."""
        ...

    def wait(self, benchmarks: str, timeout: float | None, *, progress: bool) -> Benchmark:
        """Wait for the end of a benchmark."""
        ...

    def cancel(self, benchmark_id: str) -> Benchmark:
        """Stop a benchmark."""
        ...

    def hcl(self, benchmark_id: str) -> str:
        """Return the job of a benchmark."""
        ...

    def explain(self, benchmark_id: str) -> shapes.Explanation:
        """Return the last decision on a benchmark."""
        ...

    def logs(self, benchmark_id: str, *, follow: bool, stream: str) -> Iterator[str]:
        """Yield the lines of a log of a benchmark; with ``follow`` also new ones until its end."""
        ...

    def results(self, benchmark_id: str) -> Results:
        """Return what a benchmark measured."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A benchmark as it was when the server described it.

    It does not change: `refresh` and `wait` return a new one. ``None`` means that the server
    did not state a value, as in the short answers to a submission and to members of a campaign.

    Attributes:
        name: Its name; empty where it has none.
        status: ``pending``, ``scheduled``, ``running``, ``completed``, ``failed``, ``cancelled``
            or ``expired``.
        progress: Share of the run that is done, in percent, while it runs.
        progress_message: What the run reports with it, e.g. how well the number of a precision is
            known so far; None: nothing.
        stopped_by: The user who holds or has cancelled it; None: nobody, or Edgeyard itself.
        stopped_reason: Why, in their words.
        planned: The board and the start that are planned for it while it waits, with the reason;
            None where there is no plan or the server does not state it.
        schedule_id: Id of the schedule that was created instead of a benchmark, if the description
            has a ``cron``; ``benchmark_id`` is empty then.
        forecast: When it is expected to start and end; None where the server does not state it.
        warnings: The server's warnings about the submission.
        answer: The server's answer.
    """

    benchmark_id: str
    status: str
    name: str | None = None
    campaign_id: str | None = None
    user_id: str | None = None
    phase: str | None = None
    progress: float | None = None
    progress_message: str | None = None
    waiting_reason: shapes.Reason | None = None
    failure: shapes.Failure | None = None
    stopped_by: str | None = None
    stopped_reason: str | None = None
    priority: int | None = None
    target_uid: str | None = None
    description: Mapping[str, object] = field(default_factory=dict)
    submit_time: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempts: tuple[shapes.Attempt, ...] = ()
    forecast: shapes.Forecast | None = None
    planned: shapes.PlannedStart | None = None
    schedule_id: str | None = None
    warnings: tuple[str, ...] = ()
    answer: BenchmarkAnswer = field(repr=False)
    client: Calls = field(repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Whether it has ended: nothing will change any more."""
        return self.status in TERMINAL

    def as_json(self) -> dict[str, Any]:
        """Return the server's answer as JSON values."""
        return as_json(self.answer)

    def refresh(self) -> Benchmark:
        """Return it as it is now."""
        return self.client.benchmark(self.benchmark_id)

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> Benchmark:
        """Wait for its end, as `Client.wait` does, and return its state then."""
        return self.client.wait(self.benchmark_id, timeout, progress=progress)

    def cancel(self) -> Benchmark:
        """Stop it and free its board."""
        return self.client.cancel(self.benchmark_id)

    def hcl(self) -> str:
        """Return the job as dispatched, with secrets masked."""
        return self.client.hcl(self.benchmark_id)

    def explain(self) -> shapes.Explanation:
        """Return the last decision on it."""
        return self.client.explain(self.benchmark_id)

    def logs(self, *, follow: bool = False, stream: str = "stderr") -> Iterator[str]:
        """Yield the lines of its log."""
        return self.client.logs(self.benchmark_id, follow=follow, stream=stream)

    def results(self) -> Results:
        """Return what it measured."""
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
            name=answer.name,
            campaign_id=answer.campaign_id,
            user_id=answer.user_id,
            phase=answer.phase,
            progress=answer.progress,
            progress_message=answer.progress_message,
            waiting_reason=answer.waiting_reason,
            failure=answer.failure,
            stopped_by=answer.stopped_by,
            stopped_reason=answer.stopped_reason,
            priority=answer.priority,
            target_uid=answer.target_uid,
            description=answer.description,
            submit_time=answer.submit_time,
            started_at=answer.started_at,
            ended_at=answer.ended_at,
            attempts=tuple(whole.attempts) if whole else (),
            forecast=whole.forecast if whole else None,
            planned=whole.planned if whole else None,
            warnings=tuple(warnings),
            answer=answer,
            client=client,
        )
    accepted = answer if isinstance(answer, shapes.SubmissionAnswer) else None
    return Benchmark(
        benchmark_id=answer.benchmark_id or "",
        status=answer.status,
        campaign_id=accepted.campaign_id if accepted else campaign_id,
        forecast=accepted.forecast if accepted else None,
        schedule_id=accepted.schedule_id if accepted else None,
        warnings=tuple(accepted.warnings if accepted else warnings),
        answer=answer,
        client=client,
    )


def gang_of(answer: shapes.SubmissionAnswer, client: Calls) -> Benchmarks:
    """Return the benchmarks of a submission: one, or with a count one for each board."""
    first = benchmark_of(answer, client)
    others = [
        benchmark_of(
            shapes.CampaignMember(benchmark_id=each, status=answer.status),
            client,
            answer.campaign_id,
        )
        for each in answer.benchmark_ids
        if each != answer.benchmark_id
    ]
    return [first, *others]
