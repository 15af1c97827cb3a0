"""Draw a figure as HTML with inline SVG: no script, no style, nothing from elsewhere."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from html import escape

from edgeyard.benchmark_api.figures.axes import (
    Scale,
    columns_of,
    label_of,
    labels,
    number_text,
    shortened,
    tick_text,
)
from edgeyard.benchmark_api.figures.fronts import FrontFigure
from edgeyard.benchmark_api.figures.intervals import MARKS, IntervalFigure, Point
from edgeyard.benchmark_api.figures.lines import UNJOINED, LineFigure, Sample, Series, numbered
from edgeyard.benchmark_api.figures.palette import colour_of, shape_of
from edgeyard.benchmark_api.printing import printable

FIGURE_STYLE = """
.edgeyard-figure{margin:1rem 0;max-width:26rem;overflow-x:auto}
.edgeyard-figure figcaption{font-weight:600}
.edgeyard-figure>svg{display:block;width:100%;height:auto}
.edgeyard-figure td,.edgeyard-figure th{text-align:left;padding:.15rem .5rem .15rem 0}
.edgeyard-figure>.edgeyard-large{display:none}
@media(min-width:46rem){
.edgeyard-figure.edgeyard-wide{max-width:54rem}
.edgeyard-figure>.edgeyard-large{display:block}
.edgeyard-wide>.edgeyard-small{display:none}
}
@media print{.edgeyard-figure{break-inside:avoid}}
"""
"""Rules for the page: the text of a drawing is never larger than the page's."""

_WIDTH, _ROW, _LEFT, _RIGHT = 340, 56, 8, 332
"""Units of the drawing, those of a screen 360 px wide; names stand above their values."""

_AXIS_COLUMNS, _SMALL_AXIS_COLUMNS = 46, 64
"""Columns of the name of an axis that fit in that width, in letters of 12 and of 10 units."""

_LARGE = 700
"""Units of a drawing of lines for a large screen."""

_TOP, _PLOT_LEFT, _PLOT_RIGHT, _MIN_PLOT = 26, 46, 232, 170
"""Area of lines; their names stand to the right of it."""

_LINE, _LABEL_COLUMNS, _LABEL_LINES, _TEXT_COLUMNS = 13, 14, 3, 50
"""Height of a line of text; columns and lines of a series' name; columns of the whole width."""

_RADIUS = 4.0

_NUMBER = 14
"""Width of the number of a mark with the gap to the next one."""


Drawable = IntervalFigure | LineFigure | FrontFigure


def svg_figure(figure: Drawable, *, wide: bool = False) -> str:
    """Return a `<figure>` with title, description, drawing and its numbers as a table.

    Args:
        figure: What is drawn.
        wide: Whether there is a second drawing of lines, which takes the place of the first one on
            a large screen.
    """
    small = _parts(figure)
    if not wide:
        return small.page(small.drawing())
    large = _parts(figure, _LARGE).drawing(' class="edgeyard-large"')
    return small.page(small.drawing(' class="edgeyard-small"') + large, " edgeyard-wide")


