"""What a learned queue policy knows of a job and the moment: one function for training and use."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.compiled import compiled

NAMES = (
    "log_requested_s",
    "log_processors",
    "log_wait_s",
    "log_requested_slowdown",
    "free_share",
    "log_queue",
    "fits_now",
    "log_expected_s",
    "log_weight",
)
INPUTS = len(NAMES)


@compiled
def queue_inputs(
    requested_s: float,
    expected_s: float,
    weight: float,
    procs: int,
    wait_s: float,
    free: int,
    processors: int,
    queue: int,
    inputs: NDArray[np.float64],
) -> None:
    """Write the inputs of one job, all of them about 0 to 1.

    Args:
        requested_s: What its user asked for; in the lab the predicted median.
        expected_s: As `expected_run` of the rollout returns it.
        weight: As `expected_run` of the rollout returns it.
        procs: Processors that it takes.
        wait_s: How long it has waited.
        free: Free processors.
        processors: Of the machine.
        queue: How many jobs wait.
        inputs: Shape (`INPUTS`,), written to.
    """
    requested_s = max(requested_s, 1.0)
    inputs[0] = math.log(requested_s) / 12.0
    inputs[1] = math.log(procs) / 6.0
    inputs[2] = math.log(1.0 + wait_s) / 12.0
    inputs[3] = math.log((wait_s + requested_s) / max(requested_s, 10.0)) / 8.0
    inputs[4] = free / processors
    inputs[5] = math.log(queue) / 6.0
    inputs[6] = 1.0 if procs <= free else 0.0
    inputs[7] = math.log(max(expected_s, 1.0)) / 12.0
    inputs[8] = -math.log(weight) / 12.0


@compiled
def queue_table(
    requested_s: NDArray[np.float64],
    expected_s: NDArray[np.float64],
    weight: NDArray[np.float64],
    procs: NDArray[np.int64],
    wait_s: NDArray[np.float64],
    free: int,
    processors: int,
) -> NDArray[np.float64]:
    """Return the inputs of all jobs of a queue, shape (jobs, `INPUTS`)."""
    count = len(requested_s)
    table = np.empty((count, INPUTS))
    for job in range(count):
        queue_inputs(
            requested_s[job], expected_s[job], weight[job], procs[job], wait_s[job], free,
            processors, count, table[job],
        )  # fmt: skip
    return table
