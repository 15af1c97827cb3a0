"""Logs of rigid parallel jobs by the model of Lublin and Feitelson: arrivals, sizes, run times.

Source: U. Lublin and D. G. Feitelson, "The Workload on Parallel Supercomputers: Modeling the
Characteristics of Rigid Jobs", Journal of Parallel and Distributed Computing 63(11), 2003,
pp. 1105-1122. The constants are those of its authors' generator for jobs of one kind (batch and
interactive ones together), which describe the logs of three machines of the 1990s.

- *Size*: a job is serial with a probability; otherwise the logarithm (base 2) of its processors is
  two-stage uniform, for most jobs rounded to a power of two.
- *Run time*: its natural logarithm is hyper-gamma, a mixture of two gamma distributions. The larger
  a job, the rarer the one with short times.
- *Arrivals*: the natural logarithm of the time between two jobs is gamma distributed, on a clock
  that runs faster in busy half-hours of the day than in quiet ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.simulator.importers.machines import Selection, TraceJobs, nodes_scenario
from edgeyard.simulator.scenario import DAY_S, MAX_SECONDS, NodeGroup, Scenario

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MIN_PROCESSORS = 8
"""The model's distribution of sizes needs two stages between 2 processors and all of them."""

SERIAL_SHARE = 0.244
POWER_OF_TWO_SHARE = 0.576
"""Share of all jobs whose size is rounded to a power of two."""
MIN_LOG2_SIZE = 0.8
"""Rounded, the smallest parallel job has 2 processors."""
FIRST_STAGE_SHARE = 0.86
FIRST_STAGE_BELOW_MAX = 2.5
"""Distance of the first stage's end from log2 of the processors (the paper: 1.5 to 3.5)."""
FIRST_STAGE_MIN_END = 1.5
"""On small machines the first stage ends here (the authors' advice for 8 processors)."""

SHORT_RUN = (4.2, 0.94)
"""Shape and scale of the logarithm of short run times (seconds)."""
LONG_RUN = (312.0, 0.03)
"""Shape and scale of the logarithm of long run times (seconds)."""
SHORT_RUN_SLOPE, SHORT_RUN_INTERCEPT = -0.0054, 0.78
"""Share of short run times: slope * processors + intercept, cut to 0 to 1."""
MAX_LOG_RUN = 12.0
"""Maximum ln of run times (e^12 s is 1.9 days); longer ones are drawn again."""

GAP = (10.2303 * 1.0225, 0.4871)
"""Shape and scale of the logarithm of the time between two jobs (seconds): fitted to the rush hours
and stretched to the whole day by 1.0225."""
MAX_LOG_GAP = 13.0
"""Maximum ln of the seconds between jobs; longer gaps are drawn again."""

DAILY_CYCLE = (8.1737, 3.9631)
"""Shape and scale, in half-hours, of when in a day jobs arrive."""
HALF_HOURS = 48
CYCLE_START = 11
"""The day of `DAILY_CYCLE` begins with its 11th half-hour, the quietest, which starts at 5:00."""
_HALF_HOUR_S = DAY_S / HALF_HOURS


@dataclass(frozen=True, slots=True, kw_only=True)
class LublinOptions:
    """What is generated.

    Attributes:
        name: Of the scenario.
        seed: Of its jobs.
        jobs: How many.
        processors: Of the machine, at least `MIN_PROCESSORS`; the largest job takes them all.
        load: What arrives over what the machine can run: all times between jobs are stretched by
            one factor. None: the model's own.
    """

    name: str
    seed: int = 1
    jobs: int = 10_000
    processors: int = 128
    load: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RigidJobs:
    """Generated jobs in the order of their arrival; shape (jobs,) each.

    Attributes:
        submit_s: Whole seconds since midnight of the first day.
        run_s: Whole seconds, at least 1.
        processors: From 1 to those of the machine.
    """

    submit_s: Integers
    run_s: Integers
    processors: Integers


