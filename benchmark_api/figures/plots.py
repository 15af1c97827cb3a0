"""Draw a figure into a file, as PNG, PDF or SVG, by matplotlib (the extra `plot`)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from edgeyard.benchmark_api.figures.axes import (
    Axis,
    Scale,
    label_of,
    labels,
    shortened,
    tick_text,
)
from edgeyard.benchmark_api.figures.fronts import FrontFigure
from edgeyard.benchmark_api.figures.intervals import IntervalFigure
from edgeyard.benchmark_api.figures.lines import UNJOINED, LineFigure, numbered
from edgeyard.benchmark_api.figures.palette import colour_of
from edgeyard.benchmark_api.printing import printable

_SHAPES = ("o", "s", "^", "D", "v", "P", "X", "d")
"""Matplotlib's markers for `palette.SHAPES`."""

_WIDE_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "Source Han Sans")
"""Fonts with Chinese, Japanese and Korean characters, of which those that exist are used."""

_GREY = "#767676"

_NUMBER = 0.02
"""Width of the number of a mark, as a share of the axis."""

_NUMBERS_PT = 18.0
"""Distance of a title from axes above which the numbers of marks stand."""

_LABEL_COLUMNS = 30
"""Columns of the name of a vertical axis that fit beside the lowest axes."""


Drawable = IntervalFigure | LineFigure | FrontFigure | Sequence[LineFigure]