def svg_document(figure: Drawable) -> str:
    """Return the drawing alone, as a file."""
    return _parts(figure).drawing(' xmlns="http://www.w3.org/2000/svg"')


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a figure is made of, as HTML."""

    title: str
    about: str
    height: float
    drawn: list[str]
    table: Callable[[], list[str]]
    width: float = _WIDTH

    def drawing(self, more: str = "") -> str:
        """Return the `<svg>` with further attributes."""
        head = [
            f'<svg role="img" viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}"'
            f' height="{self.height:g}" fill="currentColor" font-family="system-ui,sans-serif"'
            f' font-size="12"{more}>',
            f"<title>{_text(self.title)}</title>",
            f"<desc>{_text(self.about)}</desc>",
        ]
        return "\n".join([*head, *self.drawn, "</svg>"])

    def page(self, drawings: str, more_class: str = "") -> str:
        """Return the `<figure>` with drawings of it."""
        lines = [
            f'<figure class="edgeyard-figure{more_class}">'
            f"<figcaption>{_text(self.title)}</figcaption>",
            drawings,
            "<details><summary>Numbers</summary><table>",
            *self.table(),
            "</table></details>",
            "</figure>",
        ]
        return "\n".join(lines)


def _parts(figure: Drawable, width: float = _WIDTH) -> _Parts:
    if isinstance(figure, FrontFigure):
        return _front(figure)
    return _intervals(figure) if isinstance(figure, IntervalFigure) else _lines(figure, width)


def _text(value: str) -> str:
    return escape(printable(value))


def _isolated(text: str) -> str:
    """Return a text of users, whose direction of writing then changes no text around it."""
    return f"\u2068{_text(text)}\u2069"


def _range(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{number_text(ends[0])} to {number_text(ends[1])}"


def _verdict(verdict: str) -> str:
    """Return the class of a verdict, which no rule of a page for verdicts matches."""
    return f"edgeyard-{verdict if verdict in MARKS else 'comparable'}"


# --- values with intervals ------------------------------------------------------------------------


def _intervals(figure: IntervalFigure) -> _Parts:
    scale, height = figure.scale, _ROW * len(figure.points) + 36
    label = label_of(figure.axis, scale)
    many = len(figure.points) != 1
    what = f"{len(figure.points)} values with their intervals" if many else "1 value"
    drawn = _value_axis(scale, label, height)
    names = labels([printable(point.name) for point in figure.points])
    for number, (point, name) in enumerate(zip(figure.points, names, strict=True)):
        if figure.reference is not None:
            drawn.append(_reference(_x(scale, figure.reference), number * _ROW))
        drawn += _point(figure, scale, point, name, number * _ROW)
    rows = [
        f"<tr><td>{_isolated(name)}<td>{number_text(point.value)}"
        f"<td>{_range(point.ends)}<td>{_text(point.verdict)}"
        for point, name in zip(figure.points, names, strict=True)
    ]
    table = [f"<tr><th>Name<th>{_text(figure.axis.label)}<th>Interval<th>Verdict", *rows]
    return _Parts(figure.title, f"{label}; {what}.", height, drawn, lambda: table)


def _reference(x: float, top: float) -> str:
    """Return the part of the reference's line in a row, which leaves out the names."""
    return (
        f'<path class="edgeyard-reference" d="M{x:.1f} {top + 17}v20" fill="none"'
        ' stroke="currentColor" stroke-dasharray="4 2"/>'
    )


