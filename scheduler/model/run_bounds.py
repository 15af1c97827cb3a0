"""How long a run may take: the bounds that end it, and the facts that no bound may undercut.

The defaults are those of the runner, so that a task ends at the same time in each.
"""

from __future__ import annotations

from edgeyard.devices.runner.spec import DEFAULT_NO_OUTPUT_TIMEOUT_S as DEFAULT_MAX_SILENCE_S
from edgeyard.devices.runner.spec import DEFAULT_UPLOAD_TIMEOUT_S as DEFAULT_MAX_UPLOAD_S
from edgeyard.devices.runner.spec import DEFAULT_USER_TIME_S as DEFAULT_MAX_RUN_S
from edgeyard.devices.runner.spec import MIN_LEVEL_S
from edgeyard.scheduler.model.benchmark import BenchmarkType, JobDescription

__all__ = [
    "DEFAULT_MAX_RUN_S",
    "DEFAULT_MAX_SILENCE_S",
    "DEFAULT_MAX_UPLOAD_S",
    "MIN_INFERENCE_S",
    "MIN_RUN_S",
    "load_s",
    "min_run_s",
    "run_bound_s",
]

MIN_RUN_S = 0.02
"""A task starts a Python interpreter that loads NumPy and an engine. Ten times this is usual."""

_MAX_RESERVE_S, _RESERVE_SHARE = 60.0, 0.25
"""What a load has to leave of the run time to start, warm up and report."""

MIN_INFERENCE_S = 1e-6
"""Each timed inference is a call from Python into the engine, between two readings of the clock.

On a fast server the call alone takes longer; the quickest networks take about ten times this.
"""


def run_bound_s(
    user_time_s: float | None, budget: float | None, rate: float, max_s: float
) -> float:
    """Return the longest time that an attempt may run, seconds.

    Args:
        user_time_s: The bound that the user stated; None: none.
        budget: Credits that the run may cost; None: any number.
        rate: Credits for each second on a board of the family.
        max_s: The server's bound on runs whose user states none.
    """
    bound_s = max_s if user_time_s is None else user_time_s
    return bound_s if budget is None or rate <= 0 else min(bound_s, budget / rate)


def load_s(description: JobDescription) -> float:
    """Return how long its load lasts by what it states, whatever the board, seconds; 0: no load.

    Of a load at a stated rate, what is expected: the arrivals themselves are not drawn.
    """
    if description.soak_s is not None:
        return description.soak_s
    if description.concurrency:
        return len(description.concurrency) * MIN_LEVEL_S
    rules = description.load_rules
    if rules is None:
        return 0.0
    return max(rules.duration_s, description.nb_inference / rules.rate if rules.rate else 0.0)


def min_run_s(
    benchmark_type: BenchmarkType,
    nb_inference: int,
    *,
    precision: float | None = None,
    soak_s: float | None = None,
    levels: int = 0,
    load_s: float = 0.0,
) -> float:
    """Return the shortest time in which a run can end with a result, seconds.

    A benchmark whose stated bound is below can never end with a result. This is a lower bound,
    generous on purpose, and no estimate: no prediction refuses anything for good.

    Args:
        benchmark_type: Only TYPE1 states how many inferences it times.
        nb_inference: Timed inferences.
        precision: If given, the measurement ends when it is reached, after any number of them.
        soak_s: Duration of a soak; None: no soak.
        levels: How many numbers of concurrent callers it is measured with, each with as many
            inferences.
        load_s: That a trial of a load lasts at least; 0: there is none.
    """
    inferences_s = nb_inference * MIN_INFERENCE_S
    if levels:
        load_s = levels * max(MIN_LEVEL_S, inferences_s)
    elif load_s:
        load_s = max(load_s, inferences_s)
    lasts_s = load_s if soak_s is None else soak_s
    if lasts_s:
        return lasts_s + min(_MAX_RESERVE_S, _RESERVE_SHARE * lasts_s)
    if benchmark_type is not BenchmarkType.TYPE1 or precision is not None:
        return MIN_RUN_S
    return MIN_RUN_S + inferences_s
