"""Kolmogorov-Smirnov distances between what happened and what simulations gave, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.streams import stream
from edgeyard.simulator.fitting.estimates import Floats

RESAMPLES = 1000
_LOW, _HIGH, _CHANCE = 0.025, 0.975, 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """A Kolmogorov-Smirnov distance; all numbers are NaN if one side has no values.

    Attributes:
        value: Greatest difference of the two distribution functions, 0-1.
        low: Lower end of its 95 % interval.
        high: Upper end.
        by_chance: Quantile 0.95 of the distances of single simulations from all others: what
            happened is as far as this in one of 20 cases if the scenario is exactly right.
    """

    value: float
    low: float
    high: float
    by_chance: float

    @property
    def is_within_chance(self) -> bool:
        """Whether the distance does not distinguish the scenario from what happened."""
        return self.value <= self.by_chance


def distance(happened: Floats, simulated: Sequence[Floats], *, seed: int = 0) -> Distance:
    """Return how far what happened is from what independent simulations gave.

    The interval is a basic bootstrap interval (Davison and Hinkley 1997, 5.2): twice the distance
    less the quantiles of the resampled ones, because a distance that can't be negative is biased.
    What happened is resampled in circular blocks of √n values (Politis and Romano 1992), because
    what neighbours wait depends on each other, and simulations as wholes. Near 0 that is too short,
    and it does not see that whole days differ. So the interval reaches at least as far on both
    sides as chance moves a distance: by the triangle inequality the true one is within
    ``by_chance`` wherever the days are that near to what they were drawn from.

    Args:
        happened: In the order of time.
        simulated: The values of each simulation; at least two.
        seed: Of the resampling.
    """
    runs = [np.sort(each) for each in simulated if len(each)]
    if not len(happened) or len(runs) < 2:
        nan = float("nan")
        return Distance(value=nan, low=nan, high=nan, by_chance=nan)
    steps = _Steps(happened, runs)
    value = steps.distance(steps.counts, np.ones(len(runs)))
    resampled = steps.resampled(stream(seed, "distances"))
    low, high = np.quantile(resampled, [_LOW, _HIGH]).tolist()
    alone = []
    for row, run in enumerate(runs):
        others = _Steps(run, [*runs[:row], *runs[row + 1 :]])
        alone.append(others.distance(others.counts, np.ones(len(runs) - 1)))
    by_chance = float(np.quantile(alone, _CHANCE))
    return Distance(
        value=value,
        low=max(min(2.0 * value - high, value - by_chance), 0.0),
        high=min(max(2.0 * value - low, value + by_chance), 1.0),
        by_chance=by_chance,
    )


class _Steps:
    """Distribution functions at the values that happened, where the greatest difference is.

    Between two of these values the one function is constant and the other can only rise.
    """

    def __init__(self, happened: Floats, runs: Sequence[Floats]) -> None:
        values, self._places = np.unique(happened, return_inverse=True)
        self.counts = self._counts(self._places)
        self._sizes = np.array([len(run) for run in runs], dtype=np.float64)
        self._until = np.array([np.searchsorted(run, values, "right") for run in runs], np.float64)
        self._below = np.array([np.searchsorted(run, values, "left") for run in runs], np.float64)

    def _counts(self, places: NDArray[np.int64]) -> Floats:
        size = int(self._places.max()) + 1
        return np.bincount(places, minlength=size).astype(np.float64)

    def distance(self, counts: Floats, weights: Floats) -> float:
        """Return the distance.

        Args:
            counts: How often each value happened; shape (values,).
            weights: Of each simulation; shape (runs,).
        """
        share = np.cumsum(counts) / counts.sum()
        size = float(weights @ self._sizes)
        until = np.abs(share - weights @ self._until / size)
        below = np.abs(share - counts / counts.sum() - weights @ self._below / size)
        return float(max(until.max(), below.max()))

    def resampled(self, random: np.random.Generator) -> Floats:
        """Return the distances of resampled values and simulations; shape (resamples,)."""
        count, runs = len(self._places), len(self._sizes)
        block = max(round(count**0.5), 1)
        blocks = -(-count // block)
        offsets = np.arange(block)
        found = np.empty(RESAMPLES)
        for row in range(RESAMPLES):
            begins = random.integers(0, count, blocks)
            drawn = ((begins[:, None] + offsets) % count).ravel()[:count]
            weights = np.bincount(random.integers(0, runs, runs), minlength=runs)
            found[row] = self.distance(
                self._counts(self._places[drawn]), weights.astype(np.float64)
            )
        return found