def _x(scale: Scale, value: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * scale.share(value)


def _point(figure: IntervalFigure, scale: Scale, point: Point, name: str, top: float) -> list[str]:
    middle, x = top + 27, _x(scale, point.value)
    grey = ' opacity="0.55"' if figure.is_noise(point) else ""
    lines = [
        f"<g{grey}>",
        f'<text x="{_LEFT}" y="{top + 13}"><title>{_text(point.name[:1000])}</title>'
        f"{_isolated(name)}</text>",
        f'<text x="{_RIGHT}" y="{top + 45}" text-anchor="end">{_text(figure.text(point))}</text>',
    ]
    if point.ends is not None:
        lines += _whisker(scale, point.ends, x, middle)
    return [*lines, _marker(x, middle, point.verdict, "currentColor", "circle"), "</g>"]


def _whisker(scale: Scale, ends: tuple[float, float], x: float, y: float) -> list[str]:
    """Return an interval with a gap for the marker, and an arrow where an end is off the axis."""
    path, arrows = "", []
    for end, side in zip(ends, (-1, 1), strict=True):
        at = _x(scale, end)
        if (at - x) * side > _RADIUS:
            path += f"M{x + side * _RADIUS:.1f} {y}H{at:.1f}"
        if scale.cuts(end):
            arrows.append(
                f'<path class="edgeyard-cut" d="M{at:.1f} {y}l{-side * 7} -4v8z">'
                f"<title>goes on to {number_text(end)}</title></path>"
            )
        elif (at - x) * side > _RADIUS:
            path += f"M{at:.1f} {y - 4}v8"
    drawn = f'<path class="edgeyard-interval" d="{path}" fill="none" stroke="currentColor"/>'
    return [drawn, *arrows] if path else arrows


def _value_axis(scale: Scale, label: str, height: float) -> list[str]:
    y = height - 30
    lines = [f'<path d="M{_LEFT} {y}H{_RIGHT}" stroke="currentColor" stroke-opacity="0.5"/>']
    for tick in scale.ticks:
        x = _x(scale, tick)
        anchor = "start" if x < _LEFT + 12 else "end" if x > _RIGHT - 12 else "middle"
        lines.append(
            f'<path d="M{x:.1f} 0V{y + 4}" stroke="currentColor" stroke-opacity="0.15"/>'
            f'<text x="{x:.1f}" y="{y + 14}" text-anchor="{anchor}">{tick_text(tick)}</text>'
        )
    return [*lines, _fitting(label, _WIDTH / 2, y + 27)]


def _axis_text(label: str) -> str:
    """Return the end of a tag and the name of an axis, smaller where it is long."""
    size = ' font-size="10"' if columns_of(label) > _AXIS_COLUMNS else ""
    return f"{size}>{_text(shortened(label, _SMALL_AXIS_COLUMNS))}"


def _fitting(label: str, x: float, y: float) -> str:
    """Return a centred label that is at most as wide as the drawing."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle"{_axis_text(label)}</text>'


def _marker(x: float, y: float, verdict: str, colour: str, shape: str) -> str:
    """Return a marker: hollow for invalid, half filled for suspect."""
    r = _RADIUS
    fill = "none" if verdict in MARKS else colour
    drawn = (
        f'<path class="edgeyard-mark {_verdict(verdict)}" d="{_outline(x, y, shape)}"'
        f' fill="{fill}" stroke="{colour}" stroke-width="1.5"/>'
    )
    if verdict == "suspect":
        drawn += f'<path d="M{x:.1f} {y - r:.1f}a{r} {r} 0 0 0 0 {2 * r}z" fill="{colour}"/>'
    return drawn


def _outline(x: float, y: float, shape: str) -> str:
    """Return the path of a marker's shape; of one that is not known, a circle."""
    r = _RADIUS
    match shape:
        case "square":
            return f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}z"
        case "triangle":
            return f"M{x:.1f} {y - r - 1:.1f}l{r + 1} {2 * r + 1}h{-2 * r - 2}z"
        case "triangle-down":
            return f"M{x:.1f} {y + r + 1:.1f}l{r + 1} {-2 * r - 1}h{-2 * r - 2}z"
        case "diamond":
            return f"M{x:.1f} {y - r - 1:.1f}l{r + 1} {r + 1}l{-r - 1} {r + 1}l{-r - 1} {-r - 1}z"
        case "plus":
            start = f"M{x - 1.7:.1f} {y - r - 1:.1f}"
            return f"{start}h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z"
        case "cross":
            start = f"M{x - r:.1f} {y - r:.1f}"
            return f"{start}l4 1.6l4 -1.6l-1.6 4l1.6 4l-4 -1.6l-4 1.6l1.6 -4z"
        case "bar":
            return f"M{x - 2:.1f} {y - r - 2:.1f}h4v{2 * r + 4}h-4z"
    return f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"


# --- alternatives ---------------------------------------------------------------------------------


def _front(figure: FrontFigure) -> _Parts:
    drawn: list[str] = []
    top = 0.0
    for panel in range(len(figure.axes)):
        drawn += _panel(figure, panel, top)
        top += _PANEL
    x_label = label_of(figure.x_axis, figure.x_scale)
    drawn.append(f'<text x="{_LEFT}" y="{top + 6:g}"{_axis_text(x_label)}</text>')
    remarks = labels([printable(each) for each in figure.remarks], _TEXT_COLUMNS)
    drawn += [
        f'<text x="{_LEFT}" y="{top + 24 + _LINE * 1.2 * row:.1f}"><title>{_text(each[:1000])}'
        f"</title>{_isolated(shown)}</text>"
        for row, (each, shown) in enumerate(zip(figure.remarks, remarks, strict=True))
    ]
    height = round(top + 20 + _LINE * 1.2 * len(figure.remarks))
    names = labels([printable(point.name) for point in figure.points])
    axes = [figure.x_axis, *figure.axes]
    head = "<tr><th>Number<th>Name" + "".join(f"<th>{_text(axis.label)}" for axis in axes)
    rows = [
        f"<tr><td>{number}<td>{_isolated(names[number - 1])}"
        + "".join(f"<td>{number_text(value)}" for value in (point.x, *point.values))
        + f"<td>{'yes' if point.on_front else 'no'}<td>{_text(point.verdict)}"
        for number, point in enumerate(figure.points, start=1)
    ]
    on_front = sum(point.on_front for point in figure.points)
    about = (
        f"{', '.join(axis.label for axis in figure.axes)} by {x_label}; {on_front} of "
        f"{len(figure.points)} are on the front."
    )
    table = [f"{head}<th>On the front<th>Verdict", *rows]
    return _Parts(figure.title, about, height, drawn, lambda: table)


