"""How long a benchmark takes at the least: what a deadline, a time limit or a budget must allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.estimates import run_times

QUANTILE = 0.1
"""Of the predicted run time: nine of ten runs take longer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuickRuns:
    """Run times of quick runs, the `QUANTILE` of the prediction, of pairs of class and board.

    All boards of the family, of all classes that have a deadline, a time limit or a budget.

    Attributes:
        rows: Shape (pairs,): classes.
        boards: Shape (pairs,).
        least_s: Shape (pairs,), seconds; NaN where nothing is known.
    """

    rows: NDArray[np.intp]
    boards: NDArray[np.intp]
    least_s: NDArray[np.float64]

    def too_slow(self, batch: Batch, bounds_s: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Where even a quick run takes longer than allowed.

        Args:
            batch: The batch.
            bounds_s: Shape (classes,); NaN: no bound.

        Returns:
            Shape (classes, boards), 1 where it does; (1, boards) where it does nowhere.
        """
        slow = self.least_s > bounds_s[self.rows]
        if not slow.any():
            return np.zeros((1, batch.shape[1]), dtype=np.uint8)
        codes = np.zeros(batch.shape, dtype=np.uint8)
        codes[self.rows[slow], self.boards[slow]] = 1
        return codes

    def least_of(self, row: int, boards: NDArray[np.intp]) -> float:
        """The least of one class over these boards, of which one at least is known; seconds."""
        own = (self.rows == row) & np.isin(self.boards, boards)
        return float(np.nanmin(self.least_s[own]))


def quick_runs(batch: Batch) -> QuickRuns:
    """Of a batch; made once."""
    return batch.derived(_quick_runs)


def _quick_runs(batch: Batch) -> QuickRuns:
    bounded = ~np.isnan(batch.user_times_s) | ~np.isnan(batch.budget_times_s)
    bounded |= np.array([at is not None for at in batch.deadlines], dtype=np.bool_)
    if not len(batch.knowledge.runs):
        bounded[:] = False
    of_family = {
        family: np.flatnonzero(np.equal(batch.board_families, family))
        for family in sorted({batch.families[row] for row in np.flatnonzero(bounded).tolist()})
    }
    found = [of_family[batch.families[row]] for row in np.flatnonzero(bounded).tolist()]
    if not found:
        none = np.zeros(0, dtype=np.intp)
        return QuickRuns(rows=none, boards=none, least_s=np.zeros(0))
    rows = np.repeat(np.flatnonzero(bounded), [len(each) for each in found])
    boards = np.concatenate(found)
    return QuickRuns(rows=rows, boards=boards, least_s=run_times(batch, rows, boards, QUANTILE))
