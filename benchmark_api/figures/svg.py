"""Draw a figure as HTML with inline SVG: no script, no style, nothing from elsewhere."""

from __future__ import annotations

from html import escape

from edgeyard.benchmark_api.figures.intervals import IntervalFigure, Point, share, shortened
from edgeyard.benchmark_api.printing import printable

_WIDTH, _ROW, _LEFT, _RIGHT = 340, 48, 8, 332
"""Units of the drawing, those of a screen 360 px wide; names stand above their values."""

_SHOWN = {"suspect": " ? suspect", "invalid": " ! invalid"}


def svg_figure(figure: IntervalFigure) -> str:
    """Return a `<figure>` with title, description, drawing and its numbers as a table."""
    height = _ROW * len(figure.points) + 34
    scale = ", logarithmic" if figure.logarithmic else ""
    label = figure.axis.label + scale
    many = len(figure.points) != 1
    what = f"{len(figure.points)} values with their intervals" if many else "1 value"
    lines = [
        f"<figure class=figure><figcaption>{_text(figure.title)}</figcaption>",
        f'<svg role="img" viewBox="0 0 {_WIDTH} {height}" width="100%" fill="currentColor"'
        ' font-family="system-ui,sans-serif" font-size="11">',
        f"<title>{_text(figure.title)}</title>",
        f"<desc>{_text(label)}; {what}.</desc>",
    ]
    for number, point in enumerate(figure.points):
        lines += _point(figure, point, number * _ROW)
    lines += _axis(figure, label, height)
    return "\n".join([*lines, "</svg>", *_numbers(figure), "</figure>"])


def _text(value: str) -> str:
    return escape(printable(value))


def _name(name: str) -> str:
    """Return a name that turns no text around it, whichever way its letters run."""
    return f"\u2068{_text(shortened(name))}\u2069"


def _x(figure: IntervalFigure, value: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * share(figure, value)


def _point(figure: IntervalFigure, point: Point, top: float) -> list[str]:
    middle, x = top + 26, _x(figure, point.value)
    shown = f"{point.value:.3g} {figure.axis.unit}".strip() + _SHOWN.get(point.verdict, "")
    lines = [
        f'<text x="{_LEFT}" y="{top + 12}"><title>{_text(point.name[:1000])}</title>'
        f"{_name(point.name)}</text>",
        f'<text x="{_RIGHT}" y="{top + 43}" text-anchor="end">{_text(shown)}</text>',
    ]
    if point.ends is not None:
        low, high = (_x(figure, end) for end in point.ends)
        lines.append(
            f'<path class="interval" d="M{low:.1f} {middle - 4}v8M{low:.1f} {middle}'
            f'H{high:.1f}M{high:.1f} {middle - 4}v8" fill="none" stroke="currentColor"/>'
        )
    fill = "currentColor" if point.verdict not in _SHOWN else "none"
    lines.append(
        f'<circle class="{escape(point.verdict)}" cx="{x:.1f}" cy="{middle}" r="4"'
        f' fill="{fill}" stroke="currentColor" stroke-width="1.5"/>'
    )
    if point.verdict == "suspect":
        lines.append(f'<path d="M{x:.1f} {middle - 4}a4 4 0 0 0 0 8z"/>')
    return lines


def _axis(figure: IntervalFigure, label: str, height: float) -> list[str]:
    low, high = figure.limits
    y = height - 28
    return [
        f'<path d="M{_LEFT} {y}H{_RIGHT}" stroke="currentColor" stroke-opacity="0.5"/>',
        f'<text x="{_LEFT}" y="{y + 12}">{low:g}</text>',
        f'<text x="{_RIGHT}" y="{y + 12}" text-anchor="end">{high:g}</text>',
        f'<text x="{_WIDTH / 2:g}" y="{y + 25}" text-anchor="middle">{_text(label)}</text>',
    ]


def _numbers(figure: IntervalFigure) -> list[str]:
    rows = [
        f"<tr><td>{_name(point.name)}<td>{point.value:.3g}<td>"
        + ("" if point.ends is None else f"{point.ends[0]:.3g} to {point.ends[1]:.3g}")
        + f"<td>{_text(point.verdict)}"
        for point in figure.points
    ]
    head = f"<tr><th>Name<th>{_text(figure.axis.label)}<th>Interval<th>Verdict"
    return ["<details><summary>Numbers</summary><table>", head, *rows, "</table></details>"]
