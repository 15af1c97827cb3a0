"""The number of a result as pages show it: its primary metric, with the interval of all tables."""

from __future__ import annotations

from dataclasses import dataclass

from edgeyard.benchmark_api.figures.axes import number_text
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.benchmark_api.sdk.comparison import interval_of_row, metric_of_row


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNumber:
    """A primary metric in words.

    Attributes:
        name: Of the metric, e.g. ``p50``.
        title: For people, e.g. ``median latency``.
        value: With its unit.
        interval: Its 95 % interval, with the unit; "": not known.
    """

    name: str
    title: str
    value: str
    interval: str


def measured(row: shapes.ResultRow | None) -> MeasuredNumber | None:
    """Return the number of a result; None where it has none."""
    if row is None or row.primary_value is None:
        return None
    shown = as_json(row)
    metric = metric_of_row(shown)
    if metric is None:
        return None
    low, high = interval_of_row(shown)
    ends = ""
    if low is not None and high is not None:
        ends = f"{number_text(low)} to {number_text(high)} {metric.unit}".strip()
    return MeasuredNumber(
        name=metric.name,
        title=metric.title or metric.name,
        value=f"{number_text(row.primary_value)} {metric.unit}".strip(),
        interval=ends,
    )
