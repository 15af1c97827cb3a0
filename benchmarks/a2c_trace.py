"""Jobs of a real log in the paper's cluster: the log HPC2N in windows of 60 jobs.

The rule, for each window of 60 consecutive jobs with a run time above 0:

- A job's run is ``ceil(15 * run / longest run of the window)`` steps, 1 to 15 as DeepRM's jobs.
- Its size is ``ceil(10 * processors / 240)`` of the 10 units of one resource.
- Submissions keep their order and, in proportion, their distances; the whole window takes so many
  steps that its work is 1.3 of what the cluster can do in them (DeepRM's load at rate 0.7). At most
  one job arrives in a step: a job whose step is taken comes at the next one.

Windows whose work is less than 1.3 of 60 steps are left out, because their 60 jobs could not come
that fast. Of the others, in the order of the log, the first is judged, the last 20 choose the best
actor, and the rest is for training. They do not overlap.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

from benchmarks.lookahead import TRACES
from edgeyard.simulator.mixes import JobMix
from edgeyard.training.a2c.judgement import Sequences
from edgeyard.training.worlds.swf import read_swf

LOG, PROCESSORS = "HPC2N-2002-2.2-cln.swf.gz", 240
JOBS, UNITS, MAX_STEPS, LOAD = 60, 10, 15, 1.3
MIX = JobMix(
    resources=1, short=(1, MAX_STEPS), long=(1, MAX_STEPS), dominant=(1, UNITS), other=(1, 1)
)
"""The ranges of the jobs."""
DRAWS = 20
"""How often rules play the judged window: two of them choose at random."""
_VALIDATION_WINDOWS = 20

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Windows(NamedTuple):
    """Windows of the log for each purpose."""

    trained: Sequences
    validation: Sequences
    judged: Sequences


@lru_cache(maxsize=1)
def windows(steps: int) -> Windows:
    """Return the windows of the log whose jobs all come within some steps.

    Raises:
        OSError: The log is not in ``TRACES``.
    """
    log = read_swf(TRACES / LOG)
    runs = log.run > 0
    submit, run, procs = log.submit[runs], log.run[runs], log.procs[runs]
    found = []
    for start in range(0, len(run) - JOBS + 1, JOBS):
        part = slice(start, start + JOBS)
        window = window_of(submit[part], run[part], procs[part], steps)
        if window is not None:
            found.append(window)
    whole = Sequences(np.stack([each[0] for each in found]), np.stack([each[1] for each in found]))
    return Windows(
        trained=_part(whole, slice(1, -_VALIDATION_WINDOWS)),
        validation=_part(whole, slice(-_VALIDATION_WINDOWS, None)),
        judged=_part(whole, slice(0, 1)),
    )


def window_of(
    submit: Floats, run: Floats, procs: Integers, steps: int
) -> tuple[Integers, Integers] | None:
    """Return the jobs as arrivals in ``steps`` steps: run times and sizes, (steps, 1).

    None: there is too little work for the load, or the last job would come after the last step.
    """
    length = np.ceil(MAX_STEPS * run / run.max()).astype(np.int64)
    size = np.ceil(UNITS * procs / PROCESSORS).astype(np.int64)
    span = float((length * size).sum()) / (UNITS * LOAD)
    if span < len(run):
        return None
    since = (submit - submit[0]) / max(float(submit[-1] - submit[0]), 1.0)
    lengths = np.zeros(steps, dtype=np.int64)
    sizes = np.zeros((steps, 1), dtype=np.int64)
    free = 1  # nothing arrives in the first step, in which an episode begins
    for job, wanted in enumerate((1 + np.floor(since * (span - 1))).astype(np.int64).tolist()):
        at = max(free, wanted)
        if at >= steps:
            return None
        lengths[at], sizes[at, 0] = length[job], size[job]
        free = at + 1
    return lengths, sizes


def best_slowdown(sequences: Sequences, row: int = 0, limit_s: float = 60.0) -> tuple[float, float]:
    """Return the mean slowdown of the best schedule that was found, and a proven lower bound.

    An integer programme that knows all jobs in advance and has no slots: whether a job starts at a
    step; in each step the running jobs fit. Solved by HiGHS; both are the optimum if it had the
    time.
    """
    at = np.flatnonzero(sequences.lengths[row])
    run, size = sequences.lengths[row, at], sequences.sizes[row, at, 0]
    last = int(at[-1] + (run * size).sum() // UNITS + 2 * MAX_STEPS)
    starts = [(job, step) for job in range(len(at)) for step in range(int(at[job]), last)]
    jobs, steps = np.array(starts).T
    cost = (steps - at[jobs] + run[jobs]) / run[jobs] / len(at)
    once = coo_matrix((np.ones(len(jobs)), (jobs, np.arange(len(jobs)))))
    spread = np.repeat(np.arange(len(jobs)), run[jobs])
    within = np.concatenate([np.arange(step, step + run[job]) for job, step in starts])
    used = coo_matrix((size[jobs][spread], (within, spread)))
    found = milp(
        cost,
        integrality=np.ones(len(cost)),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(once, 1, 1), LinearConstraint(used, ub=UNITS)],
        options={"time_limit": limit_s},
    )
    return float(found.fun), float(found.mip_dual_bound)


def repeated(sequences: Sequences, times: int) -> Sequences:
    """Return sequences several times."""
    return Sequences(np.repeat(sequences.lengths, times, 0), np.repeat(sequences.sizes, times, 0))


def _part(whole: Sequences, rows: slice) -> Sequences:
    return Sequences(whole.lengths[rows], whole.sizes[rows])