_PANEL = 176.0
"""Height of a panel of alternatives, with its name and the numbers of its axis."""


def _panel(figure: FrontFigure, panel: int, top: float) -> list[str]:
    scale, x_scale = figure.scale(panel), figure.x_scale
    bottom = top + _PANEL - 26
    label = label_of(figure.axes[panel], scale)
    drawn = [
        f'<text x="{_LEFT}" y="{top + 11:g}"{_axis_text(label)}</text>',
        f'<path d="M{_PLOT_LEFT - 4} {bottom:g}H{_RIGHT}" stroke="currentColor"'
        ' stroke-opacity="0.5"/>',
    ]

    def x(value: float) -> float:
        return _PLOT_LEFT + 6 + (_RIGHT - 14 - _PLOT_LEFT) * x_scale.share(value)

    def y(value: float) -> float:
        return bottom - 6 - (bottom - 12 - top - _TOP) * scale.share(value)

    for tick in scale.ticks:
        drawn.append(
            f'<path d="M{_PLOT_LEFT - 4} {y(tick):.1f}H{_RIGHT}" stroke="currentColor"'
            f' stroke-opacity="0.15"/><text x="{_PLOT_LEFT - 7}" y="{y(tick) + 4:.1f}"'
            f' text-anchor="end">{tick_text(tick)}</text>'
        )
    drawn += [
        f'<text x="{x(tick):.1f}" y="{bottom + 14:g}" text-anchor="middle">{tick_text(tick)}</text>'
        for tick in x_scale.ticks
    ]
    for number, point in enumerate(figure.points, start=1):
        at, height = x(point.x), y(point.values[panel])
        shape, grey = ("diamond", "") if point.on_front else ("circle", ' opacity="0.55"')
        drawn.append(
            f"<g{grey}>{_marker(at, height, point.verdict, 'currentColor', shape)}"
            f'<text x="{at:.1f}" y="{height - 7:.1f}" text-anchor="middle" font-size="10">'
            f"{number}</text></g>"
        )
    return drawn


# --- series ---------------------------------------------------------------------------------------


def _lines(figure: LineFigure, width: float) -> _Parts:
    named = [each for each in figure.series if each.name]
    names = [printable(each.name) for each in named]
    fitting = labels(names, _LABEL_COLUMNS * _LABEL_LINES - 2)
    lines_of_name = {each.name: _wrapped(name) for each, name in zip(named, fitting, strict=True)}
    needed = sum(_LINE * len(each) + 5 for each in lines_of_name.values())
    more = width - _WIDTH
    bottom = _TOP + max(_MIN_PLOT + more / 4, needed)
    right = (_PLOT_RIGHT if named else _RIGHT) + more
    plot = _Plot(figure, right, bottom)
    drawn = plot.axes()
    for position, series in enumerate(figure.series):
        drawn += plot.series(series, position)
    drawn += plot.names(lines_of_name)
    remarks, height = plot.remarks(bottom + 44)
    logarithmic = plot.x_scale.logarithmic or plot.scale.logarithmic
    about = f"{figure.axis.label} by {figure.x_axis.label}; {len(figure.series)} series"
    about += "; logarithmic." if logarithmic else "."
    return _Parts(figure.title, about, height, drawn + remarks, partial(_numbers, figure), width)


