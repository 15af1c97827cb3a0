"""Axes of figures: what they measure, from where to where, linear or logarithmic."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from unicodedata import east_asian_width

_MAX_DRAWN = 1e150
"""A host may state any number: beyond this one, differences and powers are no numbers any more."""

_MIN_DRAWN = 1e-300

LOG_FROM = 20.0
"""Ratio of the largest to the smallest value above which an axis is logarithmic."""

MAX_NAME = 46
"""Columns of a name that a figure shows; the whole one is its title."""

PART = " · "
"""Between the parts of a name: model, board, engine."""

_MAX_DECADES = 5
"""Decades of a logarithmic axis that are all labelled."""


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
        stated = self.unit == "1/s" and self.title.endswith("per second")
        unit = f", {self.unit}" if self.unit and not stated else ""
        return f"{self.title}{unit}" + (f" ({self.direction} is better)" if self.direction else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Ends of an axis, in the unit of its values."""

    low: float
    high: float
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """Return the place of a value on the axis, 0 to 1; what is beyond an end is at that end."""
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = (math.log10(max(each, self.low)) for each in (value, low, high))
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def cuts(self, value: float) -> bool:
        """Return whether a value is beyond an end, so that its mark stands for less or more."""
        return value < self.low or value > self.high

    @property
    def ticks(self) -> list[float]:
        """Values to be labelled, from low to high, about five."""
        if self.logarithmic:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            step = math.ceil((last - first) / _MAX_DECADES)
            return [10.0**power for power in range(first, last + 1, step)]
        distance = _step(self.high - self.low)
        ends = math.ceil(self.low / distance - 1e-6), math.floor(self.high / distance + 1e-6)
        return [each * distance for each in range(ends[0], ends[1] + 1)]


def label_of(axis: Axis, scale: Scale) -> str:
    """Return the label of an axis, which states where its scale is logarithmic."""
    return axis.label + (", logarithmic" if scale.logarithmic else "")


def scale_of(values: Iterable[float], ends: Iterable[float] = (), *, from_zero: bool) -> Scale:
    """Return the scale of an axis, with round ends.

    It is logarithmic if the values are positive and span more than a factor of `LOG_FROM`. An
    interval's end below a tenth of the smallest value is cut there then.

    Args:
        values: Drawn values.
        ends: Ends of their intervals.
        from_zero: Whether a linear axis contains 0.
    """
    values = [_drawn(each) for each in values]
    shown = [*values, *map(_drawn, ends)]
    if not values:
        return Scale(low=0.0, high=1.0)
    if min(values) > 0 and max(values) / min(values) > LOG_FROM:
        low = min(max(each, min(values) / 10) for each in shown)
        powers = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(max(shown)) - 1e-9)
        return Scale(low=10.0 ** powers[0], high=10.0 ** powers[1], logarithmic=True)
    low, high = min(shown), max(shown)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = (low, low + 1.0) if low == 0 else (low - abs(low) / 10, low + abs(low) / 10)
    step = _step(high - low)
    return Scale(
        low=math.floor(low / step + 1e-6) * step, high=math.ceil(high / step - 1e-6) * step
    )


def _drawn(value: float) -> float:
    """Return a value that pictures can have: a tenth of it is not rounded to 0."""
    if abs(value) < _MIN_DRAWN:
        return 0.0
    return min(max(value, -_MAX_DRAWN), _MAX_DRAWN)


def _step(span: float) -> float:
    """Return a round distance of ticks: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(span / 4))
    return next(times * power for times in (1, 2, 5, 10) if span / (times * power) <= 5)


def number_text(value: float) -> str:
    """Return a number with three digits and without an exponent where it is readable."""
    if value == 0 or not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def tick_text(value: float) -> str:
    """Return a number beside an axis, as `number_text` but in thousands or millions if large."""
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if 10 * size <= abs(value) < 1e4 * size:
            return f"{number_text(value / size)}{suffix}"
    return number_text(value)


def columns_of(text: str) -> int:
    """Return the width of a text: wide characters, such as Chinese ones, count twice."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def shortened(name: str, columns: int = MAX_NAME) -> str:
    """Return a name as a figure shows it, at most that many columns wide."""
    if columns_of(name[: columns + 1]) <= columns:
        return name
    kept, left = "", columns - 1
    for char in name:
        left -= columns_of(char)
        if left < 0:
            break
        kept += char
    return f"{kept}…"


def labels(names: Sequence[str], columns: int = MAX_NAME) -> list[str]:
    """Return names as a figure shows them side by side, each at most that many columns wide.

    A wider one is cut inside its longest part, so that the others stay whole, as near to the middle
    of that part as what is left sets it apart from all other names; where one cut does not, what
    differs is kept between two.

    Args:
        names: All that the figure shows; their parts are joined by `PART`.
        columns: See `columns_of`.
    """
    every = set(names)
    groups: dict[tuple[int, int], dict[tuple[str, str], list[str]]] = {}

    def alike(name: str, head: int, tail: int) -> list[str]:
        if (head, tail) not in groups:
            found = groups[head, tail] = {}
            for each in every:
                found.setdefault((each[:head], each[-tail:]), []).append(each)
        return groups[head, tail][name[:head], name[-tail:]]

    def label(name: str) -> str:
        cuts = _cuts(name, columns)
        for head, tail in cuts:
            if len(alike(name, head, tail)) == 1:
                return f"{name[:head]}…{name[-tail:]}"
        head, tail = cuts[0]
        group = alike(name, head, tail)
        pairs = enumerate(zip(min(group), max(group), strict=False))
        different = max(0, next((at for at, (one, other) in pairs if one != other), 0) - 1)
        return f"…{shortened(name[different:], columns_of(name[:head]))}{name[-tail:]}"

    shown = {each: label(each) for each in every if columns_of(each) > columns}
    return [shown.get(each, each) for each in names]


def _cuts(name: str, columns: int) -> list[tuple[int, int]]:
    """Return how many characters of a name's start and end may be kept, the best choice first."""
    max_part = max(name.split(PART), key=columns_of)
    start = name.index(max_part)
    end = start + len(max_part)
    heads = list(accumulate(map(columns_of, name[:columns])))
    tails = list(accumulate(map(columns_of, reversed(name[-columns:]))))
    fitting = [
        (head, bisect_right(tails, columns - 1 - heads[head - 1])) for head in range(1, len(heads))
    ]
    found = [(head, tail) for head, tail in fitting if tail]

    def distance(cut: tuple[int, int]) -> tuple[bool, int]:
        before, after = cut[0] - start, end - (len(name) - cut[1])
        return before < 0 or after < 0, abs(before - after)

    return sorted(found, key=distance)
