"""Plans by simple rules: the last resort when a solver has none in time, and the rest of a plan."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.solvers.document import Document, Plan, PlanStatus


def greedy(document: Document, problem: str, solver_s: float = 0.0) -> Plan:
    """Plan each job, one after the other, on the board on which it ends first.

    The order is the shortest run first for *completion*, the nearest deadline first for
    *deadlines*, where jobs that would be late come last, and for *fairness* the user who has used
    the least of the own share.

    Args:
        document: What to plan.
        problem: Why there is no better plan.
        solver_s: Time that was spent on a better one.
    """
    jobs = len(document.users)
    board = np.full(jobs, -1, dtype=np.intp)
    start_s = np.full(jobs, np.nan)
    if document.objective == "fairness":
        append_fairly(document, board, start_s)
    elif document.objective == "deadlines":
        order = np.argsort(document.deadlines_s, kind="stable")
        late = append_jobs(document, board, start_s, order, in_time_only=True)
        append_jobs(document, board, start_s, late)
    else:
        append_jobs(document, board, start_s, np.arange(jobs))
    found = bool((board >= 0).any())
    return Plan(
        status=PlanStatus.GREEDY if found else PlanStatus.NONE,
        gap=np.nan,
        board=board,
        start_s=start_s,
        solver_s=solver_s,
        problem=problem,
    )


def append_jobs(
    document: Document,
    board: NDArray[np.intp],
    start_s: NDArray[np.float64],
    jobs: NDArray[np.intp],
    *,
    in_time_only: bool = False,
) -> NDArray[np.intp]:
    """Plan jobs after those that are planned already, each where it ends first.

    Args:
        document: What to plan.
        board: Shape (jobs,), of the plan; changed.
        start_s: Shape (jobs,), of the plan; changed.
        jobs: Rows of the jobs to plan. They are planned in this order with ``in_time_only``,
            otherwise those that would end first come first.
        in_time_only: Leave jobs out that have no deadline or would miss it.

    Returns:
        Rows of the jobs that are still not planned.
    """
    free_s = free_times(document, board, start_s)
    if not in_time_only:
        alone = free_s + document.run_s[jobs]
        shortest = np.fmin.reduce(alone, axis=1, initial=np.inf)
        jobs = jobs[np.argsort(shortest, kind="stable")]
    left = []
    for job in jobs.tolist():
        ends = _ends(document, free_s, job)
        best = int(ends.argmin()) if len(ends) else -1
        limit = document.deadlines_s[job] if in_time_only else np.inf
        if best < 0 or not np.isfinite(ends[best]) or not ends[best] <= limit:
            left.append(job)
            continue
        board[job], start_s[job] = best, free_s[best]
        free_s[best] = ends[best] + document.cool_down_s
    return np.array(left, dtype=np.intp)


def append_fairly(
    document: Document, board: NDArray[np.intp], start_s: NDArray[np.float64]
) -> None:
    """Plan the jobs that are not planned yet; the user who used least of the share comes first.

    What is planned counts as used. Of a user's jobs the one that ends first is taken.

    Args:
        document: What to plan.
        board: Shape (jobs,), of the plan; changed.
        start_s: Shape (jobs,), of the plan; changed.
    """
    planned = np.flatnonzero(board >= 0)
    used = document.usage_board_s.astype(np.float64, copy=True)
    np.add.at(used, document.users[planned], document.run_s[planned, board[planned]])
    free_s = free_times(document, board, start_s)
    ends = free_s + document.run_s
    with np.errstate(invalid="ignore"):
        ends = np.where(ends <= document.closes_s, ends, np.inf)
    ends[board >= 0] = np.inf
    best = ends.argmin(axis=1)
    first_s = ends.min(axis=1)
    while (open_ := np.isfinite(first_s)).any():
        users = np.unique(document.users[open_])
        user = int(users[(used[users] / document.shares[users]).argmin()])
        job = int(np.where(document.users == user, first_s, np.inf).argmin())
        at = int(best[job])
        board[job], start_s[job] = at, free_s[at]
        used[user] += document.run_s[job, at]
        free_s[at] = first_s[job] + document.cool_down_s
        ends[job] = np.inf
        later = free_s[at] + document.run_s[:, at]
        with np.errstate(invalid="ignore"):
            fits = (later <= document.closes_s[at]) & np.isfinite(ends[:, at])
        ends[:, at] = np.where(fits, later, np.inf)
        changed = np.flatnonzero((best == at) & open_)
        best[changed] = ends[changed].argmin(axis=1)
        first_s[changed] = ends[changed].min(axis=1)


def free_times(
    document: Document, board: NDArray[np.intp], start_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return when each board is free after all that is planned on it, shape (boards,)."""
    free_s = document.ready_s.astype(np.float64, copy=True)
    planned = np.flatnonzero(board >= 0)
    ends = start_s[planned] + document.run_s[planned, board[planned]] + document.cool_down_s
    np.maximum.at(free_s, board[planned], ends)
    return free_s


def gap_of(value: float, bound: float) -> float:
    """Return ``|value - bound| / |value|``."""
    return abs(value - bound) / max(abs(value), 1e-12)


def _ends(document: Document, free_s: NDArray[np.float64], job: int) -> NDArray[np.float64]:
    """Return when the job would end after all others, shape (boards,); inf where it can't."""
    ends = free_s + document.run_s[job]
    with np.errstate(invalid="ignore"):
        return np.where(ends <= document.closes_s, ends, np.inf)