class _Plot:
    """Places and parts of a drawing of series."""

    def __init__(self, figure: LineFigure, right: float, bottom: float) -> None:
        self.figure, self.right, self.bottom = figure, right, bottom
        self.x_scale, self.scale = figure.x_scale, figure.scale

    def x(self, value: float) -> float:
        return _PLOT_LEFT + (self.right - 8 - _PLOT_LEFT) * self.x_scale.share(value)

    def y(self, value: float) -> float:
        return self.bottom - 4 - (self.bottom - 4 - _TOP) * self.scale.share(value)

    def axes(self) -> list[str]:
        figure = self.figure
        label = label_of(figure.axis, self.scale)
        lines = [
            f'<text x="{_LEFT}" y="11"{_axis_text(label)}</text>',
            f'<path d="M{_PLOT_LEFT - 4} {self.bottom}H{self.right}" stroke="currentColor"'
            ' stroke-opacity="0.5"/>',
        ]
        for tick in self.scale.ticks:
            y = self.y(tick)
            lines.append(
                f'<path d="M{_PLOT_LEFT - 4} {y:.1f}H{self.right}" stroke="currentColor"'
                f' stroke-opacity="0.15"/><text x="{_PLOT_LEFT - 7}" y="{y + 4:.1f}"'
                f' text-anchor="end">{tick_text(tick)}</text>'
            )
        ticks = figure.x_ticks(2 if self.right <= _RIGHT else 5)
        for tick in ticks:
            x = self.x(tick)
            anchor = "start" if tick == ticks[0] else "end" if tick == ticks[-1] else "middle"
            lines.append(
                f'<text x="{x:.1f}" y="{self.bottom + 14}" text-anchor="{anchor}">'
                f"{figure.tick_text(tick)}</text>"
            )
        label = _axis_text(figure.x_label)
        lines.append(f'<text x="{_LEFT}" y="{self.bottom + 29}"{label}</text>')
        if figure.warm_up_until is not None:
            end = self.x(figure.warm_up_until)
            lines.append(
                f'<rect class="edgeyard-warm-up" x="{_PLOT_LEFT}" y="{_TOP}"'
                f' width="{max(2.0, end - _PLOT_LEFT):.1f}" height="{self.bottom - _TOP}"'
                ' fill-opacity="0.12"/>'
            )
        places = [self.x(mark.x) for mark in figure.marks]
        for x in dict.fromkeys(places):
            lines.append(
                f'<path class="edgeyard-change" d="M{x:.1f} {_TOP}V{self.bottom}" fill="none"'
                ' stroke="currentColor" stroke-dasharray="2 3"/>'
            )
        for failure in figure.failures:
            x = self.x(failure.x)
            lines.append(
                f'<path d="M{x - 4:.1f} {self.bottom - 4}l8 8m0 -8l-8 8" fill="none"'
                f' stroke="currentColor" stroke-width="1.5"><title>{_text(failure.text)}</title>'
                "</path>"
            )
        for numbers, x in numbered(places, _NUMBER):
            lines.append(
                f'<text x="{x:.1f}" y="{_TOP - 3}" text-anchor="middle" font-size="10">'
                f"{numbers}</text>"
            )
        return lines

    def series(self, series: Series, position: int) -> list[str]:
        colour = _ink(position)
        drawn = [
            f'<path d="{self._path(series)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        ]
        for sample in series.samples:
            drawn += self._sample(sample, colour, shape_of(position))
        if not self.figure.dots and series.name and series.samples:
            at = self.figure.labelled(series)
            mark = _marker(self.x(at.x), self.y(at.value), "", colour, shape_of(position))
            drawn.append(mark)
        return drawn

    def _path(self, series: Series) -> str:
        path, before = "", None
        for sample in series.samples:
            if sample.verdict in UNJOINED:
                continue
            x, y = self.x(sample.x), self.y(sample.value)
            if before is None:
                path = f"M{x:.1f} {self.y(0.0) if self.figure.steps else y:.1f}V{y:.1f}"
            elif self.figure.steps:
                path += f"H{x:.1f}V{y:.1f}"
            else:
                path += f"L{x:.1f} {y:.1f}"
            before = sample
        return path

    def _sample(self, sample: Sample, colour: str, shape: str) -> list[str]:
        x, y, drawn = self.x(sample.x), self.y(sample.value), []
        if sample.ends is not None:
            path = ""
            for end, side in zip(sample.ends, (1, -1), strict=True):
                at, gap = self.y(end), _RADIUS if self.figure.dots else 0.0
                if (at - y) * side > gap:
                    path += f"M{x:.1f} {y + side * gap:.1f}V{at:.1f}"
                    path += "m-3 0h6" if self.figure.dots and not self.scale.cuts(end) else ""
                if self.scale.cuts(end):
                    path += f"m-3 {-side * 5}l3 {side * 5}l3 {-side * 5}"
            drawn.append(
                f'<path class="edgeyard-interval" d="{path}" fill="none" stroke="{colour}"/>'
            )
        if self.figure.dots:
            if sample.verdict in MARKS:  # no line shows through it
                drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}" fill="Canvas"/>')
            drawn.append(_marker(x, y, sample.verdict, colour, shape))
        return drawn

    def names(self, lines_of_name: dict[str, list[str]]) -> list[str]:
        """Return the names beside the ends of their series, each with a line to its end."""
        order = [
            (self.y(at.value), self.x(at.x), position, each)
            for position, each in enumerate(self.figure.series)
            if each.name in lines_of_name and each.samples
            for at in (self.figure.labelled(each),)
        ]
        order.sort(key=lambda one: (one[0], one[2]))
        heights = [_LINE * len(lines_of_name[each.name]) + 5 for *_, each in order]
        places, top = [], float(_TOP)
        for (y, *_), height in zip(order, heights, strict=True):
            top = max(top, y - height / 2)
            places.append(top)
            top += height
        limit = self.bottom
        for index in reversed(range(len(places))):
            places[index] = min(places[index], limit - heights[index])
            limit = places[index]
        drawn = []
        for (y, x, position, each), top in zip(order, places, strict=True):
            colour = _ink(position)
            if not self.figure.steps:  # it would cross the curves
                drawn.append(
                    f'<path d="M{x + 5:.1f} {y:.1f}L{self.right + 2} {top + 8:.1f}" fill="none"'
                    f' stroke="{colour}" stroke-opacity="0.6"/>'
                )
            drawn.append(_marker(self.right + 8, top + 8, "", colour, shape_of(position)))
            drawn.append(f"<text><title>{_text(each.name[:1000])}</title>")
            drawn += [
                f'<tspan x="{self.right + 16}" y="{top + 12 + _LINE * row:.1f}">{_isolated(line)}'
                "</tspan>"
                for row, line in enumerate(lines_of_name[each.name])
            ]
            drawn.append("</text>")
        return drawn

    def remarks(self, y: float) -> tuple[list[str], float]:
        """Return what the marks mean, below the drawing, and its height with them."""
        columns = round(_TEXT_COLUMNS * max(1.0, self.right / _RIGHT))
        texts = self.figure.remarks + textwrap.wrap(", ".join(self.figure.legend), columns)
        drawn = [
            f'<text x="{_LEFT}" y="{y + _LINE * 1.2 * row:.1f}"><title>{_text(each)}</title>'
            f"{_isolated(shortened(each, columns))}</text>"
            for row, each in enumerate(texts)
        ]
        return drawn, round(y - 8 + _LINE * 1.2 * len(texts))


