"""One job a board, now: the assignment problem, solved exactly without a programme."""

from __future__ import annotations

import numpy as np

from edgeyard.scheduler.solvers.document import Document, Plan, no_plan


def prepare() -> None:
    """Load SciPy's part: slow once, so done when a scorer is made, not in a cycle."""
    import scipy.optimize  # noqa: F401


def assign_now(document: Document) -> Plan:
    """As many jobs as can start now, in the shortest total run time.

    A forbidden pair costs more than all allowed ones together, so that none is taken while another
    job could have the board instead.
    """
    from scipy.optimize import linear_sum_assignment

    allowed = ~np.isnan(document.run_s)
    if not allowed.any():
        return no_plan(document)
    board = np.full(len(document.users), -1, dtype=np.intp)
    start_s = np.full(len(document.users), np.nan)
    longest = float(np.nanmax(document.run_s))
    forbidden = (longest + 1.0) * (min(document.run_s.shape) + 1)
    jobs, boards = linear_sum_assignment(np.where(allowed, document.run_s, forbidden))
    taken = allowed[jobs, boards]
    jobs, boards = jobs[taken], boards[taken]
    board[jobs], start_s[jobs] = boards, 0.0
    return Plan(
        status="optimal",
        gap=0.0,
        board=board,
        start_s=start_s,
        value=float(document.run_s[jobs, boards].sum()),
    )
