"""A dry run: what would happen to a job description that were submitted now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.decide.forecast import forecasts
from edgeyard.scheduler.engine.cycle import Cycle, pending_of
from edgeyard.scheduler.engine.dispatch import ODT_CONFIG_FILENAME
from edgeyard.scheduler.engine.intake import next_fire
from edgeyard.scheduler.hcl.build import (
    SPEC_FILENAME,
    JobFile,
    JobRequest,
    RenderSettings,
    build_job,
)
from edgeyard.scheduler.hcl.render import render
from edgeyard.scheduler.model.attempt import job_id_of
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    BenchmarkFile,
    Binding,
    FileRole,
    JobDescription,
)
from edgeyard.scheduler.model.decision import Explanation
from edgeyard.scheduler.model.forecast import Forecast

CANDIDATE_ID = "dry-run"
_NO_DOWNLOAD_YET = "made-at-dispatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The answer.

    Attributes:
        hcl: The job as it would be dispatched; "" where no board could ever run it.
        forecast: None where no time can be told.
    """

    explanation: Explanation
    hcl: str
    forecast: Forecast | None = None


def preview(
    cycle: Cycle,
    settings: RenderSettings,
    description: JobDescription,
    files: Sequence[BenchmarkFile],
    user_id: str,
    now: datetime,
) -> Preview:
    """Decide the queue with the candidate in it, and render its job; nothing is changed.

    A cron is looked at as its next firing. Files that would have to be downloaded first are taken
    to be here: how long that takes nobody knows.
    """
    candidate, result = _decided(cycle, description, files, user_id, now)
    explanation = result.explanation(CANDIDATE_ID)
    if explanation.never:
        return Preview(explanation=explanation, hcl="")
    return Preview(
        explanation=explanation,
        hcl=_hcl(candidate, explanation, settings),
        forecast=_foretold(result),
    )


def _decided(
    cycle: Cycle,
    description: JobDescription,
    files: Sequence[BenchmarkFile],
    user_id: str,
    now: datetime,
) -> tuple[Benchmark, CycleResult]:
    """The candidate, and what a cycle with it in the queue finds."""
    if description.cron is not None:
        start = next_fire(description.cron, now)
        description = replace(description, cron=None, start_time=start)
    candidate = Benchmark(
        benchmark_id=CANDIDATE_ID,
        user_id=user_id,
        description=description,
        submit_time=now,
        files=tuple(files),
    )
    return candidate, cycle.preview(replace(pending_of(candidate), not_ready=None))


def _foretold(result: CycleResult) -> Forecast | None:
    return forecasts(result.decided, last=CANDIDATE_ID).get(CANDIDATE_ID)


def _hcl(candidate: Benchmark, explanation: Explanation, settings: RenderSettings) -> str:
    """Bound as decided; where it would wait, as loosely as is certain now."""
    asked = candidate.description
    placed = explanation.placement
    pinned = placed.target_uid if placed is not None else asked.target_uid
    binding = placed.binding if placed is not None else Binding.FILTERED
    files = [JobFile(role=FileRole.MODEL, filename=asked.model, download=_NO_DOWNLOAD_YET)]
    names = [asked.dataset] if asked.dataset else []
    names += [url.rsplit("/", 1)[-1] for url in asked.dataset_urls]
    files += [
        JobFile(role=FileRole.DATASET, filename=name, download=_NO_DOWNLOAD_YET) for name in names
    ]
    if asked.odt_config is not None:
        given = asked.odt_config
        name = given.rsplit("/", 1)[-1] if isinstance(given, str) else ODT_CONFIG_FILENAME
        files.append(JobFile(role=FileRole.ODT_CONFIG, filename=name, download=_NO_DOWNLOAD_YET))
    files.append(JobFile(role=None, filename=SPEC_FILENAME, download=_NO_DOWNLOAD_YET))
    request = JobRequest(
        job_id=job_id_of(CANDIDATE_ID, 1, asked.family, asked.runtime, candidate.submit_time),
        description=asked,
        priority=explanation.priority,
        binding=binding,
        files=tuple(files),
        target_uid=pinned,
        allowed_uids=placed.allowed_uids if placed is not None else (),
    )
    return render(build_job(request, settings), masked=True)
