"""A plan by a simple rule, for when a solver's time is up before it has any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgeyard.scheduler.solvers.assignment import assign_now
from edgeyard.scheduler.solvers.document import Document, Plan


def greedy(document: Document, solver_s: float = 0.0) -> Plan:
    """Plan each job, one after the other, on the board on which it ends first.

    The order is the shortest run first for *completion*, the nearest deadline first for
    *deadlines*, where who would be late isn't planned. For *fairness* as many as can start now.
    """
    if document.objective == "fairness":
        return replace(assign_now(document), status="feasible", gap=np.nan, solver_s=solver_s)
    jobs, boards = document.run_s.shape
    board = np.full(jobs, -1, dtype=np.intp)
    start_s = np.full(jobs, np.nan)
    free_s = np.zeros(boards)
    shortest = np.fmin.reduce(document.run_s, axis=1)
    by_deadline = document.objective == "deadlines"
    for job in np.argsort(document.deadlines_s if by_deadline else shortest, kind="stable"):
        if np.isnan(shortest[job]) or (by_deadline and np.isnan(document.deadlines_s[job])):
            continue
        ends = np.where(np.isnan(document.run_s[job]), np.inf, free_s + document.run_s[job])
        best = int(ends.argmin())
        if by_deadline and ends[best] > document.deadlines_s[job]:
            continue
        board[job], start_s[job] = best, free_s[best]
        free_s[best] = ends[best]
    return Plan(status="feasible", gap=np.nan, board=board, start_s=start_s, solver_s=solver_s)
