"""Draw a comparison: grouped bars of the primary metric, by model and board."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeyard.benchmark_api.cli.output import MARKS, accuracy, plain, three_digits
from edgeyard.benchmark_api.cli.output_files import check_matplotlib
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.benchmark_api.sdk.fields import number
from edgeyard.devices.metrics import P50, Metric
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk import Results

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
"""The palette of Okabe and Ito, which is distinguishable with any colour vision."""
_HATCHES = {"suspect": "///", "invalid": "xxx"}
LOG_FROM = 20.0
"""Ratio of the largest to the smallest number from which a linear axis hides the small bars."""
MAX_LABELS = 24
"""Maximum number of bars that are labelled with their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One benchmark's primary metric.

    Attributes:
        accuracy: Of TYPE2, as it is shown below the number; "": none.
        low: Lower end of the number's confidence interval, with the variance between runs where
            it is known; None: not known.
        p90_ms: Of a latency; None: it is none, or not known.
    """

    model: str
    series: str
    metric: Metric
    value: float
    low: float | None = None
    high: float | None = None
    p90_ms: float | None = None
    verdict: str = "comparable"
    accuracy: str = ""


def bars_of(results: Iterable[Results]) -> list[Bar]:
    """Return a bar for each row with a number; each engine of a board is a series of its own."""
    from edgeyard.benchmark_api.sdk.comparison import interval_of_row, metric_of_row, model_labels

    rows = [as_json(one.summary) for one in results if one.summary is not None]
    rows = [row for row in rows if row.get("primary_value")]
    engines = {plain(row.get("runtime")) for row in rows}
    bars = []
    for row, label in zip(rows, model_labels(rows), strict=True):
        metric, value = metric_of_row(row), number(row, "primary_value")
        if metric is None or value is None:
            continue
        low, high = interval_of_row(row)
        where = plain(row.get("target_uid") or row.get("target"))
        engine = plain(row.get("runtime"))
        bars.append(
            Bar(
                model=label,
                series=f"{where} · {engine}" if len(engines) > 1 else where,
                metric=metric,
                value=value,
                low=low,
                high=high,
                p90_ms=number(row, "p90_ms") if metric.name == P50.name else None,
                verdict=plain(row.get("verdict")) or "comparable",
                accuracy=accuracy(row),
            )
        )
    return bars


def draw(bars: Sequence[Bar], path: Path) -> None:
    """Draw into a file; its suffix says in which format.

    Raises:
        MissingExtra: matplotlib is not installed.
        InvalidInput: There is nothing to draw.
    """
    if not bars:
        raise InvalidInput.at("--plot", "nothing to draw: nothing was measured")
    check_matplotlib()
    from matplotlib.figure import Figure

    models = list(dict.fromkeys(bar.model for bar in bars))
    series = sorted({bar.series for bar in bars})
    slots = _slots(bars, models, series)
    colours = _colours(series)
    width_in = min(16.0, max(6.4, 2.2 + 0.62 * (len(slots) + len(models))))
    figure = Figure(figsize=(width_in, 4.8), layout="constrained", dpi=150)
    axes = figure.add_subplot()
    for bar, x in slots:
        _bar(axes, bar, x, colours[bar.series])
    _axes(axes, bars, models, slots)
    _legend(figure, bars, colours)
    figure.savefig(path)


def _colours(series: Sequence[str]) -> dict[str, Any]:
    if len(series) <= len(COLOURS):
        return dict(zip(series, COLOURS, strict=False))
    from matplotlib import colormaps

    return {name: colormaps["turbo"](n / (len(series) - 1)) for n, name in enumerate(series)}


def _slots(
    bars: Sequence[Bar], models: Sequence[str], series: Sequence[str]
) -> list[tuple[Bar, float]]:
    """Place bars side by side with a gap between models; missing combinations take no space."""
    slots: list[tuple[Bar, float]] = []
    x = 0.0
    for model in models:
        of_model = sorted(
            (bar for bar in bars if bar.model == model), key=lambda bar: series.index(bar.series)
        )
        for bar in of_model:
            slots.append((bar, x))
            x += 1.0
        x += 0.8
    return slots


def _bar(axes: Any, bar: Bar, x: float, colour: str) -> None:
    invalid = bar.verdict == "invalid"
    hatch = _HATCHES.get(bar.verdict)
    axes.bar(
        x,
        bar.value,
        width=0.86,
        facecolor="none" if invalid else colour,
        edgecolor=colour if invalid else "white",
        hatch=hatch,
        linewidth=1.2 if invalid else 0.8,
    )
    if bar.low is not None and bar.high is not None:
        below, above = max(0.0, bar.value - bar.low), max(0.0, bar.high - bar.value)
        axes.errorbar(
            x, bar.value, yerr=[[below], [above]], fmt="none", ecolor="#222222", capsize=5, lw=1.4
        )
    if bar.p90_ms is not None:
        axes.vlines(x, bar.value, bar.p90_ms, color="#222222", lw=0.8, linestyles=(0, (2, 2)))
        axes.plot(x, bar.p90_ms, marker="v", ms=5, mfc="white", mec="#222222", mew=1.0)


def _axes(
    axes: Any, bars: Sequence[Bar], models: Sequence[str], slots: Sequence[tuple[Bar, float]]
) -> None:
    labelled = len(slots) <= MAX_LABELS
    axes.set_xticks([x for _, x in slots], [_label(bar) if labelled else "" for bar, _ in slots])
    axes.tick_params(axis="x", length=0, labelsize=8.5)
    for (bar, _), text in zip(slots, axes.get_xticklabels(), strict=True):
        if bar.verdict in MARKS:
            text.set(color="#b00020", fontweight="bold")
    centres = []
    for model in models:
        places = [x for bar, x in slots if bar.model == model]
        centres.append(sum(places) / len(places))
    lines = 2 if any(bar.accuracy for bar in bars) else 1
    names = axes.secondary_xaxis(-0.05 * lines - 0.02 if labelled else 0.0)
    names.set_xticks(centres, models)
    names.tick_params(axis="x", length=0)
    names.spines["bottom"].set_visible(False)
    axes.set_xlim(-0.8, slots[-1][1] + 0.8)
    metric = bars[0].metric
    smallest = min(bar.value for bar in bars)
    largest = max(max(bar.value, bar.p90_ms or 0.0) for bar in bars)
    if largest / smallest >= LOG_FROM:
        axes.set_yscale("log")
        axes.set_ylim(10 ** math.floor(math.log10(smallest) - 0.15), largest * 2.0)
        axes.set_ylabel(f"{axis_label(metric)} (log)")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(0, largest * 1.16)
        axes.set_ylabel(axis_label(metric))
    axes.grid(axis="y", color="#dddddd", lw=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    title = f"{metric.title[:1].upper()}{metric.title[1:]} by model and board ({metric.direction})"
    axes.set_title(title, loc="left", fontsize=11)


def axis_label(metric: Metric) -> str:
    """Return the label of an axis of this metric."""
    return ", ".join(filter(None, (metric.title, metric.unit)))


def _label(bar: Bar) -> str:
    number = f"{three_digits(bar.value)}{MARKS.get(bar.verdict, '')}"
    return f"{number}\n{bar.accuracy}" if bar.accuracy else number


def _legend(figure: Any, bars: Sequence[Bar], colours: Mapping[str, Any]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(facecolor=colours[name], label=name) for name in colours]
    if any(bar.low is not None for bar in bars):
        label = f"95 % interval of the {bars[0].metric.name}"
        handles.append(Line2D([], [], color="#222222", lw=1.4, marker="_", ms=9, label=label))
    if any(bar.p90_ms is not None for bar in bars):
        handles.append(
            Line2D(
                [],
                [],
                color="#222222",
                lw=0.8,
                ls=(0, (2, 2)),
                marker="v",
                ms=5,
                mfc="white",
                label="p90",
            )
        )
    verdicts = {bar.verdict for bar in bars}
    if "suspect" in verdicts:
        handles.append(
            Patch(facecolor="#bbbbbb", edgecolor="white", hatch="///", label="? suspect")
        )
    if "invalid" in verdicts:
        handles.append(
            Patch(facecolor="none", edgecolor="#777777", hatch="xxx", label="! invalid, don't use")
        )
    columns = min(len(handles), max(2, int(figure.get_size_inches()[0] // 2.1)))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9
    )
