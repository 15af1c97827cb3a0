"""A figure of measured values with their intervals, one row each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LOG_FROM = 20.0
"""Ratio of the largest to the smallest value above which an axis is logarithmic."""

MAX_NAME = 48
"""Characters of a name that a figure shows; the whole one is its title."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What an axis measures.

    Args:
        title: In words, e.g. "median latency".
        unit: As shown behind a value; "": none.
        direction: "lower" or "higher" is better; "": neither.
    """

    title: str
    unit: str = ""
    direction: str = ""

    @property
    def label(self) -> str:
        """Title, unit and direction, e.g. "median latency, ms (lower is better)"."""
        unit = f", {self.unit}" if self.unit else ""
        return f"{self.title}{unit}" + (f" ({self.direction} is better)" if self.direction else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured value.

    Args:
        name: Its own label.
        value: In the unit of the axis.
        low: Lower end of the interval that the table shows, which may be 0; None: not known.
        high: Upper end.
        verdict: "comparable", "suspect" or "invalid".
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    verdict: str = "comparable"

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval; None where an end is not known."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalFigure:
    """Values side by side on one axis."""

    title: str
    axis: Axis
    points: Sequence[Point]

    @property
    def logarithmic(self) -> bool:
        """Whether positive values span more than a factor of LOG_FROM."""
        values = [point.value for point in self.points]
        return bool(values) and min(values) > 0 and max(values) / min(values) > LOG_FROM

    @property
    def limits(self) -> tuple[float, float]:
        """Ends of the axis; an interval's end at or below 0 is cut on a logarithmic one."""
        values = [point.value for point in self.points]
        ends = values + [end for point in self.points for end in point.ends or ()]
        if not values:
            return 0.0, 1.0
        if not self.logarithmic:
            low, high = min(0.0, *ends, 0.0), max(0.0, *ends)
            return low, high if high > low else low + 1.0
        floor = min(values) / 10
        low = min(max(end, floor) for end in ends)
        return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(max(ends) * 1.001))


def share(figure: IntervalFigure, value: float) -> float:
    """Return the place of a value on the axis of a figure, 0 to 1."""
    low, high = figure.limits
    if figure.logarithmic:
        value, low, high = (math.log10(max(each, low)) for each in (value, low, high))
    return min(1.0, max(0.0, (value - low) / (high - low)))


def shortened(name: str) -> str:
    """Return a name as a figure shows it."""
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"
