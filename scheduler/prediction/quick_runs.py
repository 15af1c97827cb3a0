"""How long a benchmark takes at the least: what a deadline, a time limit or a budget must allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.model.run_bounds import MIN_RUN_S
from edgeyard.scheduler.prediction.estimates import PastPairs

QUANTILE = 0.1
"""Quantile of the predicted run time: nine of ten runs take longer."""

MIN_RUNS = 3
"""Runs of the model on the family without which a prediction lets no benchmark wait.

One slow run says little: the next one is the test.
"""

INFEASIBLE, TOO_SLOW = 1, 2
"""Codes of `QuickRuns.codes`: a fact, which holds for ever, and a prediction, which does not."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuickRuns:
    """Run times of quick runs by class and board: the `QUANTILE` of the prediction.

    All boards of the family, of all classes that have a deadline, a time limit or a budget and are
    still kept waiting by predictions.

    Attributes:
        rows: Shape (pairs,): classes.
        boards: Shape (pairs,).
        min_s: Shape (pairs,), seconds; NaN where too little is known.
    """

    rows: NDArray[np.intp]
    boards: NDArray[np.intp]
    min_s: NDArray[np.float64]

    def codes(
        self, batch: Batch, bounds_s: NDArray[np.float64], *, of_run: bool
    ) -> NDArray[np.uint8]:
        """Return where a bound is too short, and whether that is certain.

        Args:
            bounds_s: Shape (classes,), seconds; NaN: no bound.
            of_run: The bound stops the run, so that one which then ends with what it has measured
                is not too slow.

        Returns:
            Shape (classes, boards): `INFEASIBLE` where no run can be so short, `TOO_SLOW` where
            even a quick run is predicted to take longer; (1, boards) of zeros where nothing is.
        """
        infeasible = np.flatnonzero(bounds_s < MIN_RUN_S)
        if not len(self.rows) and not len(infeasible):
            return np.zeros((1, batch.shape[1]), dtype=np.uint8)
        slow = self.min_s > bounds_s[self.rows]
        if of_run:
            slow &= ~batch.ends_in_time[self.rows]
        if not slow.any() and not len(infeasible):
            return np.zeros((1, batch.shape[1]), dtype=np.uint8)
        codes = np.zeros(batch.shape, dtype=np.uint8)
        codes[self.rows[slow], self.boards[slow]] = TOO_SLOW
        codes[infeasible] = INFEASIBLE
        return codes


def quick_runs(batch: Batch) -> QuickRuns:
    """Return the quick runs of a batch, computed once."""
    return batch.derived(find_quick_runs)


def trial_phrase(batch: Batch, row: int) -> str:
    """Return when a class is tried although it is predicted to take too long."""
    half = "" if batch.deadlines[row] is None else ", or half of the time to its deadline,"
    return f"after a wait of {batch.prediction_wait_s:g} s{half} it is tried there"


def _no_quick_runs() -> QuickRuns:
    none = np.zeros(0, dtype=np.intp)
    return QuickRuns(rows=none, boards=none, min_s=np.zeros(0))


def find_quick_runs(batch: Batch) -> QuickRuns:
    """Find the quick runs of a batch; they depend on its boards, classes and history alone."""
    if not len(batch.knowledge.runs):
        return _no_quick_runs()
    bounded = ~np.isnan(batch.user_times_s) | ~np.isnan(batch.budget_times_s)
    bounded |= np.array([at is not None for at in batch.deadlines], dtype=np.bool_)
    bounded &= ~batch.predictions_expired
    if not bounded.any():
        return _no_quick_runs()
    of_family = {
        family: np.flatnonzero(np.equal(batch.board_families, family))
        for family in sorted({batch.families[row] for row in np.flatnonzero(bounded).tolist()})
    }
    found = [of_family[batch.families[row]] for row in np.flatnonzero(bounded).tolist()]
    rows = np.repeat(np.flatnonzero(bounded), [len(each) for each in found])
    boards = np.concatenate(found)
    pairs = PastPairs(batch, rows, boards)
    min_s = np.where(pairs.run_counts() >= MIN_RUNS, pairs.run_times(QUANTILE), np.nan)
    return QuickRuns(rows=rows, boards=boards, min_s=min_s)
