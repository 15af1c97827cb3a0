"""Job mixes: what arrives, drawn from seeded streams."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMix:
    """Short and long jobs that need much of one resource and little of the others.

    The defaults are DeepRM's mix, which the A2cScheduler paper uses at rates 0.6 to 0.9.

    Attributes:
        rate: Probability of an arrival in each step (Bernoulli).
        resources: How many there are.
        short_share: Probability of a short job.
        short: Shortest and longest run time of short jobs, steps.
        long: The same of long ones.
        dominant: Least and greatest need of the job's dominant resource, units.
        other: The same of its other resources.
    """

    rate: float = 0.7
    resources: int = 2
    short_share: float = 0.8
    short: tuple[int, int] = (1, 3)
    long: tuple[int, int] = (10, 15)
    dominant: tuple[int, int] = (5, 10)
    other: tuple[int, int] = (1, 2)

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: A rate or share is no probability, or a range is empty or below 1.
        """
        for name in ("rate", "short_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 0 to 1")
        if self.resources < 1:
            raise ValueError(f"resources is {self.resources}, expected 1 or more")
        for name in ("short", "long", "dominant", "other"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise ValueError(f"{name} is {(low, high)}, expected 1 <= lowest <= highest")

    def arrivals(self, random: np.random.Generator, steps: int) -> tuple[Integers, Integers]:
        """Draw what arrives in each step; nothing in the first, in which an episode begins.

        Returns:
            Run times, shape (steps,), 0 where nothing arrives; and needs, (steps, resources).
        """
        comes = random.random(steps) < self.rate
        comes[:1] = False
        short = random.random(steps) < self.short_share
        lengths = np.where(
            short,
            random.integers(self.short[0], self.short[1] + 1, steps),
            random.integers(self.long[0], self.long[1] + 1, steps),
        )
        dominant = random.integers(0, self.resources, steps)
        sizes = random.integers(self.other[0], self.other[1] + 1, (steps, self.resources))
        much = random.integers(self.dominant[0], self.dominant[1] + 1, steps)
        sizes[np.arange(steps), dominant] = much
        return np.where(comes, lengths, 0), np.where(comes[:, None], sizes, 0)


def poisson_arrivals(
    random: np.random.Generator, rate_per_s: float, seconds: float
) -> NDArray[np.float64]:
    """Draw the times of a Poisson process: sorted, from 0 to ``seconds``.

    Raises:
        ValueError: The rate or the duration is negative or not finite.
    """
    if not (0.0 <= rate_per_s < np.inf and 0.0 <= seconds < np.inf):
        raise ValueError(f"expected a rate and a duration from 0, not {rate_per_s}, {seconds}")
    return np.sort(random.uniform(0.0, seconds, random.poisson(rate_per_s * seconds)))
