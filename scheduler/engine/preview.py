"""A dry run: what would happen to a job description that was submitted now."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from edgeyard.errors import InvalidInput, NotFound, Unavailable
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.engine.crontab import next_fire
from edgeyard.scheduler.engine.cycle import MAX_PREVIEW_WAIT_S, Cycle
from edgeyard.scheduler.engine.cycle_outcome import CycleOutcome
from edgeyard.scheduler.engine.dispatch import ODT_CONFIG_FILENAME
from edgeyard.scheduler.engine.queue_cache import pending_of
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
from edgeyard.scheduler.ports import Clock
from edgeyard.scheduler.prediction.calibration import AS_DRAWN, IntervalScales
from edgeyard.scheduler.prediction.forecast import forecast_of, with_start_of

logger = logging.getLogger(__name__)

CANDIDATE_ID = "dry-run"

MAX_PREDICTED_QUEUE = 100
"""Benchmarks that run or wait; with more of them a submission gets no forecast at once."""

FORECAST_SHARE = 0.05
"""Maximum share of one core for forecasts of submissions: half a millisecond of each where a
hundred come in a second."""

MAX_FORECAST_AGE_S = 1.0
"""Oldest forecast that another submission of the same kind gets; a forecast states its age."""

MAX_PLUGIN_WAIT_S = 0.05
"""Longest wait of a submission for a plugin that a cycle uses; past it, it gets no forecast."""

_NO_DOWNLOAD_YET = "made-at-dispatch"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A benchmark that is about to be submitted.

    Attributes:
        kind: What is asked for; equal where all that a forecast depends on is.
        find: Gives its description and files; not called where no new forecast is made.
    """

    kind: object
    find: Callable[[], tuple[JobDescription, Sequence[BenchmarkFile]]]


@dataclass(frozen=True, slots=True)
class _CachedForecast:
    """The last forecast of a submission, and the cycle that it was made from."""

    kind: object
    user_id: str
    forecast: Forecast | None
    at_s: float
    outcome: CycleOutcome | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What would happen to a job description that were submitted now.

    Attributes:
        explanation: Every board's verdict, the priority and its parts.
        hcl: The job as it would be dispatched, secrets masked; "" where no board could ever run it.
        forecast: None where no time can be predicted.
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
    interval_scales: IntervalScales = AS_DRAWN,
) -> Preview:
    """Decide the queue with the candidate in it, and render its job; nothing is changed.

    A cron is previewed as its next firing. Files that would have to be downloaded first count as
    present: how long that takes is not known.

    Args:
        interval_scales: As for `edgeyard.scheduler.prediction.forecast.forecasts`.
    """
    candidate, result = _decided(cycle, description, files, user_id, now)
    explanation = result.explanation(CANDIDATE_ID)
    if explanation.never:
        return Preview(explanation=explanation, hcl="")
    forecast = forecast_of(
        result.decided.forecast_input, CANDIDATE_ID, interval_scales=interval_scales
    )
    if explanation.planned is not None:
        explanation = replace(explanation, planned=with_start_of(forecast, explanation.planned))
    return Preview(
        explanation=explanation, hcl=_hcl(candidate, explanation, settings), forecast=forecast
    )


