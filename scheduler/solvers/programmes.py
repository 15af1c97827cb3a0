"""Integer programmes over the document, one for each objective, and how they are solved.

*completion* (mean completion time). ``x[j,b,k] = 1``: job j is the k-th from the end on board b;
it then delays k jobs, itself included, so that the sum of completion times is ``k run_s[j,b]``
over all x (Horn, 1973; Bruno, Coffman & Sethi, CACM 1974)::

    min  sum k run_s[j,b] x[j,b,k]   sum_bk x[j,.,.] = 1   sum_j x[.,b,k] <= 1

Positions are bounded at first. If no board uses its last one, longer ones change nothing: the
price of an empty position is 0, so by duality no job gains by a further one (the programme is an
assignment: its relaxation has whole solutions). Else the bound is doubled.

*deadlines* (deadline misses). ``x[j,b] = 1``: j runs on b in time. A set of jobs can all be in time
on one board if and only if they are when the nearest deadline goes first (Jackson, 1955)::

    max  sum x - e sum run_s x   sum_b x[j,.] <= 1   sum_{j: due <= D} run_s x[j,b] <= D  for all D

with ``e`` so small that no run time outweighs a deadline; jobs without one are not planned.

*fairness*: one job a board, as many as can be; a user's n-th placement costs what the user would
have used of their share by then, so that who used little comes first and nobody takes all::

    min  sum_u sum_n (usage_u + (n - 1/2) r) / share_u  y[u,n] + e sum run_s x
         sum_b x[j,.] <= 1   sum_j x[.,b] <= 1   sum_{j of u} x = sum_n y[u,n]   sum x = most

with r the mean run time; the costs of a user grow with n, so that a solution fills them in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.solvers.document import Document, Plan, no_plan
from edgeyard.scheduler.solvers.greedy import greedy
from edgeyard.scheduler.solvers.run import Limits, SolverResult, run

if TYPE_CHECKING:
    import pulp

_POSITIONS = 2
"""Positions of each board at first, beyond the mean number of jobs a board."""


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """The binary variables of a programme, one for each allowed pair or position."""

    jobs: NDArray[np.intp]
    boards: NDArray[np.intp]
    variables: list[pulp.LpVariable]

    def chosen(self) -> NDArray[np.intp]:
        """Places of those that are 1."""
        values = [each.varValue for each in self.variables]
        return np.flatnonzero(np.array([0.0 if v is None else v for v in values]) > 0.5)


def solve(document: Document, limits: Limits) -> Plan:
    """Return the best plan that was found.

    Args:
        document: Its objective says which programme.
        limits: Solver, time, gap. When time is up before the solver has anything, a simple rule's
            plan is used, whose gap nobody knows.

    Raises:
        ValueError: There is no such objective.
        RuntimeError: The solver is missing or failed.
    """
    programme = {"completion": _completion, "deadlines": _deadlines, "fairness": _fairness}
    if document.objective not in programme:
        raise ValueError(f"no programme for {document.objective!r}; of {', '.join(programme)}")
    if not len(document.boards) or np.isnan(document.run_s).all():
        return no_plan(document)
    return programme[document.objective](document, limits)


def _completion(document: Document, limits: Limits) -> Plan:
    import pulp

    usable = ~np.isnan(document.run_s).all(axis=1)
    count = int(usable.sum())
    most = -(-count // len(document.boards)) + _POSITIONS
    spent_s = 0.0
    while True:
        most = min(most, count)
        problem = pulp.LpProblem("completion", pulp.LpMinimize)
        jobs, boards = np.nonzero(~np.isnan(document.run_s))
        jobs, boards = np.repeat(jobs, most), np.repeat(boards, most)
        positions = np.tile(np.arange(1, most + 1), len(jobs) // most)
        choice = _Choice(jobs, boards, _binaries(problem, len(jobs)))
        cost = positions * document.run_s[jobs, boards]
        problem.setObjective(_sum(choice.variables, cost))
        for each in _groups(jobs):
            problem.addConstraint(_sum([choice.variables[at] for at in each]) == 1)
        for each in _groups(boards * most + positions - 1):
            problem.addConstraint(_sum([choice.variables[at] for at in each]) <= 1)
        solved = run(problem, limits.less(spent_s))
        spent_s += solved.seconds
        if not solved.found:
            return greedy(document, spent_s)
        chosen = choice.chosen()
        if most == count or not (positions[chosen] == most).any() or spent_s >= limits.time_s:
            break
        most *= 2
    board = np.full(len(document.users), -1, dtype=np.intp)
    start_s = np.full(len(document.users), np.nan)
    board[jobs[chosen]] = boards[chosen]
    for each in np.unique(boards[chosen]).tolist():
        mine = chosen[boards[chosen] == each]
        mine = mine[np.argsort(-positions[mine])]  # the last position from the end runs first
        took = document.run_s[jobs[mine], each]
        start_s[jobs[mine]] = np.cumsum(took) - took
    return _plan(solved, board, start_s, spent_s, solved.value / count)


def _deadlines(document: Document, limits: Limits) -> Plan:
    import pulp

    due = document.deadlines_s
    with np.errstate(invalid="ignore"):
        jobs, boards = np.nonzero(document.run_s <= due[:, None])
    if not len(jobs):
        return no_plan(document)
    took = document.run_s[jobs, boards]
    problem = pulp.LpProblem("deadlines", pulp.LpMaximize)
    choice = _Choice(jobs, boards, _binaries(problem, len(jobs)))
    small = 0.5 / (1.0 + float(np.nansum(np.nanmax(document.run_s[np.unique(jobs)], axis=1))))
    problem.setObjective(_sum(choice.variables, 1.0 - small * took))
    for each in _groups(jobs):
        problem.addConstraint(_sum([choice.variables[at] for at in each]) <= 1)
    for each in _groups(boards):
        for limit in np.unique(due[jobs[each]]).tolist():
            first = each[due[jobs[each]] <= limit]
            if took[first].sum() > limit:
                rows = [choice.variables[at] for at in first]
                problem.addConstraint(_sum(rows, took[first]) <= limit)
    solved = run(problem, limits)
    if not solved.found:
        return greedy(document, solved.seconds)
    chosen = choice.chosen()
    board = np.full(len(due), -1, dtype=np.intp)
    start_s = np.full(len(due), np.nan)
    board[jobs[chosen]] = boards[chosen]
    for at in np.unique(boards[chosen]).tolist():
        mine = chosen[boards[chosen] == at]
        mine = mine[np.argsort(due[jobs[mine]], kind="stable")]
        start_s[jobs[mine]] = np.cumsum(took[mine]) - took[mine]
    return _plan(solved, board, start_s, solved.seconds, float(len(chosen)))


def _fairness(document: Document, limits: Limits) -> Plan:
    import pulp
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    allowed = ~np.isnan(document.run_s)
    most = int((maximum_bipartite_matching(csr_array(allowed), perm_type="column") >= 0).sum())
    jobs, boards = np.nonzero(allowed)
    took = document.run_s[jobs, boards]
    problem = pulp.LpProblem("fairness", pulp.LpMinimize)
    choice = _Choice(jobs, boards, _binaries(problem, len(jobs)))
    costs = fairness_costs(document)
    turns = [_binaries(problem, len(each), f"y{user}_") for user, each in enumerate(costs)]
    scale = max(float(np.concatenate(costs).max()), 1e-9)
    small = 1e-4 / (1.0 + float(took.max()) * most)
    problem.setObjective(
        _sum([each for row in turns for each in row], np.concatenate(costs) / scale)
        + _sum(choice.variables, small * took)
    )
    for each in (*_groups(jobs), *_groups(boards)):
        problem.addConstraint(_sum([choice.variables[at] for at in each]) <= 1)
    for user, row in enumerate(turns):
        mine = [choice.variables[at] for at in np.flatnonzero(document.users[jobs] == user)]
        problem.addConstraint(_sum(mine) - _sum(row) == 0)
    problem.addConstraint(_sum(choice.variables) == most)
    solved = run(problem, limits)
    if not solved.found:
        return greedy(document, solved.seconds)
    chosen = choice.chosen()
    board = np.full(len(document.users), -1, dtype=np.intp)
    start_s = np.full(len(document.users), np.nan)
    board[jobs[chosen]], start_s[jobs[chosen]] = boards[chosen], 0.0
    placed = np.bincount(document.users[jobs[chosen]], minlength=len(costs))
    value = float(sum(each[:n].sum() for each, n in zip(costs, placed.tolist(), strict=True)))
    return _plan(solved, board, start_s, solved.seconds, value)


def fairness_costs(document: Document) -> list[NDArray[np.float64]]:
    """Of each user's first, second, ... placement; see the module."""
    mean_s = float(np.nanmean(document.run_s))
    usable = ~np.isnan(document.run_s).all(axis=1)
    counts = np.bincount(document.users[usable], minlength=len(document.shares))
    return [
        (usage + (np.arange(count) + 0.5) * mean_s) / share
        for usage, share, count in zip(
            document.usage_board_s.tolist(), document.shares.tolist(), counts.tolist(), strict=True
        )
    ]


def _plan(
    solved: SolverResult,
    board: NDArray[np.intp],
    start_s: NDArray[np.float64],
    seconds: float,
    value: float,
) -> Plan:
    return Plan(
        status="optimal" if solved.optimal else "feasible",
        gap=solved.gap,
        board=board,
        start_s=start_s,
        value=value,
        solver_s=seconds,
    )


def _binaries(problem: pulp.LpProblem, count: int, stem: str = "x") -> list[pulp.LpVariable]:
    return [problem.add_variable(f"{stem}{at}", 0, 1, "Integer") for at in range(count)]


def _sum(
    variables: list[pulp.LpVariable], factors: NDArray[np.float64] | None = None
) -> pulp.LpAffineExpression:
    import pulp

    weights = [1.0] * len(variables) if factors is None else factors.tolist()
    return pulp.LpAffineExpression(list(zip(variables, weights, strict=True)))


def _groups(keys: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Places with the same key, for each key."""
    order = np.argsort(keys, kind="stable")
    return list(np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)) if len(keys) else []
