"""Plans from a document, one way for each objective.

*completion* (mean completion time) and *run time* (one job a board) are assignment problems, which
`edgeyard.scheduler.solvers.assignment` solves exactly.

*deadlines* (weighted deadline misses). ``x[j,b] = 1``: j runs on b in time. A set of jobs can all
be in time on one board if and only if they are when the nearest deadline goes first (Jackson,
1955); a board that closes is a deadline for all jobs on it, and one that comes free later leaves
less time::

    max  sum w_j x - e sum (ready_b + run_jb) x      sum_b x[j,.] <= 1
         sum_{j: due_jb <= D} (run_jb + c) x[j,b] <= D + c - ready_b  for all b, D
    with due_jb = min(due_j, closes_b), c the cool-down, e so small that no time outweighs a miss

An integer programme (the problem is NP-hard). The plan starts the jobs of a board nearest deadline
first; then it appends all other jobs, which have no deadline or miss it, each where it ends first.

*fairness*. Boards that are free now take one job each, as many as possible; a user's n-th start
costs what the user would have used of the own share by then, so that the user who used least comes
first and no user takes all::

    min  sum_u sum_n (usage_u + (n - 1/2) r) / share_u  y[u,n] + e sum run x
         sum_b x[j,.] <= 1   sum_j x[.,b] <= 1   sum_{j of u} x = sum_n y[u,n]   sum x = most

with r the mean run time; the costs of a user grow with n, so that a solution fills them in order.
This is a network flow, so that the programme's relaxation has whole solutions. All other jobs are
appended in turn, always of the user who has used the least of the own share by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.solvers.assignment import assign_one_each, plan_completion
from edgeyard.scheduler.solvers.document import Document, Plan, PlanStatus, no_plan
from edgeyard.scheduler.solvers.exchange import Programme
from edgeyard.scheduler.solvers.greedy import append_fairly, append_jobs, greedy
from edgeyard.scheduler.solvers.run import Limits, SolverResult, run

if TYPE_CHECKING:
    from pulp import LpAffineExpression

OBJECTIVES = ("completion", "deadlines", "fairness", "run time")

MAX_ENTRIES = 100_000
"""Maximum entries of a programme's constraints; more take too long to write."""


def solve(document: Document, limits: Limits) -> Plan:
    """Return the best plan that was found.

    Args:
        document: Its objective decides how.
        limits: Of the solver. When it finds nothing within them the plan is a simple rule's, with
            the status ``greedy``, no gap, and the problem.

    Raises:
        ValueError: There is no such objective.
    """
    if document.objective not in OBJECTIVES:
        raise ValueError(
            f"unknown objective {document.objective!r}: expected one of {', '.join(OBJECTIVES)}"
        )
    if not len(document.boards) or np.isnan(document.ends_alone_s()).all():
        return no_plan(document)
    if document.objective == "completion":
        return plan_completion(document)
    if document.objective == "run time":
        return assign_one_each(document)
    return (
        _deadlines(document, limits)
        if document.objective == "deadlines"
        else _fairness(document, limits)
    )


