"""Plans that are assignment problems, which SciPy's ``linear_sum_assignment`` solves exactly.

*Sum of completion times.* The job that is k-th from the end on board b delays k jobs, itself
included, so that the sum of completion times on b is, over its jobs::

    sum_k  (ready_b + k run_jb + (k - 1) cool_down)

This is a sum of costs of (job, board, position), so that the best plan is an assignment of jobs to
positions (Horn, 1973; Bruno, Coffman & Sethi, CACM 1974). Boards may differ in any way, come free
at different times and rest between runs: the plan is *exact*.

It is a *bound* where boards close (a reservation or a lease begins): no position knows then
whether it ends in time. Where the plan keeps to the closing times it is still the best; otherwise
jobs that would be late are planned anew by a simple rule, and the assignment's value is the bound
that the gap is computed from.

*One job a board.* As many jobs as possible, at the least sum of completion times: exact.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.solvers.document import Document, Plan, PlanStatus, no_plan
from edgeyard.scheduler.solvers.greedy import append_jobs, gap_of

_EXTRA_POSITIONS = 1
"""Positions per board in the first try, in addition to the mean number of jobs per board."""


def prepare() -> None:
    """Load SciPy's part: slow once, so done when a scorer is made, not in a cycle."""
    import scipy.optimize  # noqa: F401


def assign_one_each(document: Document) -> Plan:
    """Plan at most one job a board: as many as possible, at the least sum of completion times.

    A forbidden pair costs more than all allowed ones together, so that none is taken while another
    job could have the board instead.
    """
    ends = document.ends_alone_s()
    allowed = ~np.isnan(ends)
    if not allowed.any():
        return no_plan(document)
    jobs, boards = _assigned(ends, allowed)
    board = np.full(len(document.users), -1, dtype=np.intp)
    start_s = np.full(len(document.users), np.nan)
    board[jobs], start_s[jobs] = boards, document.ready_s[boards]
    return Plan(
        status=PlanStatus.OPTIMAL,
        gap=0.0,
        board=board,
        start_s=start_s,
        value=float(ends[jobs, boards].sum()),
    )


def plan_completion(document: Document) -> Plan:
    """Plan all jobs at the least mean completion time; see the module for where it is exact."""
    alone = document.ends_alone_s()
    usable = np.flatnonzero(~np.isnan(alone).all(axis=1))
    if not len(usable):
        return no_plan(document)
    jobs, boards, positions = _positions(document, alone, usable)
    board = np.full(len(document.users), -1, dtype=np.intp)
    start_s = np.full(len(document.users), np.nan)
    board[jobs] = boards
    last_first = np.lexsort((-positions, boards))
    for its in np.split(last_first, np.flatnonzero(np.diff(boards[last_first])) + 1):
        at = int(boards[its[0]])
        busy_s = document.run_s[jobs[its], at] + document.cool_down_s
        start_s[jobs[its]] = document.ready_s[at] + np.cumsum(busy_s) - busy_s
    plan = Plan(status=PlanStatus.OPTIMAL, gap=0.0, board=board, start_s=start_s)
    ends = plan.ends_s(document)
    bound = float(ends[usable].mean())
    late = np.flatnonzero(ends > document.closes_s[board] + 1e-9)
    if not len(late):
        return replace(plan, value=bound)
    board[late], start_s[late] = -1, np.nan
    append_jobs(document, board, start_s, late)
    ends = plan.ends_s(document)[usable]
    value = float(ends.mean())
    return replace(plan, status=PlanStatus.FEASIBLE, value=value, gap=gap_of(value, bound))


def _positions(
    document: Document, alone: NDArray[np.float64], usable: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return each planned job, its board, and its position from the end, from 1.

    Positions are bounded at first. If no board uses its last one, longer ones change nothing: the
    price of an empty position is 0, so by duality no job gains by a further one. Otherwise the
    bound is doubled.
    """
    reachable = np.flatnonzero(~np.isnan(alone).all(axis=0))
    allowed = ~np.isnan(alone[np.ix_(usable, reachable)])
    busy_s = document.run_s[np.ix_(usable, reachable)] + document.cool_down_s
    since_s = document.ready_s[reachable] - document.cool_down_s
    count = min(-(-len(usable) // len(reachable)) + _EXTRA_POSITIONS, len(usable))
    while True:
        position = np.arange(1, count + 1)
        costs = since_s[None, :, None] + busy_s[:, :, None] * position
        shape = (len(usable), len(reachable) * count)
        open_ = np.broadcast_to(allowed[:, :, None], costs.shape).reshape(shape)
        jobs, columns = _assigned(costs.reshape(shape), open_)
        boards, positions = columns // count, columns % count + 1
        if count == len(usable) or (len(jobs) == len(usable) and positions.max() < count):
            return usable[jobs], reachable[boards], positions
        count = min(2 * count, len(usable))


def _assigned(
    costs: NDArray[np.float64], allowed: NDArray[np.bool_]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows and columns of the cheapest of the largest assignments."""
    from scipy.optimize import linear_sum_assignment

    usual = costs[allowed]
    low = float(usual.min())
    forbidden = (float(usual.max()) - low + 1.0) * (min(costs.shape) + 1)
    rows, columns = linear_sum_assignment(np.where(allowed, costs - low, forbidden))
    taken = allowed[rows, columns]
    return rows[taken], columns[taken]
