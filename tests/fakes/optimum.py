"""The best schedule of a few jobs, by trying all: what bounds and policies are compared with."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_ON_BOARDS = 12
"""Maximum jobs of `optimum_on_boards`, whose time grows with 3 to the power of the jobs."""

MAX_ON_PROCESSORS = 8
"""Maximum jobs of `optimum_on_processors`, which tries all orders of the jobs."""


def optimum_on_boards(submit_s: Floats, run_s: Floats, weights: Floats | None = None) -> float:
    """Return the least mean turnaround of jobs on boards that run one at a time each.

    Args:
        submit_s: Shape (jobs,), up to `MAX_ON_BOARDS`.
        run_s: Shape (jobs, boards): inf where a job can't run.
        weights: As in `lower_bound`.

    Raises:
        ValueError: There are too many jobs, or one can run nowhere.
    """
    count, boards = len(run_s), run_s.shape[1]
    if not 1 <= count <= MAX_ON_BOARDS:
        raise ValueError(f"{count} jobs: the optimum is found for 1 to {MAX_ON_BOARDS}")
    if not np.isfinite(run_s).any(axis=1).all():
        raise ValueError("run_s is inf for a job on every board: it can run on none")
    weight = np.ones(count) if weights is None else weights
    sets = 1 << count
    best = np.full(sets, np.inf)
    best[0] = 0.0
    for board in range(boards):
        alone = _optimum_on_one_board(submit_s, run_s[:, board], weight)
        combined = best.copy()
        for chosen in range(1, sets):  # the jobs of this board and of those before it
            part = chosen
            while part:
                combined[chosen] = min(combined[chosen], alone[part] + best[chosen ^ part])
                part = (part - 1) & chosen
        best = combined
    smallest: float = best[sets - 1]
    return smallest / count


def _optimum_on_one_board(submit_s: Floats, run_s: Floats, weight: Floats) -> list[float]:
    """Return the least weighted sum of turnarounds of each set of jobs on one board.

    Of the orders of a set, those count that no other one beats in both its end and its sum.
    """
    count = len(submit_s)
    orders: list[list[tuple[float, float]]] = [[(0.0, 0.0)]]
    for chosen in range(1, 1 << count):
        found: list[tuple[float, float]] = []
        for last in range(count):
            if chosen >> last & 1 and math.isfinite(run_s[last]):
                for end, total in orders[chosen ^ (1 << last)]:
                    over = max(end, float(submit_s[last])) + float(run_s[last])
                    found.append(
                        (over, total + float(weight[last]) * (over - float(submit_s[last])))
                    )
        kept: list[tuple[float, float]] = []
        for end, total in sorted(found):
            if not kept or total < kept[-1][1]:
                kept.append((end, total))
        orders.append(kept)
    return [each[-1][1] if each else math.inf for each in orders]


def optimum_on_processors(
    submit_s: Floats,
    run_s: Floats,
    procs: Integers,
    processors: int,
    weights: Floats | None = None,
) -> float:
    """Return the least mean turnaround of jobs that each take some processors of one machine.

    Some order is the best in which each job in turn gets its earliest start next to those before
    it; all orders are tried but for those that are worse already.

    Args:
        submit_s: Shape (jobs,), up to `MAX_ON_PROCESSORS`.
        run_s: Shape (jobs,).
        procs: Shape (jobs,), up to ``processors``.
        processors: Of the machine.
        weights: As in `lower_bound`.

    Raises:
        ValueError: There are too many jobs, or one is larger than the machine.
    """
    count = len(submit_s)
    if not 1 <= count <= MAX_ON_PROCESSORS:
        raise ValueError(f"{count} jobs: the optimum is found for 1 to {MAX_ON_PROCESSORS}")
    if procs.max() > processors:
        raise ValueError("a job needs more processors than the machine has")
    jobs = list(
        zip(
            submit_s.tolist(),
            run_s.tolist(),
            procs.tolist(),
            (np.ones(count) if weights is None else weights).tolist(),
            strict=True,
        )
    )
    best = math.inf

    def extend(placed: list[tuple[float, float, int]], left: list[int], total: float) -> None:
        nonlocal best
        if total + sum(jobs[job][1] * jobs[job][3] for job in left) >= best:
            return
        if not left:
            best = total
            return
        for job in left:
            submitted, lasts, needs, weight = jobs[job]
            start = _earliest_start(placed, processors, submitted, lasts, needs)
            others = [other for other in left if other != job]
            turnaround = start + lasts - submitted
            extend([*placed, (start, start + lasts, needs)], others, total + weight * turnaround)

    extend([], list(range(count)), 0.0)
    return float(best) / count


def _earliest_start(
    placed: list[tuple[float, float, int]],
    processors: int,
    submitted: float,
    lasts: float,
    needs: int,
) -> float:
    """Return the first time from which enough processors are free for the whole run."""
    starts = sorted({submitted, *(end for _, end, _ in placed if end > submitted)})
    for start in starts:
        moments = [start, *(at for at, _, _ in placed if start < at < start + lasts)]
        if all(
            needs + sum(taken for since, until, taken in placed if since <= at < until)
            <= processors
            for at in moments
        ):
            return float(start)
    raise AssertionError("after the last end everything is free")