class SubmissionForecaster:
    """Predicts at once when a submission starts and ends. Safe on any thread.

    It takes as long as a decision of the whole queue, so it is done for short queues alone, for one
    at a time, and rarely enough that it takes no more than a share of a core: a flood of
    submissions is answered as fast as without it, and gets its forecasts in the forecaster's next
    turn. Until the next cycle the queue is the same, so one forecast holds for the next of its
    kind.
    """

    def __init__(
        self,
        cycle: Cycle,
        clock: Clock,
        interval_scales: Callable[[], IntervalScales] = lambda: AS_DRAWN,
    ) -> None:
        """Nothing is read before `of`.

        Args:
            interval_scales: As for `edgeyard.scheduler.prediction.forecast.forecasts`, as of now.
        """
        self._cycle = cycle
        self._clock = clock
        self._interval_scales = interval_scales
        self._lock = threading.Lock()
        self._next_s = -math.inf
        self._last: _CachedForecast | None = None

    def of(self, candidate: Candidate, user_id: str) -> Forecast | None:
        """Return the preview of a benchmark that is about to be submitted.

        Args:
            candidate: What it is.
            user_id: Whose it is.

        Returns:
            None for a cron, where files must be downloaded first, where no board could ever run
            it, and where a forecast would take too long.
        """
        began_s = self._clock.monotonic_s()
        outcome = self._cycle.latest
        if outcome is not None and len(outcome.live) > MAX_PREDICTED_QUEUE:
            return None
        last = self._last
        if last is not None and self._holds(last, candidate, user_id, began_s):
            return last.forecast
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return None if began_s < self._next_s else self._forecast(candidate, user_id, began_s)
        finally:
            self._lock.release()

    def _holds(
        self, last: _CachedForecast, candidate: Candidate, user_id: str, now_s: float
    ) -> bool:
        return (
            now_s - last.at_s <= MAX_FORECAST_AGE_S
            and last.outcome is self._cycle.latest
            and last.user_id == user_id
            and last.kind == candidate.kind
        )

    def _forecast(self, candidate: Candidate, user_id: str, began_s: float) -> Forecast | None:
        outcome = self._cycle.latest  # before the preview, which a cycle may overtake
        try:
            forecast = self._predict(*candidate.find(), user_id)
        except (InvalidInput, NotFound):  # the submission itself is refused for it
            return None
        except Unavailable:  # a cycle uses the plugins: the next forecast of all covers it
            return None
        except Exception:  # a submission is worth more than its forecast
            logger.exception(
                "no forecast of a submission", extra={"event": "submission_forecast.broke"}
            )
            return None
        finally:
            took_s = self._clock.monotonic_s() - began_s
            self._next_s = began_s + took_s / FORECAST_SHARE
        self._last = _CachedForecast(candidate.kind, user_id, forecast, began_s, outcome)
        return forecast

    def _predict(
        self, description: JobDescription, files: Sequence[BenchmarkFile], user_id: str
    ) -> Forecast | None:
        if description.cron is not None or any(file.sha256 is None for file in files):
            return None
        _, result = _decided(
            self._cycle, description, files, user_id, self._clock.now(), MAX_PLUGIN_WAIT_S
        )
        return forecast_of(
            result.decided.forecast_input, CANDIDATE_ID, interval_scales=self._interval_scales()
        )


def _decided(
    cycle: Cycle,
    description: JobDescription,
    files: Sequence[BenchmarkFile],
    user_id: str,
    now: datetime,
    max_wait_s: float = MAX_PREVIEW_WAIT_S,
) -> tuple[Benchmark, CycleResult]:
    """Return the candidate, and what a cycle with it in the queue finds."""
    if description.cron is not None:
        start = next_fire(description.cron, now)
        description = replace(description, cron=None, start_time=start)
    candidate = Benchmark(
        benchmark_id=CANDIDATE_ID,
        user_id=user_id,
        description=description,
        submit_time=now,
        files=tuple(files),
        campaign_id=CANDIDATE_ID if description.count > 1 else None,
    )
    return candidate, cycle.preview(replace(pending_of(candidate), not_ready=None), max_wait_s)


def _hcl(candidate: Benchmark, explanation: Explanation, settings: RenderSettings) -> str:
    """Bound as decided; where it would wait, as loosely as is certain now."""
    description = candidate.description
    placed = explanation.placement
    pinned = placed.target_uid if placed is not None else description.target_uid
    binding = placed.binding if placed is not None else Binding.FILTERED
    files = [
        JobFile(role=description.model_role, filename=description.model, download=_NO_DOWNLOAD_YET)
    ]
    names = [description.dataset] if description.dataset else []
    names += [url.rsplit("/", 1)[-1] for url in description.dataset_urls]
    files += [
        JobFile(role=FileRole.DATASET, filename=name, download=_NO_DOWNLOAD_YET) for name in names
    ]
    if description.odt_config is not None:
        given = description.odt_config
        name = given.rsplit("/", 1)[-1] if isinstance(given, str) else ODT_CONFIG_FILENAME
        files.append(JobFile(role=FileRole.ODT_CONFIG, filename=name, download=_NO_DOWNLOAD_YET))
    files.append(JobFile(role=None, filename=SPEC_FILENAME, download=_NO_DOWNLOAD_YET))
    request = JobRequest(
        job_id=job_id_of(
            CANDIDATE_ID, 1, description.family, description.runtime, candidate.submit_time
        ),
        description=description,
        priority=explanation.priority,
        binding=binding,
        files=tuple(files),
        target_uid=pinned,
        allowed_uids=placed.allowed_uids if placed is not None else (),
        benchmark_id=CANDIDATE_ID,
    )
    return render(build_job(request, settings), masked=True)
