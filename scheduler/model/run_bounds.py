"""Facts about how short a run can be, whatever the board and whatever was measured before.

A benchmark whose stated bound is below these can never end with a result. They are lower bounds,
generous on purpose, and no estimates: nothing is refused for good by a prediction.
"""

from __future__ import annotations

from edgeyard.scheduler.model.benchmark import BenchmarkType

MIN_RUN_S = 0.02
"""A task starts a Python interpreter that loads NumPy and an engine. Ten times this is usual."""

MIN_INFERENCE_S = 1e-6
"""Each timed inference is a call from Python into the engine, between two readings of the clock.

On a fast server the call alone takes longer; the quickest networks take about ten times this.
"""


def min_run_s(
    benchmark_type: BenchmarkType, nb_inference: int, *, precision: float | None = None
) -> float:
    """Return the shortest time in which a run can end with a result, seconds.

    Args:
        benchmark_type: Only TYPE1 states how many inferences it times.
        nb_inference: Timed inferences.
        precision: If given, the measurement ends when it is reached, after any number of them.
    """
    if benchmark_type is not BenchmarkType.TYPE1 or precision is not None:
        return MIN_RUN_S
    return MIN_RUN_S + nb_inference * MIN_INFERENCE_S
