"""Figures of rows of results: a comparison, ratios to a baseline, a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from edgeyard.benchmark_api.figures.axes import PART, Axis
from edgeyard.benchmark_api.figures.fronts import Alternative, FrontFigure
from edgeyard.benchmark_api.figures.intervals import IntervalFigure, Point
from edgeyard.benchmark_api.figures.lines import LineFigure, Mark, Sample, Series
from edgeyard.benchmark_api.sdk.comparison import (
    board_name,
    changes_by_begin,
    changes_on_boards,
    differences,
    failure_text,
    interval_of_row,
    level_text,
    metric_of_row,
    model_labels,
    parameters_apart,
    workload_text,
)
from edgeyard.benchmark_api.sdk.fields import Record, moment, number, record, text
from edgeyard.benchmark_api.sdk.fronts import Front, Objective, fronts_of
from edgeyard.devices.metrics import Metric
from edgeyard.scheduler.model.times import minute_text
from edgeyard.scheduler.model.workload import request_name

_MIB = 2**20

_PLACES = 40
"""Marks that fit side by side."""


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
    """Return the ratios of rows to a baseline, noise in grey.

    Args:
        rows: As `relative_to` returns them; those without a ratio are left out, as is the baseline.
        baseline: The one of them to which all are relative.
    """
    metric, points = metric_of_row(baseline), []
    for row, name in zip(rows, _names(rows), strict=True):
        ratio = number(row, "ratio")
        if ratio is not None and row is not baseline:
            low, high = number(row, "ratio_low"), number(row, "ratio_high")
            points.append(Point(name=name, value=ratio, low=low, high=high, verdict=_verdict(row)))
    title = axis_of(metric).title if metric is not None else "result"
    model = text(baseline, "model") or ""
    return IntervalFigure(
        title=f"Relative to {PART.join(filter(None, (model, board_name(baseline))))}",
        axis=Axis(title=f"ratio of the {title}", direction=metric.better if metric else ""),
        points=points,
        reference=1.0,
    )


def front_figures(rows: Sequence[Record]) -> list[FrontFigure]:
    """Return a figure of each sweep among rows of results: its primary metric against the others.

    Args:
        rows: Rows of results; sweeps of which one metric alone is known are left out.
    """
    fronts = [front for front in fronts_of(rows) if len(front.objectives) > 1]
    return [_front_figure(front, several=len(fronts) > 1) for front in fronts]


def _front_figure(front: Front, *, several: bool) -> FrontFigure:
    first, *others = front.objectives
    rows = front.rows
    boards = {board_name(row) for row in rows}
    engines = {text(row, "runtime") for row in rows}
    points = []
    texts = parameters_apart(rows)
    for row, parameters, on_front in zip(rows, texts, front.on_front, strict=True):
        board = board_name(row) if len(boards) > 1 else ""
        engine = text(row, "runtime") if len(engines) > 1 else None
        name = PART.join(filter(None, (parameters, board, engine)))
        points.append(
            Alternative(
                name=name or "no parameters",
                x=_in_axis_unit(first, row),
                values=[_in_axis_unit(each, row) for each in others],
                on_front=on_front,
                verdict=_verdict(row),
            )
        )
    model = text(rows[0], "model") if several or len(boards) == 1 else ""
    where = min(boards) if len(boards) == 1 else ""
    named = " on ".join(filter(None, (model, where)))
    request = request_name(record(rows[0], "workload"))
    named = ", ".join(filter(None, (named, request)))
    return FrontFigure(
        title=f"Pareto front of {named}" if named else "Pareto front",
        x_axis=_axis_in_unit(first),
        axes=[_axis_in_unit(each) for each in others],
        points=points,
        invalid=front.invalid,
    )


def _in_axis_unit(objective: Objective, row: Record) -> float:
    value = objective.of(row) or 0.0
    return value / _MIB if objective.metric.unit == "B" else value


def _axis_in_unit(objective: Objective) -> Axis:
    axis = axis_of(objective.metric)
    return replace(axis, unit="MiB") if objective.metric.unit == "B" else axis


def history_figure(
    rows: Sequence[Record],
    metric: Metric,
    lineage: str = "",
    changes: Sequence[Record] = (),
    failed: Sequence[Record] = (),
) -> LineFigure:
    """Return the primary metric over time, a series for each board and work.

    Args:
        rows: Rows by time, each with its ``group``: rows of the same work have the same number.
        metric: The primary metric of all rows.
        lineage: Their name; "": that of the first model.
        changes: What the lab knows of changes of their level, the newest first.
        failed: Runs of the lineage that failed; those of the rows' types are drawn.
    """
    types = {text(row, "benchmark_type") for row in rows}
    by_series: dict[tuple[str, object], list[Record]] = {}
    for row in rows:
        if _ended(row) is not None and number(row, "primary_value") is not None:
            key = (text(row, "target_uid") or "", row.get("group"))
            by_series.setdefault(key, []).append(row)
    every = list(by_series.values())
    within = {name for own in every for name in differences(own)}
    apart = [name for name in differences(rows) if name not in within]
    boards = {board_name(own[0]) for own in every}
    series = []
    parameters = parameters_apart([own[0] for own in every])
    for own, stated in zip(every, parameters, strict=True):
        texts = (stated if name == "parameters" else workload_text(own[0], name) for name in apart)
        work = ", ".join(filter(None, texts))
        where = board_name(own[0]) if len(boards) > 1 else ""
        name = PART.join(filter(None, (where, work or text(own[0], "runtime"))))
        series.append(Series(name=name, samples=[_sample(row) for row in own]))
    about = lineage or (text(rows[0], "model") if rows else "") or "Results"
    return LineFigure(
        title=f"{about}{f' on {min(boards)}' if len(boards) == 1 else ''} over time",
        x_axis=Axis(title="end of the run", unit="UTC"),
        axis=axis_of(metric),
        series=series,
        marks=_marks([row for own in every for row in own], changes, several=len(boards) > 1),
        failures=[_failure(run) for run in failed if text(run, "benchmark_type") in types],
    )


def _failure(run: Record) -> Mark:
    where = text(run, "target_uid")
    return Mark(x=_ended(run) or 0.0, text=f"{failure_text(run)}{f' on {where}' if where else ''}")


def _marks(rows: Sequence[Record], level_changes: Sequence[Record], *, several: bool) -> list[Mark]:
    """Mark what changed, and where a series' level changed or is suspected to have, by time.

    Args:
        rows: Those of all series.
        level_changes: What became of suspected changes, the newest first.
        several: Whether they are of several boards, which the marks then name.
    """
    by_begin = changes_by_begin(level_changes)
    levels = [
        (_ended(row) or 0.0, change, [text(row, "target_uid") or ""])
        for row in rows
        if (change := level_text(row, by_begin.get(text(row, "benchmark_id") or "")))
    ]
    marks = sorted([*_changes(rows), *levels], key=lambda mark: mark[0])
    return [
        Mark(x=x, text=f"{change} on {', '.join(boards)}" if several else change)
        for x, change, boards in marks
    ]


def _changes(rows: Sequence[Record]) -> list[tuple[float, str, list[str]]]:
    """Return where a board's model, engine, firmware or kernel is not that of its run before.

    The same change of several boards is one if it would be drawn at nearly the same place.

    Returns:
        When, what, and on which boards.
    """
    ordered = sorted(rows, key=lambda row: _ended(row) or 0.0)
    times = [_ended(row) or 0.0 for row in ordered]
    near_s = (times[-1] - times[0]) / _PLACES if times else 0.0
    found: list[tuple[float, str, list[str]]] = []
    for row, at, what in zip(ordered, times, changes_on_boards(ordered), strict=True):
        if not what:
            continue
        change, board = ", ".join(what), text(row, "target_uid") or ""
        same = (each for each in found if each[1] == change and at - each[0] <= near_s)
        if (mark := next(same, None)) is None:
            found.append((at, change, [board]))
        elif board not in mark[2]:
            mark[2].append(board)
    return found


def _sample(row: Record) -> Sample:
    low, high = interval_of_row(row)
    value = number(row, "primary_value") or 0.0
    return Sample(x=_ended(row) or 0.0, value=value, low=low, high=high, verdict=_verdict(row))


def _ended(row: Record) -> float | None:
    at = moment(row, "ended_at")
    return None if at is None else at.timestamp()


def _names(rows: Sequence[Record]) -> list[str]:
    """Name rows by model and board, by engines where there are several, repetitions by time."""
    engines = {text(row, "runtime") for row in rows}
    versions = {(text(row, "runtime"), workload_text(row, "engine_version")) for row in rows}
    several, without = len(engines) > 1, {"metric"}  # each figure is of one
    if several:
        without |= {"engine", "engine_version"} if len(versions) == len(engines) else {"engine"}
    names = []
    for row, model in zip(rows, model_labels(rows, without), strict=True):
        engine = text(row, "runtime") if several else None
        names.append(PART.join(filter(None, (model, board_name(row), engine))))
    counts = Counter(names)
    return [
        PART.join(filter(None, (name, _ended_text(row) if counts[name] > 1 else "")))
        for row, name in zip(rows, names, strict=True)
    ]


def _ended_text(row: Record) -> str:
    at = moment(row, "ended_at")
    return "" if at is None else minute_text(at)


def _heading(metric: Metric) -> str:
    title = axis_of(metric).title
    return f"{title[:1].upper()}{title[1:]}"


def _verdict(row: Record) -> str:
    return text(row, "verdict") or "comparable"
