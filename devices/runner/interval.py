"""A confidence interval of the median, for samples that may depend on one another.

For n independent samples the interval between the order statistics of rank r and n - r + 1 holds
the median with probability 1 - 2 P(Bin(n, 1/2) < r), whatever their distribution (Conover,
Practical Nonparametric Statistics, 3rd ed., section 3.2; David and Nagaraja, Order Statistics,
section 7.1). Latencies that follow one another are alike (caches, frequency, other work in
bursts). The number of samples below the median then varies as that of n / tau independent ones
would, tau = 1 + 2 sum rho_k being the integrated autocorrelation time of the series
1[x_i <= median] (for mixing sequences: Sen, Journal of Multivariate Analysis 2, 1972). So the ranks
are moved apart by sqrt(tau). The sum is cut by Geyer's initial positive sequence (Statistical
Science 7, 1992, section 3.3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95

FEWEST = 6
"""With fewer samples not even their whole range reaches 95 %: 1 - 2 / 2**5 is 93.75 %."""

_EXACT_UP_TO = 1000
"""Beyond, the normal approximation of the binomial is right to the rank."""

_Z = 1.959963984540054


@dataclass(frozen=True, kw_only=True)
class MedianInterval:
    """The median of a sample with its 95 % interval.

    Attributes:
        tau: Integrated autocorrelation time, at least 1: so many samples are worth one.
        half_width: Half the interval's width, relative to the median.
    """

    median: float
    low: float
    high: float
    tau: float

    @property
    def half_width(self) -> float:
        """Half the interval's width, relative to the median."""
        return (self.high - self.low) / 2 / self.median if self.median > 0 else math.inf


def median_interval(samples: NDArray[np.float64]) -> MedianInterval | None:
    """The 95 % interval of the median.

    Args:
        samples: Shape (n,), in the order in which they were taken.

    Returns:
        None where the sample is too small for 95 %.
    """
    n = len(samples)
    if n < FEWEST:
        return None
    median = float(np.median(samples))
    tau = autocorrelation_time(samples <= median)
    reach = math.sqrt(tau) * (n / 2 - _low_rank(n))
    # a series that hangs together so much that no rank is left is told by its whole range
    low_rank = max(1, math.floor(n / 2 - reach))
    high_rank = min(n, math.ceil(n / 2 + reach) + 1)
    ordered = np.sort(samples)
    return MedianInterval(
        median=median,
        low=float(ordered[low_rank - 1]),
        high=float(ordered[high_rank - 1]),
        tau=tau,
    )


def autocorrelation_time(series: NDArray[np.bool_]) -> float:
    """Integrated autocorrelation time of a series, at least 1.

    Args:
        series: Shape (n,).
    """
    x = series.astype(np.float64) - series.mean()
    n = len(x)
    variance = float(x @ x)
    if variance == 0:
        return 1.0
    spectrum = np.fft.rfft(x, 2 * n)
    rho = np.fft.irfft(np.abs(spectrum) ** 2)[:n] / variance
    pairs = rho[0 : n - 1 : 2] + rho[1:n:2]
    ended = np.flatnonzero(pairs <= 0)
    kept = pairs[: int(ended[0])] if len(ended) else pairs
    return max(1.0, float(2 * kept.sum() - 1))


def _low_rank(n: int) -> int:
    """Largest r with P(Bin(n, 1/2) < r) <= 2.5 %."""
    if n > _EXACT_UP_TO:
        return math.floor(n / 2 - _Z * math.sqrt(n) / 2)
    tail, r = 0, 0
    bound = (1 - LEVEL) / 2
    # integers: 2**1000 does not fit a float's range of exact sums
    while (tail + math.comb(n, r)) / 2**n <= bound:
        tail += math.comb(n, r)
        r += 1
    return r
