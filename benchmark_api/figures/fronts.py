"""A figure of a Pareto front: results as points, with a panel for each metric but the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeyard.benchmark_api.figures.axes import Axis, Scale, scale_of
from edgeyard.benchmark_api.figures.intervals import MARKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One result of a sweep, as a point.

    Args:
        name: What distinguishes it, such as its parameters.
        x: On the common axis.
        values: One for each panel, each in the unit of its axis.
        on_front: Whether no other one is at least as good in all metrics and better in one.
        verdict: "comparable" or "suspect".
    """

    name: str
    x: float
    values: Sequence[float]
    on_front: bool
    verdict: str = "comparable"

    @property
    def remark(self) -> str:
        """Return the point's name, and whether it is on the front."""
        place = "on the front" if self.on_front else ""
        return " · ".join(filter(None, (self.name, place, MARKS.get(self.verdict))))


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontFigure:
    """Numbered points, with the same x in each panel.

    Args:
        title: Its heading.
        x_axis: The horizontal axis of all panels.
        axes: The vertical axis of each panel, at least one.
        points: Numbered from 1 on.
        invalid: Results of the sweep that are not drawn because they are invalid.
    """

    title: str
    x_axis: Axis
    axes: Sequence[Axis]
    points: Sequence[Alternative]
    invalid: int = 0

    @property
    def remarks(self) -> list[str]:
        """What is written below the drawing: the shapes of markers, and the name of each number."""
        names = [f"{number} {point.remark}" for number, point in enumerate(self.points, start=1)]
        left_out = [f"{self.invalid} invalid, not drawn"] if self.invalid else []
        return ["diamond: on the front; grey circle: dominated", *names, *left_out]

    @property
    def x_scale(self) -> Scale:
        """The horizontal axis, from 0 on where it is linear."""
        return scale_of([point.x for point in self.points], from_zero=True)

    def scale(self, panel: int) -> Scale:
        """Return the vertical axis of a panel, from 0 on where it is linear."""
        return scale_of([point.values[panel] for point in self.points], from_zero=True)