def rigid_jobs(options: LublinOptions) -> RigidJobs:
    """Draw the jobs of the model.

    Raises:
        InvalidInput: The machine is too small, or the jobs arrive over more than ten years.
    """
    if options.processors < MIN_PROCESSORS:
        accepted = f"{MIN_PROCESSORS} or more: the model of job sizes needs them"
        raise InvalidInput.at("--processors", f"is {options.processors}", accepted)
    sizes = draw_sizes(stream(options.seed, "lublin", "sizes"), options.jobs, options.processors)
    run_s = draw_run_times(stream(options.seed, "lublin", "run times"), sizes)
    clock_s = np.cumsum(draw_gaps(stream(options.seed, "lublin", "gaps"), options.jobs))
    if options.load is not None:
        work_s = float((run_s * sizes).sum())
        clock_s *= work_s / (options.processors * options.load * float(clock_s[-1]))
    if clock_s[-1] > MAX_SECONDS:
        reason = f"these jobs take {clock_s[-1] / DAY_S:,.0f} days to arrive"
        accepted = f"at most {MAX_SECONDS / DAY_S:,.0f} days: fewer jobs, or a higher --load"
        raise InvalidInput.at("--jobs", reason, accepted)
    submit_s = np.floor(time_of_day_cycle(clock_s)).astype(np.int64)
    return RigidJobs(submit_s=submit_s, run_s=run_s, processors=sizes)


def lublin(options: LublinOptions) -> Scenario:
    """Return the jobs as a scenario: one node with all processors, as an imported log has.

    Raises:
        InvalidInput: See `rigid_jobs`.
    """
    jobs = rigid_jobs(options)
    count = options.jobs
    run_s = jobs.run_s.astype(np.float64)
    columns = TraceJobs(
        path=Path(options.name),
        line=np.arange(1, count + 1),
        field="processors",
        job_id=[str(number) for number in range(1, count + 1)],
        submit=jobs.submit_s.astype(np.float64),
        run=run_s,
        cpus=jobs.processors.astype(np.float64),
        memory_mb=np.zeros(count),
        gpus=np.zeros(count),
        nodes=np.ones(count, dtype=np.int64),
        requested=run_s,
        user=[""] * count,
    )
    made = nodes_scenario(
        columns,
        [NodeGroup(cpu_cores=options.processors, memory_mb=1)],
        Selection(name=options.name),
        description=f"{_title(options)}.",
    )
    return msgspec.structs.replace(made.scenario, seed=options.seed, tags=("generated", "lublin"))


def lublin_log(options: LublinOptions) -> str:
    """Return the jobs as a log in the Standard Workload Format.

    Requested times and users are unknown, as in the logs of the authors' generator.

    Raises:
        InvalidInput: See `rigid_jobs`.
    """
    jobs = rigid_jobs(options)
    header = (
        "; Version: 2.2",
        f"; Computer: {_title(options)}",
        "; Information: Lublin, Feitelson: The workload on parallel supercomputers, JPDC 63(11)",
        f"; MaxJobs: {options.jobs}",
        f"; MaxRecords: {options.jobs}",
        f"; MaxNodes: {options.processors}",
        f"; MaxProcs: {options.processors}",
        f"; MaxRuntime: {int(math.exp(MAX_LOG_RUN))}",
    )
    rows = zip(jobs.submit_s.tolist(), jobs.run_s.tolist(), jobs.processors.tolist(), strict=True)
    lines = (
        f"{number} {submit} -1 {run} {size} -1 -1 {size} -1 -1 1 -1 -1 -1 -1 -1 -1 -1"
        for number, (submit, run, size) in enumerate(rows, 1)
    )
    return "\n".join([*header, *lines, ""])


def first_stage_end(processors: int) -> float:
    """Return where the first of the two stages of log2 of a parallel job's size ends."""
    return max(math.log2(processors) - FIRST_STAGE_BELOW_MAX, FIRST_STAGE_MIN_END)


