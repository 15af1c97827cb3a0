"""Means with intervals: a bootstrap over groups of rows that are alike.

Rows of one group (a board, equal systems) are alike, so groups are drawn with replacement, not
rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DRAWS = 2_000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"


def group_means(
    values: Array, groups: NDArray[np.str_], seed: int = 0, weights: Array | None = None
) -> Interval:
    """Return the mean of all values with its interval, groups drawn with replacement.

    Args:
        values: Shape (rows,).
        groups: Shape (rows,).
        seed: Of the draws.
        weights: Shape (rows,), above 0; None: all are equal.
    """
    weights = np.ones(len(values)) if weights is None else weights
    _, of_row = np.unique(groups, return_inverse=True)
    totals = np.bincount(of_row, weights=values * weights)
    counts = np.bincount(of_row, weights=weights)
    drawn = np.random.default_rng(seed).integers(0, len(totals), (DRAWS, len(totals)))
    means = totals[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Interval(float((values * weights).sum() / weights.sum()), float(low), float(high))
