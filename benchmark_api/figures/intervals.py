"""A figure of measured values with their intervals, one row each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeyard.benchmark_api.figures.axes import Axis, Scale, number_text, scale_of
from edgeyard.benchmark_api.figures.measurement import Measurement

MARKS = {"suspect": "? suspect", "invalid": "! invalid", "stopped": "! stopped"}
"""Verdicts whose marks differ (half filled, hollow), as words behind a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Measurement):
    """One measured value with a row of its own.

    Args:
        name: Its own label.
        note: A few words behind the value, such as the accuracy.
    """

    name: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalFigure:
    """Values side by side on one axis.

    Args:
        title: Its heading.
        axis: What the values are.
        points: From top to bottom.
        reference: A value with a line through it, such as 1 for ratios to a baseline; values
            whose interval contains it are grey. None: there is none.
    """

    title: str
    axis: Axis
    points: Sequence[Point]
    reference: float | None = None

    @property
    def scale(self) -> Scale:
        """The axis: from 0 on, or, with a reference, around it."""
        values = [point.value for point in self.points]
        if self.reference is not None:
            values.append(self.reference)
        ends = [end for point in self.points for end in point.ends or ()]
        return scale_of(values, ends, from_zero=self.reference is None)

    def is_noise(self, point: Point) -> bool:
        """Return whether the interval contains the reference, or may do: it is not known."""
        if self.reference is None or point.value == self.reference:
            return False
        return point.ends is None or point.ends[0] <= self.reference <= point.ends[1]

    def text(self, point: Point) -> str:
        """Return a value with unit, note and verdict, and whether it is noise, as it is shown."""
        value = f"{number_text(point.value)} {self.axis.unit}".strip()
        noise = "not shown to differ" if self.is_noise(point) else ""
        return " · ".join(filter(None, (value, point.note, noise, MARKS.get(point.verdict))))
