"""When the queries of a load arrive and how many may be late, by LoadGen's rules.

They are those of `edgeyard.devices.runner.load`, which sends the queries.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.interval import probabilities_at_most
from edgeyard.devices.runner.spec import MAX_LEVEL_RUNS, LoadRules

CONFIDENCE = 0.99
"""Confidence of LoadGen's early stopping."""


def arrivals_s(rate: float, count: int, seed: int) -> NDArray[np.float64]:
    """Return when queries arrive, those of LoadGen with this seed: shape (count,), seconds.

    The first one arrives at once.
    LoadGen takes the gaps from ``std::exponential_distribution`` on ``std::mt19937``: -log(1 - u)
    / rate, where u is made of two words of 32 bits, the low one first.

    Args:
        rate: Of the Poisson process, 1/s.
        seed: 0 to 2**32 - 1.
    """
    words = np.random.RandomState(seed).bytes(8 * count)
    shares = np.frombuffer(words, "<u8").astype(np.float64) / 2.0**64
    gaps = -np.log(1 - np.minimum(shares, np.nextafter(1.0, 0.0))) / rate
    return np.concatenate([[0.0], np.cumsum(gaps[:-1])])


@lru_cache(maxsize=256)
def trial_s(rules: LoadRules, min_runs: int) -> float:
    """Return how long a trial lasts at least, seconds: at a stated rate, until the last arrival.

    Args:
        min_runs: Queries of each trial, if the percentile does not take more.
    """
    if rules.rate is None:
        return rules.duration_s
    queries = max(min_runs, min_queries(rules.share))
    return float(arrivals_of(rules, rules.rate, queries)[-1])


def arrivals_of(rules: LoadRules, rate: float, queries: int) -> NDArray[np.float64]:
    """Return the arrivals of a trial: for at least so long, and so many."""
    expected = rate * rules.duration_s
    count = max(queries, math.ceil(expected + 10 * math.sqrt(expected) + 10))
    arrivals = arrivals_s(rate, min(count, MAX_LEVEL_RUNS), rules.seed)
    in_time = int(np.searchsorted(arrivals, rules.duration_s)) + 1
    return arrivals[: max(queries, in_time)]


def max_late(queries: int, share: float) -> int:
    """Return how many of these queries may be late, by LoadGen's early stopping.

    If a query were late with the probability 1 - ``share``, so few would be in 1 of 100 trials at
    most.

    Args:
        share: Of the queries that have to keep the bound, e.g. 0.99.

    Returns:
        -1 where even none is no proof: there are too few queries.
    """
    at_most = probabilities_at_most(queries, 1 - share)
    return int(np.count_nonzero(at_most <= 1 - CONFIDENCE)) - 1


def min_queries(share: float) -> int:
    """Return how many queries show a percentile, by LoadGen's early stopping: one may be late.

    64 for the 90th percentile, 662 for the 99th.
    """
    low, high = 1, 2
    while max_late(high, share) < 1:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if max_late(middle, share) >= 1 else (middle, high)
    return high
