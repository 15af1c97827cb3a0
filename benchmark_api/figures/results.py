"""Figures of rows of results: a comparison, ratios to a baseline, a history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from edgeyard.benchmark_api.figures.axes import Axis
from edgeyard.benchmark_api.figures.intervals import IntervalFigure, Point
from edgeyard.benchmark_api.figures.lines import LineFigure, Mark, Sample, Series
from edgeyard.benchmark_api.sdk.comparison import (
    differences,
    interval_of_row,
    metric_of_row,
    model_labels,
    ratio_of,
    workload_key,
    workload_text,
)
from edgeyard.benchmark_api.sdk.fields import Record, number, text
from edgeyard.devices.metrics import Metric


def axis_of(metric: Metric) -> Axis:
    """Return the axis of a metric."""
    return Axis(title=metric.title or metric.name, unit=metric.unit, direction=metric.better)


def comparison_figures(
    rows: Iterable[Record], note: Callable[[Record], str] = lambda row: ""
) -> list[IntervalFigure]:
    """Return a figure of each primary metric, with the intervals that the table shows.

    Args:
        rows: Rows of results; those without a number are left out.
        note: A few words about a row that stand behind its value.
    """
    measured = [row for row in rows if number(row, "primary_value") is not None]
    by_metric: dict[Metric, list[Point]] = {}
    for row, name in zip(measured, _names(measured), strict=True):
        metric, value = metric_of_row(row), number(row, "primary_value")
        if metric is None or value is None:
            continue
        low, high = interval_of_row(row)
        by_metric.setdefault(metric, []).append(
            Point(name=name, value=value, low=low, high=high, verdict=_verdict(row), note=note(row))
        )
    return [
        IntervalFigure(title=_heading(metric), axis=axis_of(metric), points=points)
        for metric, points in by_metric.items()
    ]


def baseline_figure(rows: Sequence[Record], baseline: Record) -> IntervalFigure:
    """Return the ratios of rows to a baseline that did the same work, noise in grey.

    Args:
        rows: Rows of results; those of other work, with another metric or an invalid number have
            no ratio and are left out, as is the baseline.
        baseline: The row to which all are relative.
    """
    metric, points = metric_of_row(baseline), []
    for row, name in zip(rows, _names(rows), strict=True):
        same = workload_key(row) == workload_key(baseline) and metric_of_row(row) == metric
        ratio, low, high = ratio_of(row, baseline) if same else (None, None, None)
        if ratio is not None and row is not baseline:
            points.append(Point(name=name, value=ratio, low=low, high=high, verdict=_verdict(row)))
    title = metric.title or metric.name if metric is not None else "result"
    board = text(baseline, "target_uid") or text(baseline, "target") or ""
    model = text(baseline, "model") or ""
    return IntervalFigure(
        title=f"Relative to {' · '.join(filter(None, (model, board)))}",
        axis=Axis(title=f"ratio of the {title}", direction=metric.better if metric else ""),
        points=points,
        reference=1.0,
    )


def history_figure(rows: Sequence[Record], metric: Metric) -> LineFigure:
    """Return the primary metric over time, a series for each board and work.

    Args:
        rows: Rows by time, each with its ``group``: rows of the same work have the same number.
        metric: The primary metric of all rows.
    """
    by_series: dict[tuple[str, object], list[Record]] = {}
    for row in rows:
        if _ended(row) is not None and number(row, "primary_value") is not None:
            key = (text(row, "target_uid") or "", row.get("group"))
            by_series.setdefault(key, []).append(row)
    every = list(by_series.values())
    apart = [name for name in differences(rows) if all(name not in differences(e) for e in every)]
    series = []
    for own in every:
        work = ", ".join(filter(None, (workload_text(own[0], name) for name in apart)))
        where = text(own[0], "target_uid") or text(own[0], "target") or ""
        name = " · ".join(filter(None, (where, work or text(own[0], "runtime"))))
        series.append(Series(name=name, samples=[_sample(row) for row in own]))
    model = text(rows[0], "model") if rows else ""
    return LineFigure(
        title=f"{model or 'Results'} over time",
        x_axis=Axis(title="end of the run", unit="UTC"),
        axis=axis_of(metric),
        series=series,
        marks=_changes([row for own in every for row in own]),
    )


def _changes(rows: Sequence[Record]) -> list[Mark]:
    """Mark where a board's model, engine or kernel is another one than in its run before."""
    last: dict[tuple[str, str], str] = {}
    changes: dict[tuple[float, str], list[str]] = {}
    for row in sorted(rows, key=lambda row: _ended(row) or 0.0):
        board, engine = text(row, "target_uid") or "", text(row, "runtime") or ""
        facts = {
            "model": workload_text(row, "model_sha256"),
            engine: workload_text(row, "engine_version"),
            "kernel": text(row, "kernel") or "",
        }
        for name, now in facts.items():
            before = last.get((board, name))
            if now and before and now != before:
                changes.setdefault((_ended(row) or 0.0, board), []).append(f"{name} {now}")
            if now:
                last[board, name] = now
    return [Mark(x=x, text=f"{', '.join(what)} on {board}") for (x, board), what in changes.items()]


def _sample(row: Record) -> Sample:
    low, high = interval_of_row(row)
    value = number(row, "primary_value") or 0.0
    return Sample(x=_ended(row) or 0.0, value=value, low=low, high=high, verdict=_verdict(row))


def _ended(row: Record) -> float | None:
    at = row.get("ended_at")
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    return at.timestamp() if isinstance(at, datetime) else None


def _names(rows: Sequence[Record]) -> list[str]:
    """Name rows by model and board, and by the engine where there are several."""
    several = len({text(row, "runtime") for row in rows}) > 1
    names = []
    for row, model in zip(rows, model_labels(rows), strict=True):
        board = text(row, "target_uid") or text(row, "target")
        engine = text(row, "runtime") if several else None
        names.append(" · ".join(filter(None, (model, board, engine))))
    return names


def _heading(metric: Metric) -> str:
    title = metric.title or metric.name
    return f"{title[:1].upper()}{title[1:]}"


def _verdict(row: Record) -> str:
    return text(row, "verdict") or "comparable"