def _deadlines(document: Document, limits: Limits) -> Plan:
    due = np.fmin(document.deadlines_s[:, None], document.closes_s)
    due = np.where(np.isnan(document.deadlines_s)[:, None], np.nan, due)
    alone = document.ready_s + document.run_s
    with np.errstate(invalid="ignore"):
        jobs, boards = np.nonzero(alone <= due)
    jobs, boards, exact = _kept_pairs(alone, jobs, boards, lambda sizes: sizes * (sizes + 1) // 2)
    if not len(jobs):
        rest = greedy(document, "")
        found = (rest.board >= 0).any()
        return replace(rest, status=PlanStatus.OPTIMAL if found else PlanStatus.NONE, gap=0.0)
    weights = document.weights[jobs]
    ends = alone[jobs, boards]
    small = 0.5 * float(weights.min()) / (1.0 + float(ends.max()) * len(np.unique(jobs)))
    cool_down_s = document.cool_down_s
    limit = due[jobs, boards]

    model = _Model("deadlines", small * ends - weights)
    for each in _groups(jobs):
        model.problem += model.sum(each) <= 1
    for each in _groups(boards):
        each = each[np.argsort(limit[each], kind="stable")]
        took = document.run_s[jobs[each], boards[each]] + cool_down_s
        room_s = limit[each] + cool_down_s - document.ready_s[boards[each[0]]]
        last = np.flatnonzero(np.append(np.diff(limit[each]) > 0.0, True))
        for end in last[np.cumsum(took)[last] > room_s[last]].tolist():
            model.problem += model.sum(each[: end + 1], took[: end + 1]) <= float(room_s[end])
    solved = model.solved(limits)
    if solved.chosen is None:
        return greedy(document, solved.problem, solved.seconds)
    chosen = np.flatnonzero(solved.chosen)
    board = np.full(len(document.users), -1, dtype=np.intp)
    start_s = np.full(len(document.users), np.nan)
    board[jobs[chosen]] = boards[chosen]
    for its in _groups(boards[chosen]):
        its = chosen[its]
        its = its[np.argsort(limit[its], kind="stable")]
        took = document.run_s[jobs[its], boards[its]] + cool_down_s
        start_s[jobs[its]] = document.ready_s[boards[its[0]]] + np.cumsum(took) - took
    append_jobs(document, board, start_s, np.flatnonzero(board < 0))
    plan = _plan(solved, board, start_s, float(document.weights[jobs[chosen]].sum()))
    return plan if exact else replace(plan, status=PlanStatus.FEASIBLE, gap=np.nan)


def _kept_pairs(
    ends: NDArray[np.float64],
    jobs: NDArray[np.intp],
    boards: NDArray[np.intp],
    entries_of: Callable[[NDArray[np.intp]], NDArray[np.intp]],
) -> tuple[NDArray[np.intp], NDArray[np.intp], bool]:
    """Keep each job's best boards, and return whether the best plan is still among the rest.

    As many boards as there are jobs lose nothing: the others use fewer, so that one is left where a
    job ends no later. Fewer are kept where the constraints would have more than `MAX_ENTRIES`
    entries; ``entries_of`` returns them for boards with so many pairs each.
    """
    order = np.lexsort((ends[jobs, boards], jobs))
    jobs, boards = jobs[order], boards[order]
    first = np.flatnonzero(np.diff(jobs, prepend=-1))
    rank = np.arange(len(jobs)) - np.repeat(first, np.diff(first, append=len(jobs)))
    all_jobs = len(first)
    count = all_jobs
    while True:
        kept = rank < count
        sizes = np.bincount(boards[kept], minlength=1)
        if count <= 1 or int(entries_of(sizes).sum()) <= MAX_ENTRIES:
            return jobs[kept], boards[kept], count == all_jobs
        count //= 2


def _fairness(document: Document, limits: Limits) -> Plan:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    allowed = ~np.isnan(document.ends_alone_s()) & (document.ready_s <= 0.0)
    board = np.full(len(document.users), -1, dtype=np.intp)
    start_s = np.full(len(document.users), np.nan)
    if not allowed.any():
        append_fairly(document, board, start_s)
        return Plan(status=PlanStatus.OPTIMAL, gap=0.0, board=board, start_s=start_s, value=0.0)
    alone = document.ends_alone_s()
    jobs, boards = np.nonzero(allowed)
    jobs, boards, exact = _kept_pairs(alone, jobs, boards, lambda sizes: 4 * sizes)
    allowed = np.zeros(allowed.shape, dtype=np.bool_)
    allowed[jobs, boards] = True
    max_started = int(
        (maximum_bipartite_matching(csr_array(allowed), perm_type="column") >= 0).sum()
    )
    took = document.run_s[jobs, boards]
    costs = fairness_costs(document)
    turns = np.concatenate(costs)
    user_of_turn = np.repeat(np.arange(len(costs)), [len(each) for each in costs])
    scale = max(float(turns.max()), 1e-9)
    small = 1e-4 / (1.0 + float(took.max()) * max_started)
    pairs = np.arange(len(jobs))
    model = _Model("fairness", np.concatenate((small * took, turns / scale)))
    for each in (*_groups(jobs), *_groups(boards)):
        model.problem += model.sum(each) <= 1
    for user in range(len(costs)):
        mine = np.flatnonzero(document.users[jobs] == user)
        its = np.flatnonzero(user_of_turn == user) + len(pairs)
        model.problem += model.sum(mine) == model.sum(its)
    model.problem += model.sum(pairs) == max_started
    solved = model.solved(limits)
    if solved.chosen is None:
        return greedy(document, solved.problem, solved.seconds)
    chosen = np.flatnonzero(solved.chosen[: len(pairs)])
    board[jobs[chosen]], start_s[jobs[chosen]] = boards[chosen], 0.0
    placed = np.bincount(document.users[jobs[chosen]], minlength=len(costs))
    value = float(sum(each[:n].sum() for each, n in zip(costs, placed.tolist(), strict=True)))
    append_fairly(document, board, start_s)
    plan = _plan(solved, board, start_s, value)
    return plan if exact else replace(plan, status=PlanStatus.FEASIBLE, gap=np.nan)


def fairness_costs(document: Document) -> list[NDArray[np.float64]]:
    """Return the costs of each user's first, second, ... start; see the module."""
    mean_s = float(np.nanmean(document.run_s))
    usable = ~np.isnan(document.run_s).all(axis=1)
    counts = np.bincount(document.users[usable], minlength=len(document.shares))
    return [
        (usage + (np.arange(count) + 0.5) * mean_s) / share
        for usage, share, count in zip(
            document.usage_board_s.tolist(), document.shares.tolist(), counts.tolist(), strict=True
        )
    ]


class _Model:
    """A programme in PuLP over binary variables, which are named by their numbers."""

    def __init__(self, name: str, costs: NDArray[np.float64]) -> None:
        from pulp import LpBinary, LpProblem

        self.problem = LpProblem(name)
        self._variables = [
            self.problem.add_variable(f"x{each}", cat=LpBinary) for each in range(len(costs))
        ]
        self.problem += self.sum(np.arange(len(costs)), costs)

    def sum(
        self, which: NDArray[np.intp], weights: NDArray[np.float64] | None = None
    ) -> LpAffineExpression:
        """Return the weighted sum of variables; without weights, how many are 1."""
        from pulp import LpAffineExpression

        weighted = np.ones(len(which)) if weights is None else weights
        variables = (self._variables[each] for each in which.tolist())
        return LpAffineExpression(zip(variables, weighted.tolist(), strict=True))

    def solved(self, limits: Limits) -> SolverResult:
        """Return what the solver finds within its limits."""
        return run(Programme.of(self.problem, self._variables), limits)


def _plan(
    solved: SolverResult, board: NDArray[np.intp], start_s: NDArray[np.float64], value: float
) -> Plan:
    return Plan(
        status=PlanStatus.OPTIMAL if solved.optimal else PlanStatus.FEASIBLE,
        gap=solved.gap,
        board=board,
        start_s=start_s,
        value=value,
        solver_s=solved.seconds,
    )


def _groups(keys: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Return the indices with the same key, for each key."""
    order = np.argsort(keys, kind="stable")
    return list(np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)) if len(keys) else []