def plot_figure(figure: Drawable, path: Path) -> None:
    """Draw a figure, or lines one below the other, into a file; its suffix is the format.

    Raises:
        ImportError: Matplotlib is not installed.
        OSError: The file can't be written.
    """
    from matplotlib import font_manager, rc_context
    from matplotlib.figure import Figure

    existing = {font.name for font in font_manager.fontManager.ttflist}
    fonts = ["DejaVu Sans", *(name for name in _WIDE_FONTS if name in existing)]
    with rc_context({"font.family": fonts, "text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # shown as a box
        panels = _panels(figure)
        drawn = Figure(figsize=(8.0, _height_in(figure)), layout="constrained", dpi=150)
        every = list(drawn.subplots(panels, 1, squeeze=False)[:, 0])
        for axes in every:
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
        if isinstance(figure, FrontFigure):
            _title(every[0], figure.title, _NUMBERS_PT)
            _front(every, figure)
        elif isinstance(figure, IntervalFigure):
            _title(every[0], figure.title)
            _intervals(every[0], figure)
        else:
            lines = [figure] if isinstance(figure, LineFigure) else figure
            for axes, each in zip(every, lines, strict=True):
                _title(axes, each.title, _NUMBERS_PT if each.marks else None)
                _lines(axes, each)
        drawn.savefig(path)


def _title(axes: Any, title: str, pad: float | None = None) -> None:
    axes.set_title(printable(title), loc="left", fontsize=11, pad=pad)


def _panels(figure: Drawable) -> int:
    if isinstance(figure, FrontFigure):
        return len(figure.axes)
    return 1 if isinstance(figure, IntervalFigure | LineFigure) else len(figure)


def _height_in(figure: Drawable) -> float:
    if isinstance(figure, FrontFigure):
        return 0.8 + 2.6 * len(figure.axes) + 0.22 * len(figure.points)
    if isinstance(figure, IntervalFigure):
        return max(2.0, 1.3 + 0.34 * len(figure.points))
    return 4.8 if isinstance(figure, LineFigure) else 0.8 + 3.0 * len(figure)


def _face(verdict: str, colour: str) -> dict[str, Any]:
    """Return how a marker is filled: hollow where no line joins it, half for suspect."""
    if verdict == "suspect":
        return {"fillstyle": "left", "mfc": colour, "markerfacecoloralt": "white", "mec": colour}
    return {"mfc": "white" if verdict in UNJOINED else colour, "mec": colour}


def _scaled(axis: Any, scale: Scale, limits: Any, measured: Axis) -> None:
    limits(scale.low, scale.high)
    axis.set_ticks(scale.ticks, [tick_text(tick) for tick in scale.ticks])
    axis.set_ticks([], minor=True)
    axis.set_label_text(printable(label_of(measured, scale)))


def _scaled_beside(axes: Any, scale: Scale, measured: Axis) -> None:
    """Scale the vertical axis, whose name takes several lines where it is long."""
    _scaled(axes.yaxis, scale, axes.set_ylim, measured)
    label = axes.get_ylabel()
    if len(label) > _LABEL_COLUMNS:
        parts = label.replace(" (", "\n(").splitlines()
        axes.set_ylabel("\n".join(fill(part, _LABEL_COLUMNS) for part in parts))


def _intervals(axes: Any, figure: IntervalFigure) -> None:
    scale = figure.scale
    axes.set_xscale("log" if scale.logarithmic else "linear")
    _scaled(axes.xaxis, scale, axes.set_xlim, figure.axis)
    for y, point in enumerate(figure.points):
        colour = _GREY if figure.is_noise(point) else "black"
        for end in point.ends or ():
            at = min(max(end, scale.low), scale.high)
            axes.plot([point.value, at], [y, y], color=colour, lw=1.2, clip_on=False)
            shape = "|" if not scale.cuts(end) else "<" if end < scale.low else ">"
            axes.plot(at, y, marker=shape, color=colour, ms=7, clip_on=False)
        face = _face(point.verdict, colour)
        axes.plot(point.value, y, marker="o", ms=7, ls="", clip_on=False, zorder=4, **face)
        axes.annotate(
            printable(figure.text(point)),
            (1.02, y),
            xycoords=("axes fraction", "data"),
            va="center",
            color=colour,
            fontsize=9,
        )
    if figure.reference is not None:
        axes.axvline(figure.reference, color="black", lw=0.8, ls="--", zorder=1)
    names = labels([printable(point.name) for point in figure.points])
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", color="#dddddd", lw=0.7)
    axes.set_axisbelow(True)


def _front(panels: Sequence[Any], figure: FrontFigure) -> None:
    x_scale = figure.x_scale
    for panel, axes in enumerate(panels):
        scale = figure.scale(panel)
        axes.set_xscale("log" if x_scale.logarithmic else "linear")
        axes.set_yscale("log" if scale.logarithmic else "linear")
        _scaled(axes.xaxis, x_scale, axes.set_xlim, figure.x_axis)
        _scaled_beside(axes, scale, figure.axes[panel])
        axes.grid(color="#dddddd", lw=0.7)
        axes.set_axisbelow(True)
        for number, point in enumerate(figure.points, start=1):
            colour, shape = ("black", "D") if point.on_front else (_GREY, "o")
            at = (point.x, point.values[panel])
            face = _face(point.verdict, colour)
            axes.plot(*at, marker=shape, ms=7, ls="", clip_on=False, zorder=4, **face)
            axes.annotate(str(number), at, (0, 7), textcoords="offset points", ha="center",
                          color=colour, fontsize=8, annotation_clip=False)  # fmt: skip
    last = panels[-1]
    shown = labels([printable(each) for each in figure.remarks], 100)
    last.set_xlabel("\n".join([last.get_xlabel(), *shown]))


def _lines(axes: Any, figure: LineFigure) -> None:
    x_scale, scale = figure.x_scale, figure.scale
    axes.set_xscale("log" if x_scale.logarithmic else "linear")
    axes.set_yscale("log" if scale.logarithmic else "linear")
    _scaled_beside(axes, scale, figure.axis)
    if figure.steps:
        _scaled(axes.xaxis, x_scale, axes.set_xlim, figure.x_axis)
    else:
        gap = (x_scale.high - x_scale.low) * 0.02
        axes.set_xlim(x_scale.low - gap, x_scale.high + gap)
        ticks = figure.x_ticks(5)
        axes.set_xticks(ticks, [figure.tick_text(tick) for tick in ticks])
        axes.set_xlabel(printable(figure.x_label))
    axes.grid(axis="y", color="#dddddd", lw=0.7)
    for position, each in enumerate(figure.series):
        colour, shape = colour_of(position), _SHAPES[position % len(_SHAPES)]
        joined = [sample for sample in each.samples if sample.verdict not in UNJOINED]
        axes.plot(
            [sample.x for sample in joined],
            [sample.value for sample in joined],
            color=colour,
            lw=1.3,
            drawstyle="steps-post" if figure.steps else "default",
        )
        for sample in each.samples:
            for end in sample.ends or ():
                at = min(max(end, scale.low), scale.high)
                axes.plot([sample.x] * 2, [sample.value, at], color=colour, lw=1, zorder=2)
                cut = scale.cuts(end)
                if figure.dots or cut:
                    cap = "_" if not cut else "v" if end < scale.low else "^"
                    axes.plot(sample.x, at, marker=cap, color=colour, ms=6, clip_on=False)
            if figure.dots:
                face = _face(sample.verdict, colour)
                axes.plot(
                    sample.x, sample.value, marker=shape, ms=6, ls="", clip_on=False, zorder=4,
                    **face,
                )  # fmt: skip
    _names(axes, figure)
    _remarks(axes, figure)


def _names(axes: Any, figure: LineFigure) -> None:
    """Write the names to the right of the axes, with lines to the ends of their series."""
    named = [
        (figure.scale.share(figure.labelled(each).value), position, each)
        for position, each in enumerate(figure.series)
        if each.name and each.samples
    ]
    named.sort(key=lambda one: (-one[0], one[1]))
    distance = min(0.07, 1 / max(1, len(named)))
    places, top = [], 1.0
    for share, *_ in named:
        places.append(top := min(share, top))
        top -= distance
    low = 0.0
    for index in reversed(range(len(places))):
        places[index] = max(places[index], low)
        low = places[index] + distance
    names = labels([printable(each.name) for *_, each in named], 40)
    for (_, position, each), place, name in zip(named, places, names, strict=True):
        at, colour = figure.labelled(each), colour_of(position)
        axes.annotate(
            name,
            (at.x, at.value),
            (1.05, place),
            textcoords="axes fraction",
            va="center",
            fontsize=9 if distance == 0.07 else 6,
            arrowprops=None if figure.steps else _leader(colour),
        )
        if figure.steps:
            axes.plot(at.x, at.value, marker=_SHAPES[position % len(_SHAPES)], color=colour, ms=6)
        axes.plot(
            1.04, place, marker=_SHAPES[position % len(_SHAPES)], color=colour, ms=5,
            transform=axes.transAxes, clip_on=False,
        )  # fmt: skip


def _leader(colour: str) -> dict[str, object]:
    """Return the line from a name to its series."""
    return {"arrowstyle": "-", "color": colour, "lw": 0.8, "relpos": (0, 0.5), "shrinkA": 0}


def _remarks(axes: Any, figure: LineFigure) -> None:
    """Draw the warm-up and the marks, and write below the axis what they mean."""
    places, scale = [mark.x for mark in figure.marks], figure.x_scale
    for x in dict.fromkeys(places):
        axes.axvline(x, color="black", lw=0.8, ls=":")
    for failure in figure.failures:
        axes.plot(failure.x, 0.0, marker="x", color="black", ms=6, clip_on=False, zorder=4,
                  transform=axes.get_xaxis_transform())  # fmt: skip
    for numbers, x in numbered(places, _NUMBER * (scale.high - scale.low)):
        axes.annotate(numbers, (x, 1.0), (0, 4), xycoords=("data", "axes fraction"), fontsize=8,
                      textcoords="offset points", ha="center", va="bottom")  # fmt: skip
    if figure.warm_up_until is not None:
        axes.axvspan(figure.x_scale.low, figure.warm_up_until, color="#888888", alpha=0.2, lw=0)
    if texts := [*figure.remarks, *figure.legend]:
        label = axes.get_xlabel()
        axes.set_xlabel("\n".join([label, *(shortened(printable(each), 100) for each in texts)]))
