"""Estimates with 95 % intervals, and the strength of what they are shrunk to."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Z = 1.959963984540054
"""Quantile 0.975 of the normal distribution."""
_LOW, _HIGH = 0.025, 0.975


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A fitted number.

    Attributes:
        name: What it is, with its unit.
        value: As the scenario states it.
        low: Lower end of its 95 % interval.
        high: Upper end; infinite: the history does not bound it.
        observations: From how many it was fitted.
    """

    name: str
    value: float
    low: float
    high: float
    observations: int

    @property
    def interval_text(self) -> str:
        """The interval in words."""
        high = f"{self.high:.4g}" if math.isfinite(self.high) else "no upper bound"
        return f"{self.low:.4g} to {high}"


def rate_interval(count: float, exposure: float, *, dispersion: float = 1.0) -> tuple[float, float]:
    """Return the exact 95 % interval of a Poisson rate (Garwood 1936).

    Args:
        count: Events.
        exposure: Time in which they happened.
        dispersion: Variance of the count over its mean, where events come in batches.
    """
    from scipy.stats import gamma

    events = count / dispersion
    low = float(gamma.ppf(_LOW, events)) if events > 0 else 0.0
    scale = dispersion / exposure
    return low * scale, float(gamma.ppf(_HIGH, events + 1.0)) * scale


def share_interval(count: int, of: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a probability (Clopper and Pearson 1934)."""
    from scipy.stats import beta

    low = float(beta.ppf(_LOW, count, of - count + 1)) if count else 0.0
    high = float(beta.ppf(_HIGH, count + 1, of - count)) if count < of else 1.0
    return low, high


def log_interval(mean: float, sd: float) -> tuple[float, float]:
    """Return the 95 % interval of a median from the mean of logarithms and its standard error."""
    return math.exp(mean - Z * sd), math.exp(mean + Z * sd)


def gamma_strength(counts: Floats, expected: Floats) -> float:
    """Return how strongly Poisson counts are shrunk to what was expected of them.

    The method of moments for a gamma prior with mean 1 on each count's factor: its shape, as a
    number of events; infinite where the counts vary no more than chance makes them.
    """
    excess = float(((counts - expected) ** 2 - expected).sum())
    return float((expected**2).sum()) / excess if excess > 0 else math.inf


def beta_strength(counts: Floats, of: Floats) -> float:
    """Return how strongly shares are shrunk to the common one, as a number of observations.

    The method of moments for a beta prior; infinite where they vary no more than by chance.
    """
    share = float(counts.sum() / of.sum())
    binomial = share * (1.0 - share)
    excess = float(((counts - of * share) ** 2).sum() - binomial * of.sum())
    pairs = binomial * float((of * (of - 1.0)).sum())
    if excess <= 0 or pairs <= 0:
        return math.inf
    return max(pairs / excess - 1.0, 1.0)


def shrunk(counts: Floats, expected: Floats, strength: float) -> Floats:
    """Return the factors of counts over what was expected, shrunk to 1."""
    if math.isinf(strength):
        return np.ones(len(counts))
    found: Floats = (counts + strength) / (expected + strength)
    return found