def draw_sizes(random: np.random.Generator, count: int, processors: int) -> Integers:
    """Draw processors of jobs, shape (count,).

    With the probability `SERIAL_SHARE` a job has one. Otherwise x is uniform between
    `MIN_LOG2_SIZE` and the end of the first stage with the probability `FIRST_STAGE_SHARE`, and
    between that and log2(processors) without it; the job has 2^x processors. For
    `POWER_OF_TWO_SHARE` of all jobs x is rounded first.
    """
    end = first_stage_end(processors)
    kind = random.random(count)
    is_first = random.random(count) <= FIRST_STAGE_SHARE
    low = np.where(is_first, MIN_LOG2_SIZE, end)
    high = np.where(is_first, end, math.log2(processors))
    log2_size = low + random.random(count) * (high - low)
    is_power = kind <= SERIAL_SHARE + POWER_OF_TWO_SHARE
    log2_size = np.where(is_power, np.floor(log2_size + 0.5), log2_size)
    sizes = np.floor(2.0**log2_size + 0.5).astype(np.int64)
    # of a machine without a power of two processors the largest power rounds to more than it has
    return np.where(kind <= SERIAL_SHARE, 1, np.minimum(sizes, processors))


def short_run_share(processors: Integers) -> Floats:
    """Return the probability that a job's run time is one of the short ones."""
    return np.clip(SHORT_RUN_SLOPE * processors + SHORT_RUN_INTERCEPT, 0.0, 1.0)


def draw_run_times(random: np.random.Generator, processors: Integers) -> Integers:
    """Draw the run times of jobs of these sizes, whole seconds from 1; the shape of the sizes."""
    share = short_run_share(processors)
    logs = np.empty(len(processors))
    left = np.arange(len(processors))
    while len(left):
        is_short = random.random(len(left)) <= share[left]
        shape = np.where(is_short, SHORT_RUN[0], LONG_RUN[0])
        scale = np.where(is_short, SHORT_RUN[1], LONG_RUN[1])
        logs[left] = random.gamma(shape, scale)
        left = left[logs[left] > MAX_LOG_RUN]
    return np.floor(np.exp(logs)).astype(np.int64)


def draw_gaps(random: np.random.Generator, count: int) -> Floats:
    """Draw times between jobs, seconds of a clock without day and night; shape (count,)."""
    logs = np.empty(count)
    left = np.arange(count)
    while len(left):
        logs[left] = random.gamma(*GAP, len(left))
        left = left[logs[left] > MAX_LOG_GAP]
    return np.exp(logs)


def half_hour_weights() -> Floats:
    """Return how many of a day's jobs arrive in each half-hour, over the mean; shape (48,).

    The half-hour with the number i (from 1) has the weight F(i + 0.5) - F(i - 0.5), where F is the
    distribution function of `DAILY_CYCLE`; those before `CYCLE_START` count as of the next day.
    """
    from scipy.stats import gamma

    number = np.arange(1, HALF_HOURS + 1)
    number = np.where(number < CYCLE_START, number + HALF_HOURS, number)
    shape, scale = DAILY_CYCLE
    weights = gamma.cdf(number + 0.5, shape, scale=scale) - gamma.cdf(
        number - 0.5, shape, scale=scale
    )
    return np.asarray(weights / weights.mean(), dtype=np.float64)


def time_of_day_cycle(clock_s: Floats) -> Floats:
    """Return when jobs arrive, seconds since midnight, from times without day and night.

    Within a half-hour both advance evenly: by its weight of half-hours, and by one.
    """
    passed_s = np.concatenate([[0.0], np.cumsum(half_hour_weights() * _HALF_HOUR_S)])
    passed_s[-1] = DAY_S  # the weights' mean is 1
    days, rest_s = np.divmod(clock_s, DAY_S)
    of_day_s = np.interp(rest_s, passed_s, np.arange(HALF_HOURS + 1) * _HALF_HOUR_S)
    return np.asarray(days * DAY_S + of_day_s, dtype=np.float64)


def _title(options: LublinOptions) -> str:
    load = "" if options.load is None else f" at load {options.load:g}"
    return (
        f"Model of Lublin and Feitelson, {options.jobs} jobs on {options.processors} "
        f"processors{load}, seed {options.seed}"
    )