def _ink(position: int) -> str:
    """Return the colour of a series; black is that of the page's text, which may be light."""
    colour = colour_of(position)
    return "currentColor" if colour == "#000000" else colour


def _wrapped(name: str) -> list[str]:
    """Return a name as lines that fit beside the drawing."""
    lines, line = [], ""
    for char in name:
        if columns_of(line + char) > _LABEL_COLUMNS:
            cut = line.rfind(" ") + 1 or line.rfind("-") + 1 or len(line)
            lines.append(line[:cut].rstrip())
            line = line[cut:]
        line += char
    return [*lines, line]


def _numbers(figure: LineFigure) -> list[str]:
    scale = figure.x_scale
    head = f"<tr><th>Series<th>{_text(figure.x_axis.label)}<th>{_text(figure.axis.label)}"
    names = labels([printable(each.name) for each in figure.series])
    judged = any(sample.verdict for each in figure.series for sample in each.samples)
    rows = [
        f"<tr><td>{_isolated(name)}<td>{figure.x_text(sample.x, scale)}"
        f"<td>{number_text(sample.value)}<td>{_range(sample.ends)}"
        + (f"<td>{_text(sample.verdict)}" if judged else "")
        for each, name in zip(figure.series, names, strict=True)
        for sample in each.samples
    ]
    rows += [
        f"<tr><td>–<td>{figure.x_text(each.x, scale)}<td>–<td>{_text(each.text)}"
        + ("<td>failed" if judged else "")
        for each in figure.failures
    ]
    return [f"{head}<th>Interval{'<th>Verdict' if judged else ''}", *rows]
