"""How long a benchmark takes at the least: what a deadline, a time limit or a budget must allow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.estimates import run_times

QUANTILE = 0.1
"""Of the predicted run time: nine of ten runs take longer."""


def least_run_times(batch: Batch, rows: NDArray[np.intp]) -> NDArray[np.float64] | None:
    """Run times of quick runs, the `QUANTILE` of the prediction.

    Args:
        batch: The batch.
        rows: Classes.

    Returns:
        Shape (rows, boards), seconds; NaN on boards of other families than is asked for, and where
        nothing is known. None where nothing is known at all, or no class was asked for.
    """
    boards = batch.shape[1]
    if not len(rows) or not boards or not len(batch.knowledge.runs):
        return None
    families, family_of_row = np.unique(
        np.array([batch.families[row] for row in rows.tolist()], dtype=np.str_), return_inverse=True
    )
    fits = np.stack([np.equal(batch.board_families, family) for family in families])[family_of_row]
    places, columns = np.nonzero(fits)
    table = np.full((len(rows), boards), np.nan)
    table[places, columns] = run_times(batch, rows[places], columns, QUANTILE)
    return table
