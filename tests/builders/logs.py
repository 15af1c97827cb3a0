"""Logs of jobs, in memory and as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgeyard.training.worlds.swf import Log

Job = tuple[float, float, int] | tuple[float, float, int, float]
"""Submit time, run time, processors; the requested time where it is not the run time."""


def log_of(jobs: Sequence[Job], users: Sequence[int] | None = None) -> Log:
    """A log; its jobs are numbered from 1."""
    return Log(
        path=Path("made.swf"),
        job=np.arange(1, len(jobs) + 1),
        submit=np.array([job[0] for job in jobs], dtype=np.float64),
        run=np.array([job[1] for job in jobs], dtype=np.float64),
        requested=np.array([job[3] if len(job) == 4 else job[1] for job in jobs], dtype=np.float64),
        procs=np.array([job[2] for job in jobs], dtype=np.int64),
        user=np.array(users if users is not None else [-1] * len(jobs), dtype=np.int64),
        line=np.arange(1, len(jobs) + 1),
        max_procs=None,
    )


def swf_line(
    job: int,
    submit: float | str,
    run: float | str,
    procs: int = 1,
    *,
    allocated: int = -1,
    requested: float | str = -1,
) -> str:
    """A line of the Standard Workload Format."""
    return f"{job} {submit} -1 {run} {allocated} -1 -1 {procs} {requested} -1 1 7 -1 -1 -1 -1 -1 -1"


def write_swf(path: Path, lines: Sequence[str], *, procs: int | None = 4) -> Path:
    """A log file; its header states the processors."""
    header = [] if procs is None else [f"; MaxProcs: {procs}"]
    path.write_text("\n".join([*header, *lines]) + "\n", encoding="latin-1")
    return path
