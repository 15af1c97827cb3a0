"""Times that a run takes whatever the board, and bounds that none can keep."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from edgeyard.devices.runner.arrivals import trial_s
from edgeyard.errors import FieldError
from edgeyard.scheduler.model.benchmark import BenchmarkType, JobDescription
from edgeyard.scheduler.model.run_bounds import MIN_INFERENCE_S, MIN_RUN_S, load_s, min_run_s


def user_time_s(description: JobDescription, default_s: float) -> float | None:
    """Return the bound of a run: the stated one, or that of a load longer than the default.

    A soak of 30 min has a stated time: the default then bounds what the run takes besides.
    """
    if description.user_time_s is not None or shortest_run_s(description) <= default_s:
        return description.user_time_s
    load_time_s = load_s(description)
    return load_time_s + default_s if load_time_s else None


def run_problems(
    description: JobDescription, now: datetime, default_user_time_s: float
) -> list[FieldError]:
    """Bounds that no run can keep, whatever the board: these are facts, no predictions."""
    min_s = shortest_run_s(description)
    found = []
    bound_s = default_user_time_s if description.user_time_s is None else description.user_time_s
    if bound_s < min_s:
        found.append(
            FieldError(
                _too_long(description),
                f"no board runs {_work(description)} within {bound_s:g} s",
                f"a user_time of at least {min_s:g} s" + _fewer(description, bound_s),
            )
        )
    begin = max(now, description.start_time or now)
    if description.deadline is not None and now < description.deadline < begin + timedelta(
        seconds=min_s
    ):
        soonest = begin + timedelta(seconds=math.ceil(min_s))
        found.append(
            FieldError(
                "/deadline",
                f"no board can end {_work(description)} by then"
                + ("" if description.start_time is None else " if it starts at its start_time"),
                f"a time after {soonest:%Y-%m-%dT%H:%M:%SZ}",
            )
        )
    return found


def shortest_run_s(description: JobDescription) -> float:
    """Return how long the shortest run of a description lasts, seconds."""
    return min_run_s(
        description.benchmark_type,
        description.nb_inference,
        precision=description.precision,
        soak_s=description.soak_s,
        levels=len(description.concurrency),
        load_s=_trial_s(description),
    )


def _trial_s(description: JobDescription) -> float:
    """Return how long a trial of a load lasts at least, seconds; 0 without one."""
    rules = description.load_rules
    return 0.0 if rules is None else trial_s(rules, description.nb_inference)


def _too_long(description: JobDescription) -> str:
    """Return the pointer of what can be changed so that a run ends in its time."""
    if description.user_time_s is not None:
        return "/user_time"
    if description.concurrency:
        return "/concurrency"
    if description.load is not None:
        return "/load_duration"
    return "/nb_inference" if description.soak_s is None else "/soak"


def _work(description: JobDescription) -> str:
    """Return what the shortest run consists of, in words."""
    if description.soak_s is not None:
        return f"a soak of {description.soak_s:g} s"
    if description.concurrency:
        return f"{len(description.concurrency)} numbers of callers, one after another,"
    if description.load is not None:
        return f"a trial of {_trial_s(description):g} s"
    if description.benchmark_type is BenchmarkType.TYPE1 and description.precision is None:
        return f"{description.nb_inference:,} timed inferences"
    return "anything"


def _fewer(description: JobDescription, bound_s: float) -> str:
    max_runs = int((bound_s - MIN_RUN_S) / MIN_INFERENCE_S)
    if (
        description.benchmark_type is not BenchmarkType.TYPE1
        or description.precision is not None
        or description.soak_s is not None
        or description.concurrency
        or description.load is not None
        or max_runs < 1
    ):
        return ""
    return f", or an nb_inference of at most {max_runs:,}"
