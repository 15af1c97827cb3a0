"""Simulated runs, built from a few rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgeyard.simulator.runs import (
    ENDED,
    FAULTED,
    STATUSES,
    STOPPED,
    JobColumns,
    OccupancyColumns,
    RunMeta,
    SeriesColumns,
    SimulatedRun,
)

NAN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of a run; NaN: it did not get so far."""

    job: str
    submit_s: float = 0.0
    start_s: float = NAN
    end_s: float = NAN
    status: str = "completed"
    user: str = "ada"
    board: int = 0
    attempts: int = 1
    preemptions: int = 0
    deadline_s: float = NAN


def simulated_run(
    jobs: Sequence[Job],
    *,
    policy: str = "fifo",
    seed: int = 1,
    scenario: str = "lab",
    scenario_hash: str = "",
    boards: Sequence[str] = ("board-1", "board-2"),
    world: str = "boards",
    until_s: float | None = None,
    figures: dict[str, float] | None = None,
) -> SimulatedRun:
    """A run in which each job with a start holds its board from then to its end."""
    submit = np.array([each.submit_s for each in jobs], dtype=np.float64)
    start = np.array([each.start_s for each in jobs], dtype=np.float64)
    end = np.array([each.end_s for each in jobs], dtype=np.float64)
    last = max([0.0, *submit, *end[~np.isnan(end)]]) if until_s is None else until_s
    stop = np.where(np.isnan(end), last, end)
    ran = np.flatnonzero(~np.isnan(start))
    moments = np.unique(np.concatenate([[0.0, last], submit, start[ran], stop]))
    running = np.array([int(((start[ran] <= t) & (t < stop[ran])).sum()) for t in moments])
    left = np.where(np.isnan(start), stop, start)
    pending = np.array([int(((submit <= t) & (t < left)).sum()) for t in moments])
    ways = {"completed": ENDED, "failed": FAULTED}
    how = np.array([ways.get(each.status, STOPPED) for each in jobs], dtype=np.int64)
    return SimulatedRun(
        meta=RunMeta(
            scenario=scenario,
            scenario_hash=scenario_hash or scenario.encode().hex().ljust(64, "0"),
            world=world,
            policy=policy,
            seed=seed,
            version="0.0.1",
            wall_s=0.5,
            figures=figures or {},
        ),
        jobs=JobColumns(
            job=np.array([each.job for each in jobs], dtype=np.str_),
            user=np.array([each.user for each in jobs], dtype=np.str_),
            submit_s=submit,
            start_s=start,
            end_s=end,
            board=np.array([each.board for each in jobs], dtype=np.int64),
            status=np.array([STATUSES.index(each.status) for each in jobs], dtype=np.int64),
            attempts=np.array([each.attempts for each in jobs], dtype=np.int64),
            preemptions=np.array([each.preemptions for each in jobs], dtype=np.int64),
            deadline_s=np.array([each.deadline_s for each in jobs], dtype=np.float64),
            procs=np.ones(len(jobs), dtype=np.int64),
        ),
        occupancy=OccupancyColumns(
            board=np.array([each.board for each in jobs], dtype=np.int64)[ran],
            job=ran.astype(np.int64),
            from_s=start[ran],
            to_s=stop[ran],
            how=how[ran],
        ),
        series=SeriesColumns(
            time_s=moments,
            pending=pending,
            running=running,
            busy_share=running / len(boards),
            overloaded=np.zeros(len(moments), dtype=np.int64),
        ),
        boards=tuple(boards),
        families=("rpi4",) * len(boards),
    )


def random_run(
    policy: str, seed: int, *, jobs: int = 60, extra_s: float = 0.0, scenario: str = "lab"
) -> SimulatedRun:
    """A run of one board whose arrivals and run times depend on the seed alone.

    Args:
        policy: Its name.
        seed: Of arrivals and run times.
        jobs: How many.
        extra_s: Added to each run's start: what the policy costs.
        scenario: Its name.
    """
    random = np.random.default_rng(seed)
    submit = np.cumsum(random.exponential(20.0, jobs))
    run = random.exponential(15.0, jobs) + 1.0
    free, rows = 0.0, []
    for number in range(jobs):
        start = max(free, float(submit[number])) + extra_s
        free = start + float(run[number])
        rows.append(
            Job(
                job=f"job-{number:03}",
                submit_s=float(submit[number]),
                start_s=start,
                end_s=free,
                user=("ada", "bob")[number % 2],
            )
        )
    return simulated_run(rows, policy=policy, seed=seed, scenario=scenario, boards=("board-1",))
